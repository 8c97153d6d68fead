"""The DelegationGrant: one immutable, signed piece of authority, and the chain of them.

A grant is one document everywhere: in the API, in the signed JWT and in `authorization_details`
(RFC 9396). What changes during its life (usage, closing) is not part of it and not known here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple, NewType

from app.core.budget import Amount, cents_to_ucents, ucents_to_cents
from app.core.constraints import ToolRule, parse_tool_rule, render_tool_rule
from app.core.projection import Projection, parse_projection, render_projection
from app.core.strict_json import JsonObject, JsonValue

TenantId = NewType("TenantId", str)
ClientId = NewType("ClientId", str)
GrantId = NewType("GrantId", str)
RunId = NewType("RunId", str)
ServerName = NewType("ServerName", str)
ToolName = NewType("ToolName", str)

POLICY_V0 = "v0"
"""The built-in policy that every tenant starts with: it permits what the grant permits."""

MAX_LINEAGE = 32
MAX_TOOLS = 256


class ToolRef(NamedTuple):
    """A tool of one tool server: names are only unique inside their server."""

    server: ServerName
    tool: ToolName


class Audience(NamedTuple):
    """A tool server as a grant names it: the URI as it was asked for, and the server it resolved to."""

    uri: str
    server: ServerName


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One node of a delegation tree.

    `tools` maps each allowed tool to the effective rule of its arguments. Times are aware UTC with whole
    seconds, as JWT NumericDates are (RFC 7519 §2).
    """

    grant_id: GrantId
    parent_grant_id: GrantId | None
    root_grant_id: GrantId
    depth: int
    tenant_id: TenantId
    subject: str
    actor: str
    issued_by: ClientId
    holder: ClientId
    parent_run_id: RunId | None
    child_run_id: RunId
    audience: tuple[Audience, ...]
    tools: Mapping[ToolRef, ToolRule]
    limit: Amount
    issued_at: datetime
    not_before: datetime
    expires_at: datetime
    may_redelegate: bool
    max_depth: int
    policy_version: str
    projections: Mapping[ToolRef, Projection] = field(default_factory=dict)
    """What comes back of a tool's result; all of it where the tool is not named."""
    standing: bool = False
    """A root that an administrator made for a client, to stand behind the tokens that it asks for by itself."""
    key_thumbprint: str | None = None
    """The key whose holder alone may use the grant (RFC 7800, by its RFC 7638 thumbprint); None: who bears it may."""

    @property
    def is_root(self) -> bool:
        return self.parent_grant_id is None

    @property
    def servers(self) -> frozenset[ServerName]:
        return frozenset(audience.server for audience in self.audience)

    @property
    def bindings(self) -> Mapping[str, str | None]:
        """The fields that a `bind` constraint may name."""
        return {"tenantId": self.tenant_id, "subject": self.subject, "childRunId": self.child_run_id}

    def hands_on_to(self, actor: str, run: RunId) -> bool:
        """Whether a child for this actor and run is redelegation.

        A standing grant opens a run for each of its client's tokens, which hands nothing on.
        """
        return actor != self.actor or (run != self.child_run_id and not self.standing)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedGrant:
    """A grant whose signature was verified. Only the signer's `verify_grant` makes one."""

    grant: Grant
    signed: str = field(repr=False)


class ChainBroken(ValueError):
    """The stored grants do not form one lineage: a record was forged, swapped or lost."""


@dataclass(frozen=True, slots=True)
class GrantChain:
    """A lineage from root to leaf, each link verified and each one the child of the one before."""

    grants: tuple[Grant, ...]

    @property
    def root(self) -> Grant:
        return self.grants[0]

    @property
    def leaf(self) -> Grant:
        return self.grants[-1]

    @property
    def actors(self) -> JsonObject:
        """The nested `act` claim (RFC 8693 §4.1), outermost the current actor, rebuilt from the lineage."""
        act: JsonObject = {}
        previous: tuple[str, RunId] | None = None
        for grant in self.grants:
            if (grant.actor, grant.child_run_id) != previous:
                act = {"sub": grant.actor, "run": grant.child_run_id} | ({"act": act} if act else {})
            previous = (grant.actor, grant.child_run_id)
        return act


