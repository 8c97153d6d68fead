"""The journeys that clients make here, and what must have come of each, whatever the library.

An OAuth client: a token for the API, the exchange of a grant for a narrower access token, a call under that, its
introspection, its revocation; then the same call and an exchange once more, which must be refused.
An MCP client: what tools there are, and three calls.
"""

import json
from typing import Final

from tests.api_client import ACCESS_TOKEN, Json
from tests.clients.conftest import Desk
from tests.mcp_client import DECISION

CALLS: Final[list[Json]] = [
    {"name": "search", "arguments": {"customerId": "c_42", "limit": 2}},
    {"name": "search", "arguments": {"customerId": "c_43"}},
    {"name": "fail", "arguments": {}},
]
"""One that the grant allows, one whose customer it does not, and a tool that it does not name."""


async def check_exchange(desk: Desk, told: Json, client_id: str, grant: Json) -> None:
    """The journey was made, and the audit log says so: once the token is revoked, neither a call nor an exchange."""
    assert told["forApi"]["expires_in"] > 0
    assert told["exchanged"]["issued_token_type"] == ACCESS_TOKEN
    (detail,) = told["exchanged"]["authorization_details"]
    assert (detail["allowedTools"], detail["maxToolCalls"]) == (["search"], 3)
    assert told["called"]["result"] == {
        "tool": "search",
        "arguments": {"customerId": "c_42", "limit": 2},
        "costCents": 0,
    }
    assert told["before"]["active"] is True
    assert (told["before"]["client_id"], told["before"]["aud"]) == (client_id, desk.support)
    assert told["after"] == {"active": False}
    assert told["refusedCall"] is not None
    assert told["refusedExchange"]["error"] == "invalid_request"
    assert await desk.decisions(grant) == [("allow", None), *[("deny", "grant_revoked")] * 2]


async def check_tools(desk: Desk, told: Json, grant: Json) -> None:
    """The model was shown what the grant allows, and each call was decided as it says, and recorded so."""
    (tool,) = told["tools"]
    assert tool["name"] == "search"
    assert tool["inputSchema"]["properties"]["customerId"]["const"] == "c_42"
    allowed, denied, unknown = told["answers"]
    assert json.loads(allowed["content"][0]["text"])["arguments"] == {"customerId": "c_42", "limit": 2}
    assert allowed["_meta"][DECISION]["decision"] == "allow"
    assert denied["isError"] is True
    assert denied["_meta"][DECISION]["reason"] == "resource_out_of_scope"
    assert unknown["error"]["code"] == -32602
    assert await desk.decisions(grant) == [
        ("allow", None),
        ("deny", "resource_out_of_scope"),
        ("deny", "tool_not_allowed"),
    ]
