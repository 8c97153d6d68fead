"""A wrong setting is one line that names it; what is derived from settings is what an operator expects."""

from datetime import timedelta
from pathlib import Path

import pytest

from app.settings import Settings, SettingsInvalid, load_settings


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os  # noqa: PLC0415  # only this fixture looks at the environment

    for name in [name for name in os.environ if name.startswith("SUBGRANT_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    "name, value",
    [
        ("SUBGRANT_PORT", "http"),
        ("SUBGRANT_PORT", "70000"),
        ("SUBGRANT_WORKERS", "0"),
        ("SUBGRANT_ISSUER", "subgrant.example"),
        ("SUBGRANT_ISSUER", "https://subgrant.example/?x=1"),
        ("SUBGRANT_DATABASE_URL", "mysql://x/y"),
        ("SUBGRANT_SIGNING_ALGORITHM", "HS256"),
        ("SUBGRANT_BOOTSTRAP_CLIENT_ID", "a b"),
        ("SUBGRANT_BOOTSTRAP_CLIENT_SECRET", ""),
        ("SUBGRANT_RECONCILE_EVERY_SECONDS", "-1"),
        ("SUBGRANT_TOOL_SERVER_ADDRESSES", "true"),
    ],
)
def test_a_wrong_setting_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsInvalid) as caught:
        load_settings()
    assert str(caught.value).startswith(f"{name}: ")
    assert "\n" not in str(caught.value)


def test_a_secret_is_not_in_any_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBGRANT_BOOTSTRAP_CLIENT_SECRET", "open-sesame")
    monkeypatch.setenv("SUBGRANT_KEY_ENCRYPTION_KEY", "also-secret")
    assert "sesame" not in repr(load_settings())
    assert "also-secret" not in repr(load_settings())


@pytest.mark.parametrize(
    "url, with_driver",
    [
        ("sqlite:///x.db", "sqlite:///x.db"),
        ("sqlite+aiosqlite:///x.db", "sqlite:///x.db"),
        ("postgresql://u@h/d", "postgresql+asyncpg://u@h/d"),
        ("postgres://u@h/d", "postgresql+asyncpg://u@h/d"),
    ],
)
def test_a_database_url_names_its_database_in_any_spelling(url: str, with_driver: str) -> None:
    assert load_settings(database_url=url).database_url == with_driver


@pytest.mark.parametrize(
    "settings, addresses",
    [
        ({}, "loopback"),
        ({"host": "::1"}, "loopback"),
        ({"host": "0.0.0.0"}, "public"),  # noqa: S104  # nothing is bound
        ({"host": "0.0.0.0", "issuer": "http://localhost:8700"}, "loopback"),  # noqa: S104  # likewise
        ({"issuer": "http://127.8.8.8"}, "loopback"),
        ({"issuer": "https://subgrant.example"}, "public"),
        ({"issuer": "https://localhost.example"}, "public"),
        ({"issuer": "https://10.0.0.1"}, "public"),
        ({"issuer": "https://subgrant.example", "tool_server_addresses": "private"}, "private"),
        ({"tool_server_addresses": "public"}, "public"),
    ],
)
def test_a_service_that_others_reach_calls_public_tool_servers_only_unless_said(
    settings: dict[str, str], addresses: str
) -> None:
    assert load_settings(**settings).allowed_tool_server_addresses == addresses


def test_a_file_is_read_and_the_environment_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "subgrant.toml"
    file.write_text('port = 9000\nissuer = "https://subgrant.example/"\ndefault_grant_lifetime_seconds = 60\n')
    monkeypatch.setenv("SUBGRANT_CONFIG_FILE", str(file))
    monkeypatch.setenv("SUBGRANT_PORT", "9001")
    settings = load_settings()
    assert (settings.port, settings.public_issuer) == (9001, "https://subgrant.example")
    assert settings.rules.default_grant_lifetime == timedelta(minutes=1)


def test_every_setting_is_in_the_operators_page() -> None:
    page = Path("docs/operate.md").read_text()
    missing = [name for name in Settings.model_fields if f"`{name.upper()}`" not in page]
    assert missing == []