def chain_of(verified: tuple[VerifiedGrant, ...]) -> GrantChain:
    """The chain of verified grants, root first. Raises ChainBroken."""
    grants = tuple(link.grant for link in verified)
    if not grants or not grants[0].is_root or len(grants) > MAX_LINEAGE:
        raise ChainBroken("a lineage starts at a root and has a bounded length")
    for parent, child in pairwise(grants):
        if not _is_child(child, parent):
            raise ChainBroken(f"{child.grant_id} is not a child of {parent.grant_id}")
    return GrantChain(grants)


def extended(chain: GrantChain | None, child: Grant) -> GrantChain:
    """The chain with a grant that was just made and is about to be signed; None for the chain of a root."""
    return GrantChain((child,)) if chain is None else GrantChain((*chain.grants, child))


def _is_child(child: Grant, parent: Grant) -> bool:
    return (
        child.parent_grant_id == parent.grant_id
        and child.root_grant_id == parent.root_grant_id
        and child.tenant_id == parent.tenant_id
        and child.depth in (parent.depth, parent.depth + 1)
    )


# --- the document -----------------------------------------------------------------------------------------


def render_grant(grant: Grant) -> JsonObject:
    """The grant's camelCase document, the inverse of `parse_grant`. Fields are only ever appended."""
    rules = {spell_tool(grant.audience, ref): render_tool_rule(rule) for ref, rule in grant.tools.items()}
    uris: list[JsonValue] = [audience.uri for audience in grant.audience]
    servers: list[JsonValue] = [audience.server for audience in grant.audience]
    tools: list[JsonValue] = [*sorted(rules)]
    return {
        "grantId": grant.grant_id,
        "parentGrantId": grant.parent_grant_id,
        "rootGrantId": grant.root_grant_id,
        "depth": grant.depth,
        "tenantId": grant.tenant_id,
        "subject": grant.subject,
        "actor": grant.actor,
        "issuedBy": grant.issued_by,
        "holder": grant.holder,
        "parentRunId": grant.parent_run_id,
        "childRunId": grant.child_run_id,
        "audience": uris[0] if len(uris) == 1 else uris,
        "toolServers": servers,
        "allowedTools": tools,
        "resourceConstraints": {**rules},
        "maxToolCalls": grant.limit.tool_calls,
        "maxSpendCents": ucents_to_cents(grant.limit.spend_ucents),
        "issuedAt": render_time(grant.issued_at),
        "notBefore": render_time(grant.not_before),
        "expiresAt": render_time(grant.expires_at),
        "mayRedelegate": grant.may_redelegate,
        "maxDepth": grant.max_depth,
        "policyVersion": grant.policy_version,
        **_render_projections(grant),
        **({"standing": True} if grant.standing else {}),
        **({"cnf": {"jkt": grant.key_thumbprint}} if grant.key_thumbprint is not None else {}),
    }


def _render_projections(grant: Grant) -> JsonObject:
    """The member `resultProjection`, which a grant that holds nothing back does not have."""
    shown: JsonObject = {
        spell_tool(grant.audience, ref): render_projection(projection) for ref, projection in grant.projections.items()
    }
    return {"resultProjection": shown} if shown else {}


class GrantInvalid(ValueError):
    """A document that claims to be a grant is none."""


def parse_grant(document: JsonObject) -> Grant:
    """The grant in a signed document. Raises GrantInvalid; never guesses a missing member.

    Without `resultProjection` nothing of any result is held back, without `standing` the grant is none, and
    without `cnf` it is bound to no key.
    """
    try:
        return _parse_grant(document)
    except (KeyError, TypeError, ValueError) as error:
        raise GrantInvalid(f"not a DelegationGrant: {error}") from error


