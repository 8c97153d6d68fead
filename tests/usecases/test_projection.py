"""What a grant does not let come back: nobody sees it, nothing keeps it, and a child never gets it again."""

from dataclasses import replace

import pytest

from app.core.grant import ToolName
from app.core.reasons import Reason
from app.core.registry import Transport
from app.core.strict_json import JsonObject, JsonValue
from app.ports import Outcome, UpstreamAnswer
from app.usecases.authorize_call import ProposedCall
from app.usecases.derive_grant import derive_grant
from app.usecases.failures import Denied, Malformed
from app.usecases.forward_call import Forwarded, forward_call
from app.usecases.list_tools import list_tools
from app.usecases.mint_grant import SignedGrant
from app.usecases.read_wish import NarrowingFields
from tests.samples import ACME, SEARCH, SUPPORT
from tests.usecases.worlds import Scene, a_scene, caller_for

pytestmark = pytest.mark.anyio

SECRET = "4111-1111"
RESULT: JsonObject = {
    "cases": [{"caseId": "c_1", "on": "2026-05-01", "payment": {"card": SECRET}}, {"caseId": "c_2", "payment": None}],
    "costCents": 1.5,
}
REFS: JsonObject = {SEARCH.tool: ["$.cases[*].caseId", "$.cases[*].on"]}
SHOWN: JsonObject = {"cases": [{"caseId": "c_1", "on": "2026-05-01"}, {"caseId": "c_2"}]}


@pytest.fixture
async def scene() -> Scene:
    made = await a_scene()
    made.tools.answer = UpstreamAnswer(outcome=Outcome.SUCCESS, result=RESULT)
    return made


def a_call(key: str | None = None) -> ProposedCall:
    return ProposedCall(tool_server_audience=SUPPORT.uri, name=ToolName(SEARCH.tool), arguments={}, idempotency_key=key)


async def result_of(scene: Scene, made: SignedGrant, key: str | None = None) -> JsonValue:
    answer = await forward_call(scene.world, caller_for(made), a_call(key))
    assert isinstance(answer, Forwarded)
    return answer.result


async def child_of(scene: Scene, parent: SignedGrant, **fields: object) -> SignedGrant | Denied:
    wish = replace(NarrowingFields(), **fields)  # type: ignore[arg-type]  # a test's fields are its own to get right
    return await derive_grant(scene.world, scene.planner, parent.grant.grant_id, wish, None)


async def test_only_what_the_grant_names_comes_back(scene: Scene) -> None:
    assert await result_of(scene, await scene.grant(result_projection=REFS)) == SHOWN
    assert await result_of(scene, await scene.grant()) == RESULT


async def test_what_is_withheld_is_neither_logged_nor_kept_for_a_repeat(scene: Scene) -> None:
    made = await scene.grant(result_projection=REFS)
    assert await result_of(scene, made, "key") == SHOWN
    assert await result_of(scene, made, "key") == SHOWN
    assert len(scene.tools.requests) == 1
    async with scene.world.store.read() as tx:
        first = await tx.ledger.repeated(ACME, made.grant.child_run_id, SUPPORT.server, "key")
    assert first is not None
    assert first.result is not None
    opened = scene.world.vault.open(first.result, f"call-result:{ACME}/{first.call_id}")
    assert SECRET.encode() not in opened
    assert SECRET not in str(await scene.records())


async def test_a_repeat_by_a_grant_of_the_run_that_may_see_less_shows_less(scene: Scene) -> None:
    wide = await scene.grant(may_redelegate=True)
    assert await result_of(scene, wide, "key") == RESULT
    narrow = await child_of(
        scene, wide, result_projection={SEARCH.tool: ["$.cases[*].caseId"]}, child_run_id=wide.grant.child_run_id
    )
    assert isinstance(narrow, SignedGrant)
    assert narrow.grant.child_run_id == wide.grant.child_run_id
    assert await result_of(scene, narrow, "key") == {"cases": [{"caseId": "c_1"}, {"caseId": "c_2"}]}
    assert len(scene.tools.requests) == 1


async def test_a_cost_that_is_withheld_is_charged_all_the_same(scene: Scene) -> None:
    async with scene.world.store.write() as tx:
        tool = await tx.registry.tool(ACME, SEARCH.server, SEARCH.tool)
        assert tool is not None
        await tx.registry.put_tool(replace(tool, price=replace(tool.price, cost_from="/costCents")))
        await tx.commit()
    made = await scene.grant(result_projection=REFS)
    answer = await forward_call(scene.world, caller_for(made), a_call())
    assert isinstance(answer, Forwarded)
    assert answer.charged_ucents == 15_000
    assert answer.result == SHOWN


async def test_a_tools_words_about_an_error_are_withheld(scene: Scene) -> None:
    scene.tools.answer = UpstreamAnswer(outcome=Outcome.TOOL_ERROR, result={"error": f"no such card {SECRET}"})
    assert SECRET not in str(await result_of(scene, await scene.grant(result_projection=REFS)))


