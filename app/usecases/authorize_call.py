"""Look up what bears on a proposed call, and let the core decide. Behind every route there is this one file.

`authorize_call` answers without reserving anything; `forward_call.py` weighs a call in the same way under
locked accounts and goes on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.core.audit import RecordType
from app.core.budget import Price
from app.core.constraints import Objection
from app.core.decision import (
    MAX_THINGS,
    Accounts,
    Allow,
    Call,
    Deny,
    Facts,
    at_most,
    decide,
    effective_arguments,
    things_to_ask_about,
)
from app.core.grant import GrantChain, ServerName, ToolName, ToolRef
from app.core.reasons import Reason
from app.core.registry import Registration, Tenant
from app.core.resource_rules import id_flaw
from app.core.resources import ResourceRef
from app.core.strict_json import JsonObject, JsonValue, canonical
from app.ports import Transaction
from app.usecases.ask_policies import Opinion, ask_policies
from app.usecases.delegation_evidence import grant_refs
from app.usecases.failures import Denied
from app.usecases.find_facts import Known, Wanting, offer_for, offer_wanted, resolver_url, resources_for, with_facts
from app.usecases.load_chain import Lineage, load_lineage, window_limits
from app.usecases.prove_possession import MUST_BE_BOUND, lacks_key, whose_key
from app.usecases.read_wish import resolve_audience
from app.usecases.world import Caller, World, digest, evidence

MAX_REF_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedCall:
    """A call as an agent proposes it: the tool server by its audience, the tool's name, parsed arguments."""

    tool_server_audience: str
    name: ToolName
    arguments: JsonObject
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """A call with everything that bore on its decision."""

    decision_id: str
    proposed: ProposedCall
    call: Call
    chain: GrantChain
    accounts: Accounts
    registration: Registration
    opinion: Opinion
    unanswered: bool
    """Whether the tool server did not say whose its things are."""
    verdict: Allow | Deny
    wanting: Wanting | None
    """What the tool server has to be asked before the call may be made, where nothing else is in its way."""
    arguments_digest: str

    def events(self, world: World, caller: Caller, call_id: str | None) -> list[JsonObject]:
        """That the call was proposed, and what was decided."""
        now = world.clock()
        refs = self.refs(caller, call_id)
        return [
            evidence(RecordType.TOOL_PROPOSED, now, refs | {"argumentsDigest": self.arguments_digest}),
            evidence(self._verdict_type(), now, refs | self._verdict()),
        ]

    def refs(self, caller: Caller, call_id: str | None) -> JsonObject:
        """The members by which the records of one call are found together."""
        return grant_refs(self.chain.leaf) | {
            "clientId": caller.client_id,
            "toolServer": self.call.ref.server or None,
            "tool": self.call.ref.tool,
            "callId": call_id,
            "decisionId": self.decision_id,
            "refs": self._loggable(),
        }

    def _verdict_type(self) -> RecordType:
        return RecordType.TOOL_AUTHORIZED if isinstance(self.verdict, Allow) else RecordType.TOOL_DENIED

    def _verdict(self) -> JsonObject:
        if isinstance(self.verdict, Allow):
            return {"decision": "allow"} | self.opinion.evidence()
        return self.opinion.evidence() | {
            "decision": "deny",
            "reason": self.verdict.reason.value,
            "pointer": self._loggable_pointer(self.verdict.pointer),
            "objectingGrantId": self.verdict.grant_id,
            "resolverFailed": self.unanswered or None,
        }

    def _loggable_pointer(self, pointer: str | None) -> str | None:
        """Where the refused argument is, if it is one that grant or tool know: names are a caller's text too."""
        tool, rule = self.registration.tool, self.chain.leaf.tools.get(self.call.ref)
        properties = {} if tool is None else tool.input_schema.get("properties")
        known = {*(() if rule is None else rule.arguments), *(properties if isinstance(properties, dict) else ())}
        first = "" if pointer is None else pointer[1:].partition("/")[0]
        return f"/{first}" if first in known else None

    def _loggable(self) -> JsonValue:
        """The arguments whose registration marks them as references that a log may hold."""
        tool = self.registration.tool
        names = () if tool is None else tool.loggable_arguments
        given = {name: self.call.arguments.get(name) for name in names}
        refs: JsonObject = {name: value for name, value in given.items() if _is_ref(value)}
        return refs or None


def _is_ref(value: JsonValue) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool) and len(str(value)) <= MAX_REF_CHARS