def _parse_grant(document: JsonObject) -> Grant:
    audience = _parse_audience(document)
    rules = _object(document["resourceConstraints"])
    parent, parent_run = document["parentGrantId"], document["parentRunId"]
    return Grant(
        grant_id=GrantId(_text(document["grantId"])),
        parent_grant_id=None if parent is None else GrantId(_text(parent)),
        root_grant_id=GrantId(_text(document["rootGrantId"])),
        depth=_integer(document["depth"]),
        tenant_id=TenantId(_text(document["tenantId"])),
        subject=_text(document["subject"]),
        actor=_text(document["actor"]),
        issued_by=ClientId(_text(document["issuedBy"])),
        holder=ClientId(_text(document["holder"])),
        parent_run_id=None if parent_run is None else RunId(_text(parent_run)),
        child_run_id=RunId(_text(document["childRunId"])),
        audience=audience,
        tools={
            parse_tool(audience, _text(name)): parse_tool_rule(
                rules[_text(name)], pointer=f"/resourceConstraints/{name}"
            )
            for name in _list(document["allowedTools"])
        },
        limit=Amount(
            tool_calls=_integer(document["maxToolCalls"]),
            spend_ucents=cents_to_ucents(document["maxSpendCents"]),
        ),
        issued_at=parse_time(_text(document["issuedAt"])),
        not_before=parse_time(_text(document["notBefore"])),
        expires_at=parse_time(_text(document["expiresAt"])),
        may_redelegate=document["mayRedelegate"] is True,
        max_depth=_integer(document["maxDepth"]),
        policy_version=_text(document["policyVersion"]),
        projections={
            parse_tool(audience, name): parse_projection(paths, pointer=f"/resultProjection/{name}")
            for name, paths in _object(document.get("resultProjection", {})).items()
        },
        standing=document.get("standing", False) is True,
        key_thumbprint=_text(_object(document["cnf"])["jkt"]) if "cnf" in document else None,
    )


def _parse_audience(document: JsonObject) -> tuple[Audience, ...]:
    uris, servers = document["audience"], _list(document["toolServers"])
    spelled = uris if isinstance(uris, list) else [uris]
    return tuple(Audience(_text(uri), ServerName(_text(server))) for uri, server in zip(spelled, servers, strict=True))


def spell_tool(audience: tuple[Audience, ...], ref: ToolRef) -> str:
    """A tool's name in a grant for this audience: bare with one tool server, `server/tool` with several."""
    return ref.tool if len(audience) == 1 else f"{ref.server}/{ref.tool}"


def parse_tool(audience: tuple[Audience, ...], name: str) -> ToolRef:
    """The tool that a name in a grant means. Raises ValueError where the spelling does not fit the audience."""
    if len(audience) == 1:
        return ToolRef(audience[0].server, ToolName(name))
    server, slash, tool = name.partition("/")
    if not slash or server not in {item.server for item in audience}:
        raise ValueError("a grant for several tool servers spells its tools as server/tool")
    return ToolRef(ServerName(server), ToolName(tool))


def render_time(moment: datetime) -> str:
    """RFC 3339 in UTC with `Z`."""
    return moment.isoformat().replace("+00:00", "Z")


def parse_time(text: str) -> datetime:
    """A time in UTC from RFC 3339. Raises ValueError without an offset, or outside what a NumericDate is for."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time needs its offset, as in 2026-01-31T12:00:00Z")
    if not 1970 < moment.year < 9999:  # noqa: PLR2004  # a day of margin for the offset on both sides
        raise ValueError("a time is between the years 1971 and 9998")
    return moment.astimezone(UTC)


def _text(value: JsonValue) -> str:
    if not isinstance(value, str):
        raise TypeError("a string was expected")
    return value


def _integer(value: JsonValue) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("an integer was expected")
    return value


def _list(value: JsonValue) -> list[JsonValue]:
    if not isinstance(value, list):
        raise TypeError("a list was expected")
    return value


def _object(value: JsonValue) -> JsonObject:
    if not isinstance(value, dict):
        raise TypeError("an object was expected")
    return value