async def test_a_repeat_that_may_see_less_is_told_less_of_an_error_too(scene: Scene) -> None:
    scene.tools.answer = UpstreamAnswer(outcome=Outcome.TOOL_ERROR, result={"error": SECRET}, detail=f"code {SECRET}")
    wide = await scene.grant(may_redelegate=True)
    assert SECRET in str(await forward_call(scene.world, caller_for(wide), a_call("key")))
    narrow = await child_of(scene, wide, result_projection=REFS, child_run_id=wide.grant.child_run_id)
    assert isinstance(narrow, SignedGrant)
    assert SECRET not in str(await forward_call(scene.world, caller_for(narrow), a_call("key")))
    assert len(scene.tools.requests) == 1


async def test_an_mcp_tools_text_shows_no_more_than_its_structured_content(scene: Scene) -> None:
    async with scene.world.store.write() as tx:
        server = await tx.registry.server(ACME, SUPPORT.server)
        assert server is not None
        await tx.registry.put_server(replace(server, transport=Transport.MCP))
        await tx.commit()
    result: JsonObject = {
        "content": [{"type": "text", "text": f"card {SECRET}"}, {"type": "image", "data": SECRET}],
        "structuredContent": RESULT,
        "_meta": {"card": SECRET},
    }
    scene.tools.answer = UpstreamAnswer(outcome=Outcome.SUCCESS, result=result)
    shown = await result_of(scene, await scene.grant(result_projection=REFS))
    assert isinstance(shown, dict)
    assert shown["structuredContent"] == SHOWN
    assert SECRET not in str(shown)


async def test_a_child_inherits_narrows_and_never_widens(scene: Scene) -> None:
    parent = await scene.grant(result_projection=REFS, may_redelegate=True)
    inherited = await child_of(scene, parent)
    assert isinstance(inherited, SignedGrant)
    assert await result_of(scene, inherited) == SHOWN
    nothing = await child_of(scene, parent, result_projection={SEARCH.tool: []})
    assert isinstance(nothing, SignedGrant)
    assert await result_of(scene, nothing) == {}
    for wider in (["$"], ["$.cases"], ["$.cases[*].payment"], ["$.cases[*].caseId", "$.costCents"], ["$[*]"]):
        refused = await child_of(scene, parent, result_projection={SEARCH.tool: wider})
        assert isinstance(refused, Denied), wider
        assert (refused.reason, refused.pointer) == (Reason.NOT_NARROWER, "/resultProjection")


@pytest.mark.parametrize(
    "projection, pointer",
    [
        ({"other": ["$.a"]}, "/resultProjection/other"),
        ({SEARCH.tool: "$.a"}, f"/resultProjection/{SEARCH.tool}"),
        ({SEARCH.tool: ["$..a"]}, f"/resultProjection/{SEARCH.tool}/0"),
        ({SEARCH.tool: ["$.a", 1]}, f"/resultProjection/{SEARCH.tool}/1"),
    ],
)
async def test_a_projection_that_is_not_understood_is_refused_where_it_stands(
    scene: Scene, projection: JsonObject, pointer: str
) -> None:
    with pytest.raises(Malformed) as refused:
        await scene.grant(result_projection=projection)
    assert refused.value.pointer == pointer


async def test_the_catalogue_shows_what_may_be_called_and_what_comes_back(scene: Scene) -> None:
    async with scene.world.store.write() as tx:
        tool = await tx.registry.tool(ACME, SEARCH.server, SEARCH.tool)
        assert tool is not None
        names: JsonObject = {name: {"type": "string", "description": name} for name in ("tenant", "caseId", "note")}
        schema: JsonObject = {"type": "object", "properties": names, "required": ["tenant", "caseId"]}
        case: JsonObject = {"caseId": {"type": "string"}, "payment": {"type": "object"}}
        cases: JsonObject = {"type": "array", "items": {"type": "object", "properties": case}}
        output: JsonObject = {"type": "object", "properties": {"cases": cases}}
        await tx.registry.put_tool(replace(tool, input_schema=schema, output_schema=output))
        await tx.commit()
    rule: JsonObject = {"tenant": {"bind": "tenantId"}, "caseId": {"oneOf": ["c_1", "c_2"]}}
    root = await scene.grant(resource_constraints={SEARCH.tool: rule}, result_projection=REFS, may_redelegate=True)
    child = await child_of(scene, root, resource_constraints={SEARCH.tool: {"caseId": {"eq": "c_1"}}})
    assert isinstance(child, SignedGrant)
    listed = await list_tools(scene.world, caller_for(child), child.grant.grant_id)
    assert not isinstance(listed, Denied)
    (shown,) = listed
    assert (shown.name, shown.description) == (SEARCH.tool, "search")
    assert shown.input_schema == {
        "type": "object",
        "properties": {"caseId": {"type": "string", "description": "caseId", "const": "c_1"}},
        "required": ["caseId"],
        "additionalProperties": False,
    }
    assert "payment" not in str(shown.output_schema)
    assert "caseId" in str(shown.output_schema)