async def authorize_call(world: World, caller: Caller, proposals: Sequence[ProposedCall]) -> list[Weighed] | Denied:
    """The decision on each call, in order; nothing is reserved or forwarded. Recorded like any decision.

    Each in a transaction of its own, so that a long list keeps nobody else waiting.
    """
    weighed: list[Weighed] = []
    known = Known()
    for proposed in proposals:
        one, known = await _authorize(world, caller, proposed, known.of_tools)
        if isinstance(one, Denied):
            return one
        weighed.append(one)
    return weighed


async def _authorize(
    world: World, caller: Caller, proposed: ProposedCall, known: Known
) -> tuple[Weighed | Denied, Known]:
    """The decision, and what is known by then."""

    async def attempt(known: Known) -> tuple[Weighed | Denied, Known]:
        async with world.store.write() as tx:
            one = await weigh_call(tx, world, caller, proposed, known, lock=False)
            if isinstance(one, Denied):
                one = await record_unweighed(tx, world, caller, one)
            elif one.wanting is not None:
                raise one.wanting
            else:
                events = [{**event, "checkOnly": True} for event in one.events(world, caller, None)]
                await tx.audit.append(caller.tenant_id, events)
            await tx.commit()
        return one, known

    return await with_facts(world, attempt, known)


async def record_unweighed(
    tx: Transaction, world: World, caller: Caller, refused: Denied, kind: RecordType = RecordType.TOOL_DENIED
) -> Denied:
    """Append the refusal of what has no chain to decide about; it comes back with its decision id."""
    decision_id = world.new_id("dec")
    members: JsonObject = {
        "clientId": caller.client_id,
        "through": caller.through,
        "grantId": caller.grant_id,
        "decision": "deny",
        "reason": refused.reason.value,
        "decisionId": decision_id,
    }
    await tx.audit.append(caller.tenant_id, [evidence(kind, world.clock(), members)])
    return replace(refused, decision_id=decision_id)


def denied(weighed: Weighed, deny: Deny) -> Denied:
    """A denial for the caller: without the name of the grant that objected."""
    return Denied(reason=deny.reason, detail=deny.detail, decision_id=weighed.decision_id, pointer=deny.pointer)


async def weigh_call(
    tx: Transaction, world: World, caller: Caller, proposed: ProposedCall, known: Known, *, lock: bool
) -> Weighed | Denied:
    """Gather the facts and decide. A denial here means that there is no chain to decide about.

    Raises Wanting for facts that the store does not hold and that are not known yet.
    """
    if caller.grant_id is None:
        return Denied(reason=Reason.TOKEN_INVALID, detail="a tool call needs a token for a grant")
    lineage = await load_lineage(tx, world, caller.tenant_id, caller.grant_id, lock=lock)
    if lineage is None:
        return UNKNOWN_GRANT
    if isinstance(lineage, Denied):
        return lineage
    return await _weigh(tx, world, caller, proposed, known, lineage, lock=lock)


async def _weigh(
    tx: Transaction,
    world: World,
    caller: Caller,
    proposed: ProposedCall,
    known: Known,
    lineage: Lineage,
    *,
    lock: bool,
) -> Weighed | Denied:
    chain = lineage.chain
    server = await _server(tx, world, chain, proposed.tool_server_audience)
    call = Call(tenant_id=caller.tenant_id, ref=ToolRef(server, proposed.name), arguments=proposed.arguments)
    clients = sorted({*lineage.clients, caller.client_id})
    registration = await tx.registry.registration(caller.tenant_id, clients, server, proposed.name)
    if caller.audience is None and not takes_grants(world, registration.tenant):
        return GRANT_AS_TOKEN
    if lacks_key(caller.key_thumbprint, *map(registration.clients.get, whose_key(caller, chain))):
        return MUST_BE_BOUND
    now = world.clock()
    issuer = registration.clients.get(chain.root.issued_by)
    windows = await tx.ledger.windows(caller.tenant_id, window_limits(registration.tenant, issuer, now), lock=lock)
    accounts = Accounts(grants=lineage.accounts.grants, windows=windows)
    registered = _registered_things(registration, chain, call)
    asked = things_to_ask_about(chain, call) | _on_record_perhaps(registered)
    resources = await resources_for(tx, known, caller.tenant_id, registration.server, asked)
    opinion = await ask_policies(tx, world, known, caller, chain, call, registration, registered, resources)
    facts = Facts(
        price=_price(registration),
        offer=offer_for(world, known, registration),
        credential_server=credential_server(caller, chain),
        credential_expired=caller.is_expired,
        disabled=_disabled(registration, clients),
        max_depth=None if registration.tenant is None else registration.tenant.max_depth,
        argument_objection=_argument_objection(world, caller, registration, chain, call),
        resources=resources,
        active_policy=opinion.active,
        permitting=opinion.permitting,
    )
    verdict = decide(chain, call, accounts, facts, now)
    return Weighed(
        decision_id=world.new_id("dec"),
        proposed=proposed,
        call=call,
        chain=chain,
        accounts=accounts,
        registration=registration,
        opinion=opinion,
        unanswered=_was_silent(registration, known),
        verdict=verdict,
        # Only for a call that would be made: what is refused anyway costs a tool server nothing.
        wanting=offer_wanted(known, registration) if _lacks_offer_alone(verdict) else None,
        arguments_digest=digest(world, caller.tenant_id, canonical(proposed.arguments)),
    )


