"""Commands on the database itself: nothing is served meanwhile."""

import contextlib
import sqlite3
from pathlib import Path
from typing import Final

import httpx
import pytest

from app.cli.database import place_of
from app.settings import Settings
from tests.cli.command import Ended, subgrant
from tests.server_process import BOOTSTRAP, KEY_ENCRYPTION_KEY, ServerProcess, sqlite_url

SECRET_PREFIX: Final = "sgs_"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return sqlite_url(tmp_path)


def _on(url: str, *arguments: str) -> Ended:
    return subgrant(*arguments, "--database-url", url)


def test_init_makes_a_tenant_whose_administrator_can_work_at_once(url: str) -> None:
    made = _on(url, "init", "--tenant", "acme", "--name", "Acme", "--client-id", "root", "--json").json
    assert made["clientId"] == "root"
    with ServerProcess(url, bootstrap=None) as server:
        env = {"SUBGRANT_URL": server.url, "SUBGRANT_CLIENT_ID": "root", "SUBGRANT_CLIENT_SECRET": made["clientSecret"]}
        clients = subgrant("clients", "list", "--json", env=env).json["items"]
        platform = (made["platformClientId"], made["platformClientSecret"])
        form = {"grant_type": "client_credentials"}
        assert httpx.post(f"{server.url}/oauth/token", data=form, auth=platform).is_success
        assert server.stdout == f"Subgrant is listening on {server.url}\n"
    assert [client["clientId"] for client in clients] == ["root"]


def test_init_says_which_database_it_wrote(url: str, tmp_path: Path) -> None:
    made = _on(url, "init", "--tenant", "acme", "--json").json
    assert made["database"] == str((tmp_path / "subgrant.db").resolve())
    settings = Settings(database_url="postgresql://root:s3cret@db.example:5433/grants?password=s3cret")
    assert place_of(settings) == "postgresql://db.example:5433/grants"


def test_init_prints_each_secret_once(url: str) -> None:
    first = _on(url, "init", "--tenant", "acme")
    assert first.stdout.count(SECRET_PREFIX) == 2
    second = _on(url, "init", "--tenant", "globex")
    assert second.stdout.count(SECRET_PREFIX) == 1
    assert "globex-admin" in second.stdout
    assert (first.stderr, second.stderr) == ("", "")


def test_init_of_what_exists_is_one_line_and_makes_no_secret(url: str) -> None:
    assert _on(url, "init", "--tenant", "acme").code == 0
    ended = _on(url, "init", "--tenant", "acme", "--client-id", "other")
    assert ended.code == 2
    assert ended.complaint == "tenantId is already in use"


@pytest.mark.parametrize("wrong", [("--tenant", "-acme"), ("--tenant", "a", "--client-id", "b c"), ("--tenant", "")])
def test_init_refuses_what_the_api_would_refuse(url: str, wrong: tuple[str, ...]) -> None:
    ended = _on(url, "init", *wrong)
    assert ended.code == 2
    assert ended.complaint.startswith(f"{wrong[-2]}: ")


def test_a_made_up_administrator_is_shown_even_where_the_tenant_can_not_be_made(url: str) -> None:
    ended = _on(url, "init", "--tenant", "acme", "--client-id", "admin")
    assert ended.code == 2
    assert ended.stderr == "clientId is already in use\n"
    assert ended.stdout.count(SECRET_PREFIX) == 1


def test_migrate_makes_the_schema_and_says_where_it_stands(url: str) -> None:
    ended = _on(url, "migrate")
    assert ended.code == 0
    assert ended.stdout.startswith("the database is at ")
    assert _on(url, "migrate").stdout == ended.stdout


def test_a_revision_that_is_none_is_one_line(url: str) -> None:
    ended = _on(url, "migrate", "--revision", "none")
    assert ended.code == 2
    assert ended.complaint.endswith("Can't locate revision identified by 'none'")


def test_a_database_of_a_newer_version_is_one_line(url: str, tmp_path: Path) -> None:
    assert _on(url, "migrate").code == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "subgrant.db")) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
        database.commit()
    ended = _on(url, "serve", "--port", "0")
    assert ended.code == 2
    assert ended.complaint.startswith("SUBGRANT_DATABASE_URL: its schema is of another version: ")


def test_all_of_it_on_postgresql(postgres_url: str) -> None:
    env = {"SUBGRANT_DATABASE_URL": postgres_url, "SUBGRANT_KEY_ENCRYPTION_KEY": KEY_ENCRYPTION_KEY}
    assert subgrant("migrate", env=env).code == 0
    assert subgrant("init", "--tenant", "acme", "--json", env=env).json["tenantId"] == "acme"
    with ServerProcess(postgres_url, workers=2) as server:
        form = {"grant_type": "client_credentials"}
        token = httpx.post(f"{server.url}/oauth/token", data=form, auth=(BOOTSTRAP.client_id, BOOTSTRAP.client_secret))
        assert token.is_success
