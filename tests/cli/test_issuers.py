"""`subgrant issuers`, and the clients that rest on them or have keys of their own."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cli.command import Ended, subgrant
from tests.outsiders import a_key, jwks
from tests.server_process import BOOTSTRAP, ServerProcess, sqlite_url

KEYS: Final = json.dumps(jwks(a_key()))

Admin = Callable[..., Ended]


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    with ServerProcess(sqlite_url(tmp_path_factory.mktemp("issuers"))) as server:
        env = {
            "SUBGRANT_URL": server.url,
            "SUBGRANT_CLIENT_ID": BOOTSTRAP.client_id,
            "SUBGRANT_CLIENT_SECRET": BOOTSTRAP.client_secret,
        }

        def run(*arguments: str, stdin: str = "") -> Ended:
            return subgrant(*arguments, "--tenant", "acme", env=env, stdin=stdin)

        made = subgrant("tenants", "create", "acme", "--name", "Acme", env=env)
        assert made.code == 0, made
        yield run


def test_an_issuer_is_trusted_shown_changed_and_trusted_no_more(admin: Admin) -> None:
    where = ("--issuer", "https://idp.example", "--jwks-uri", "https://idp.example/jwks")
    what = ("--use", "subject", "--use", "grant", "--algorithm", "RS256", "--max-lifetime-seconds", "300")
    made = admin("issuers", "create", "idp", *where, *what, "--audience", "subgrant", "--json").json
    assert made == {
        "tenantId": "acme",
        "name": "idp",
        "issuer": "https://idp.example",
        "uses": ["grant", "subject"],
        "algorithms": ["RS256"],
        "jwksUri": "https://idp.example/jwks",
        "audience": "subgrant",
        "maxLifetimeSeconds": 300,
        "singleUse": True,
        "status": "active",
    }
    assert admin("issuers", "show", "idp", "--json").json == made
    listed = admin("issuers", "list").stdout
    assert all(word in listed for word in ("idp", "https://idp.example/jwks", "grant, subject", "active"))
    changed = admin(
        *("issuers", "change", "idp", "--no-single-use", "--jwks", "-", "--body", '{"jwksUri": null}', "--json"),
        stdin=KEYS,
    ).json
    assert changed == {name: value for name, value in made.items() if name != "jwksUri"} | {
        "jwks": json.loads(KEYS),
        "singleUse": False,
    }
    assert admin("issuers", "disable", "idp", "--json").json["status"] == "disabled"


def test_a_client_is_made_that_has_no_secret(admin: Admin, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(KEYS)
    keys = ("--auth-method", "private_key_jwt", "--jwks", f"@{tmp_path / 'keys.json'}", "--dpop-required")
    made = admin("clients", "create", "signer", "--kind", "agent", *keys, "--json").json
    assert made["jwks"] == json.loads(KEYS)
    assert made["dpopRequired"] is True
    assert "clientSecret" not in made
    rotated = admin("clients", "rotate-secret", "signer")
    assert rotated.complaint == "conflict: the client has no secret: it proves itself otherwise"


def test_a_workload_is_made_a_client_and_back(admin: Admin) -> None:
    issuer = ("--issuer", "https://cluster.example", "--use", "client", "--jwks", "-")
    assert admin("issuers", "create", "cluster", *issuer, stdin=KEYS).code == 0
    workload = ("--workload-issuer", "cluster", "--workload-subject", "system:serviceaccount:agents:planner")
    method = ("--auth-method", "private_key_jwt")
    made = admin("clients", "create", "pod", "--kind", "orchestrator", *method, *workload, "--json").json
    assert made["workload"] == {"issuer": "cluster", "subject": "system:serviceaccount:agents:planner"}
    back = admin(
        *("clients", "change", "pod", "--auth-method", "client_secret_basic", "--body", '{"workload": null}', "--json")
    ).json
    assert "workload" not in back
    assert admin("clients", "rotate-secret", "pod", "--json").json["clientSecret"]


def test_an_app_says_where_its_answers_go(admin: Admin) -> None:
    where = ("--redirect-uri", "https://app.example/cb", "--redirect-uri", "http://127.0.0.1/cb")
    made = admin("clients", "create", "app", "--kind", "app", "--auth-method", "none", *where, "--json").json
    assert made["redirectUris"] == ["https://app.example/cb", "http://127.0.0.1/cb"]
    assert made["grantTypes"] == ["authorization_code"]
    bad = admin("clients", "create", "bad", "--kind", "app", "--redirect-uri", "http://evil.example/cb")
    assert bad.complaint.startswith("malformed: /redirectUris/0: must be an absolute https URI")


def test_grant_types_are_what_is_said(admin: Admin) -> None:
    made = admin("clients", "create", "narrow", "--kind", "agent", "--grant-type", "client_credentials", "--json").json
    assert made["grantTypes"] == ["client_credentials"]