def _lacks_offer_alone(verdict: Allow | Deny) -> bool:
    """Whether nothing stands against the call but that its tool server has not been asked. No reason comes later."""
    return isinstance(verdict, Deny) and verdict.reason is Reason.TOOL_SERVER_UNAVAILABLE


NO_SERVER = ServerName("")
"""What an audience resolves to when it names nothing: no grant reaches it."""


async def _server(tx: Transaction, world: World, chain: GrantChain, uri: str) -> ServerName:
    for audience in chain.leaf.audience:
        if audience.uri == uri:
            return audience.server
    resolved = await resolve_audience(tx, world, chain.leaf.tenant_id, uri)
    return NO_SERVER if resolved is None else resolved.server


def credential_server(caller: Caller, chain: GrantChain) -> ServerName | None:
    """The tool server that the credential is for; None where it is for every one of its grant."""
    if caller.audience is None:
        return None
    servers = {audience.uri: audience.server for audience in chain.leaf.audience}
    return servers.get(caller.audience, NO_SERVER)


UNKNOWN_GRANT = Denied(reason=Reason.TOKEN_INVALID, detail="the token names no grant")
GRANT_AS_TOKEN = Denied(reason=Reason.TOKEN_INVALID, detail="a grant is no access token here: exchange it")


def takes_grants(world: World, tenant: Tenant | None) -> bool:
    """Whether a grant itself counts as a bearer token."""
    return world.rules.allow_grant_bearer and tenant is not None and tenant.allow_grant_bearer


def _registered_things(registration: Registration, chain: GrantChain, call: Call) -> frozenset[ResourceRef]:
    """What the call names by the tool's registration: policies are asked about it, whatever a grant says."""
    tool = registration.tool
    if tool is None or not tool.resource_arguments:
        return frozenset()
    return tool.things(effective_arguments(chain, call))


def _on_record_perhaps(named: frozenset[ResourceRef]) -> frozenset[ResourceRef]:
    return at_most(MAX_THINGS, (ref for ref in named if id_flaw(ref.id) is None))


def _was_silent(registration: Registration, known: Known) -> bool:
    server = registration.server
    if server is None or server.resolver is None:
        return False
    return resolver_url(server, server.resolver) in known.unanswered


def _price(registration: Registration) -> Price | None:
    server, tool = registration.server, registration.tool
    return tool.price if tool is not None and server is not None and server.active else None


def _disabled(registration: Registration, clients: Sequence[str]) -> bool:
    tenant = registration.tenant
    active = {client.client_id for client in registration.clients.values() if client.active}
    return tenant is None or not tenant.active or not active.issuperset(clients)


def _argument_objection(
    world: World, caller: Caller, registration: Registration, chain: GrantChain, call: Call
) -> Objection | None:
    """What the arguments that would be sent lack to fit the tool's own input schema and the request that takes them.

    An agent may have been told to hand its credential on as an argument: the signature makes it one.
    """
    server, tool = registration.server, registration.tool
    if server is None or tool is None:
        return None
    arguments = effective_arguments(chain, call)
    if caller.signature is not None and caller.signature in canonical(arguments).decode():
        return Objection("", Reason.ARGUMENT_INVALID, "the arguments hold the credential that the call came with")
    found = world.schemas.objection(tool.input_schema, arguments)
    if found is not None:
        pointer, keyword = found
        detail = f"the tool's input schema refuses {pointer or 'the arguments'} ({keyword})"
        return Objection(pointer=pointer, reason=Reason.ARGUMENT_INVALID, detail=detail)
    misfit = world.upstream.misfit(server.transport, server.endpoint, tool.http, arguments)
    return None if misfit is None else Objection(misfit[0], Reason.ARGUMENT_INVALID, misfit[1])
