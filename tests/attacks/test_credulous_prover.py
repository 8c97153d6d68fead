"""Twice safe: where the prover believes everything, children are minted as wide as they like, and gain nothing.

Every grant here is one that an honest prover refuses. The gateway evaluates every link of the chain again, and
so every call that would use what was gained is refused, by the parent's own link, before anything is sent.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api_client import ACCESS_TOKEN, Json, made, refused
from tests.attacks.stage import OPEN, SEARCH_RULE, Stage
from tests.server_process import ServerProcess, sqlite_url

pytestmark = pytest.mark.anyio

RULE: Json = SEARCH_RULE | {
    "query": {"regex": "[a-z ]{0,20}", "optional": True},
    "file": {"path": {"root": "/data"}, "optional": True},
    "page": {"url": {"hosts": ["*.example.com"]}, "optional": True},
    "tags": {"subsetOf": ["a", "b"], "optional": True},
    "case": {"resource": "case", "optional": True},
    "price": {"decimal": {"max": "9.99", "scale": 2}, "optional": True},
}

GAINS: dict[str, tuple[Json, Json]] = {
    "another customer": ({"customerId": {"eq": "c_43"}}, {"customerId": "c_43"}),
    "any customer": ({"customerId": {"any": True}}, {"customerId": "c_43"}),
    "no customer at all": ({"customerId": {"any": True, "optional": True}}, {"customerId": None}),
    "an argument more": ({"everything": {"any": True}}, {"everything": True}),
    "a wider range": ({"limit": {"int": {"min": 1, "max": 600}}}, {"limit": 6}),
    "a wider pattern": ({"query": {"regex": ".*"}}, {"query": "DROP TABLE"}),
    "another root": ({"file": {"path": {"root": "/"}}}, {"file": "/etc/passwd"}),
    "another host": ({"page": {"url": {"hosts": ["example.com"]}}}, {"page": "https://example.com/"}),
    "another tag": ({"tags": {"subsetOf": ["a", "root"]}}, {"tags": ["root"]}),
    "nobody's case": ({"case": {"str": {}}}, {"case": "c_404"}),
    "a higher price": ({"price": {"decimal": {"scale": 2}}}, {"price": "10.00"}),
    "its tenant chosen": ({"tenant": {"any": True}}, {"tenant": "globex"}),
}


@pytest.fixture(scope="module")
def server(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(database_url, module="tests.attacks.credulous_server") as running:
        yield running


@pytest.fixture(scope="module")
def database_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What is shown is the decision's, and the same on every store."""
    return sqlite_url(Path(tmp_path_factory.mktemp("credulous")))


async def root(stage: Stage) -> Json:
    return await stage.grant(resourceConstraints={"search": RULE})


@pytest.mark.parametrize("what", GAINS)
@pytest.mark.parametrize("way", ["derive", "exchange"])
async def test_what_a_child_gained_is_refused_at_the_gateway(stage: Stage, what: str, way: str) -> None:
    wider, arguments = GAINS[what]
    parent = await root(stage)
    narrowing: Json = {"resourceConstraints": {"search": RULE | wider}}
    if way == "derive":
        child = made(await stage.api.derive(stage.planner, parent["grantId"], **narrowing))
        token = await stage.token(child)
    else:
        token = await stage.token(parent, **narrowing)
    call = {"customerId": "c_42", **arguments}
    response = await stage.api.call(token, stage.support, "search", call)
    assert refused(response) in {"resource_out_of_scope", "argument_invalid"}
    assert stage.tools.of("search", tenant=stage.tenant) == []


async def test_a_tool_more_is_refused_at_the_gateway(stage: Stage) -> None:
    parent = await root(stage)
    wider = {"allowedTools": ["search", "fail"], "resourceConstraints": {"fail": OPEN}}
    # The prover is asked about tools that both have: one that only the child has is no proof's matter.
    assert refused(await stage.api.derive(stage.planner, parent["grantId"], **wider)) == "not_narrower"


@pytest.mark.parametrize(
    "wider, reason",
    [
        ({"maxToolCalls": 5000}, "not_narrower"),
        ({"maxSpendCents": 100_000}, "not_narrower"),
        ({"expiresInSeconds": 3601}, "not_narrower"),
        ({"maxDepth": 9}, "depth_exceeded"),
    ],
)
async def test_more_of_anything_else_is_refused_at_the_gateway(stage: Stage, wider: Json, reason: str) -> None:
    parent = await stage.grant()
    child = made(await stage.api.derive(stage.planner, parent["grantId"], **wider))
    response = await stage.api.call(await stage.token(child), stage.support, "search", {"customerId": "c_42"})
    assert refused(response) == reason


async def test_more_of_a_result_is_refused_at_the_gateway(stage: Stage) -> None:
    parent = await stage.grant(resultProjection={"search": ["$.found"]})
    child = made(await stage.api.derive(stage.planner, parent["grantId"], resultProjection={"search": ["$"]}))
    response = await stage.api.call(await stage.token(child), stage.support, "search", {"customerId": "c_42"})
    assert refused(response) == "not_narrower"


async def test_what_a_child_does_within_its_parent_still_succeeds(stage: Stage) -> None:
    """Else all of the above would be refused whatever it is."""
    parent = await root(stage)
    narrowing: Json = {"resourceConstraints": {"search": RULE | {"limit": {"int": {"min": 1, "max": 600}}}}}
    token = await stage.token(parent, **narrowing)
    assert made(await stage.api.call(token, stage.support, "search", {"customerId": "c_42", "limit": 5}))
    again = await stage.api.exchange(stage.planner, token, subject_token_type=ACCESS_TOKEN, narrowing={})
    assert made(again)
