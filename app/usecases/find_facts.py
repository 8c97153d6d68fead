"""Find out what a decision needs and the store does not hold: what a tool server says, a policy's verdict.

None of it is asked for inside a transaction, which would hold locks while others think. So a decision says what it
lacks (`Wanting`), its transaction ends without a trace, the facts are gathered, and it is tried again: it reads
everything anew, and takes a fact only for exactly what it asks about then.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar
from urllib.parse import urlsplit

from app.core.decision import Offer
from app.core.grant import POLICY_V0, TenantId, ToolName
from app.core.registry import Registration, Resolver, ToolServer, Transport
from app.core.resources import Attributes, ResourceRef, Resources
from app.ports import PolicyAnswer, PolicyQuestion, ResolveRequest, StoreUnavailable, Transaction, UpstreamFailed
from app.usecases.check_definition import Unanswered, check_definition
from app.usecases.tool_credential import credential_headers
from app.usecases.world import World

T = TypeVar("T")

MAX_ROUNDS = 6
"""How often a decision may find that what it knows is not what it needs any more."""

MAX_RESOLVER_SECONDS = 5.0
MISSING_VERSION = "the version is missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a version of a tenant's policy says to a question."""

    version: str
    question: PolicyQuestion
    answer: PolicyAnswer

    def is_about(self, version: str, question: PolicyQuestion) -> bool:
        """Whether it answers the same question, though a moment ago."""
        return self.version == version and replace(self.question, now=question.now) == question


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What was found out so far. A thing that its tool server does not have on record is None.

    Tool servers are known by the URL of their resolver: what another one said is no answer. What they offer is known
    by their whole registration, as the digest of the tool's definition, None where there is no such tool any more;
    `silent` are those that did not say.
    """

    things: Mapping[tuple[str, ResourceRef], Attributes | None] = field(default_factory=dict)
    unanswered: frozenset[str] = frozenset()
    verdicts: Sequence[Verdict] = ()
    offers: Mapping[tuple[ToolServer, ToolName], str | None] = field(default_factory=dict)
    silent: frozenset[ToolServer] = frozenset()

    @property
    def of_tools(self) -> "Known":
        """What tool servers offer, or did not say: enough for all that one request asks about."""
        return Known(offers=self.offers, silent=self.silent)


class Wanting(Exception):
    """A decision lacks facts. Leaving its transaction by this changes nothing."""

    def __init__(
        self,
        tenant_id: TenantId,
        *,
        things: Iterable[tuple[ToolServer, Collection[ResourceRef]]] = (),
        questions: Iterable[tuple[str, PolicyQuestion]] = (),
        offers: Iterable[tuple[ToolServer, ToolName]] = (),
    ) -> None:
        super().__init__("facts are wanting")
        self.tenant_id = tenant_id
        self.things = tuple(things)
        self.questions = tuple(questions)
        self.offers = tuple(offers)


async def with_facts(world: World, attempt: Callable[[Known], Awaitable[T]], known: Known | None = None) -> T:
    """What the attempt comes to once it has the facts it needs. Raises StoreUnavailable where they never hold still."""
    known = known or Known()
    for _ in range(MAX_ROUNDS):
        try:
            return await attempt(known)
        except Wanting as wanting:
            known = await _found_out(world, known, wanting)
    raise StoreUnavailable("what a decision rests on changes faster than it can be made")


async def _found_out(world: World, known: Known, wanting: Wanting) -> Known:
    for server, refs in wanting.things:
        known = await _asked_resolver(world, known, server, refs)
    if wanting.questions:
        known = replace(known, verdicts=await _asked_policies(world, wanting.tenant_id, wanting.questions))
    for server, tool in wanting.offers:
        known = await _asked_for_tool(world, known, server, tool)
    return known


# --- whose things are --------------------------------------------------------------------------------------


async def resources_for(
    tx: Transaction, known: Known, tenant_id: TenantId, server: ToolServer | None, refs: Collection[ResourceRef]
) -> Resources:
    """What is on record of these things for calls to a tool server. Raises Wanting for what only that server knows."""
    if server is None or server.resolver is None:
        return await tx.directory.look_up(tenant_id, refs) if refs else {}
    url, types = resolver_url(server, server.resolver), server.resolver.types
    own = [ref for ref in refs if ref.type not in types]
    elsewhere = [ref for ref in refs if ref.type in types]
    found = await tx.directory.look_up(tenant_id, own) if own else {}
    if not all((url, ref) in known.things for ref in elsewhere):
        raise Wanting(tenant_id, things=[(server, elsewhere)])
    there = {ref: known.things[url, ref] for ref in elsewhere}
    return {**found, **{ref: attributes for ref, attributes in there.items() if attributes is not None}}


def resolver_url(server: ToolServer, resolver: Resolver) -> str:
    """Where a tool server is asked whose its things are."""
    origin = urlsplit(server.endpoint)
    return f"{origin.scheme}://{origin.netloc}{resolver.path}"


async def _asked_resolver(world: World, known: Known, server: ToolServer, refs: Collection[ResourceRef]) -> Known:
    """What a tool server says of its things. Where it does not say, they belong to nobody."""
    assert server.resolver is not None, "only a tool server with a resolver is asked"
    url = resolver_url(server, server.resolver)
    found, unanswered = await _resolved(world, server, url, server.resolver.cache_seconds, refs)
    things = {(url, ref): found.get(ref) for ref in refs}
    silent = {url} if unanswered else set[str]()
    return replace(known, things={**known.things, **things}, unanswered=known.unanswered | silent)


async def _resolved(
    world: World, server: ToolServer, url: str, seconds: float, refs: Collection[ResourceRef]
) -> tuple[Resources, bool]:
    """What is known of the things, and whether the tool server did not say the rest."""
    now = world.clock()
    remembered = {ref: world.resolved.get((server.tenant_id, url, ref), now, seconds) for ref in refs}
    missing = tuple(sorted(ref for ref, entry in remembered.items() if entry is None))
    entries = {ref: entry.attributes for ref, entry in remembered.items() if entry is not None}
    found = {ref: attributes for ref, attributes in entries.items() if attributes is not None}
    if not missing:
        return found, False
    request = ResolveRequest(
        endpoint=url,
        tenant_id=server.tenant_id,
        refs=missing,
        headers=credential_headers(world, server, {"tenant_id": server.tenant_id}),
        timeout_seconds=min(server.timeout_seconds, MAX_RESOLVER_SECONDS),
        max_response_bytes=server.max_response_bytes,
    )
    try:
        answer = await world.upstream.resolve(request)
    except UpstreamFailed:
        return found, True
    for ref in missing:
        world.resolved.put((server.tenant_id, url, ref), answer.get(ref), now)
    return {**found, **answer}, False


# --- what a tool is ----------------------------------------------------------------------------------------


def offer_for(world: World, known: Known, registration: Registration) -> Offer:
    """What the tool server offers of the tool. A plain HTTP server has no list of its own: what was declared holds."""
    server, tool = registration.server, registration.tool
    if server is None or tool is None:
        return Offer.UNKNOWN
    if server.transport is Transport.HTTP:
        return Offer.AS_PINNED
    if tool.pending is not None:
        return Offer.CHANGED
    digest, asked = tool.pin_digest, (server, tool.name)
    if asked in known.offers:
        return Offer.AS_PINNED if known.offers[asked] == digest else Offer.CHANGED
    is_confirmed = world.offers.is_confirmed(server, tool.name, digest, world.clock())
    return Offer.AS_PINNED if is_confirmed else Offer.UNKNOWN


def offer_wanted(known: Known, registration: Registration) -> Wanting | None:
    """The question to a tool server that did not say yet whether the tool is as it was pinned."""
    server, tool = registration.server, registration.tool
    if server is None or tool is None or server in known.silent:
        return None
    return Wanting(server.tenant_id, offers=[(server, tool.name)])


async def _asked_for_tool(world: World, known: Known, server: ToolServer, tool: ToolName) -> Known:
    """Whether the tool server still offers the tool as it was pinned. Where it does not say, nobody calls it."""
    try:
        digest = await check_definition(world, server, tool)
    except Unanswered:
        return replace(known, silent=known.silent | {server})
    return replace(known, offers={**known.offers, (server, tool): digest})


# --- what policies say -------------------------------------------------------------------------------------


def verdicts_on(
    known: Known, tenant_id: TenantId, versions: Collection[str], questions: Sequence[PolicyQuestion]
) -> list[Verdict]:
    """Every version's answer to every question. Raises Wanting where one has not been asked."""
    asked = [(version, question) for version in sorted(versions) if version != POLICY_V0 for question in questions]
    found = [
        next((verdict for verdict in known.verdicts if verdict.is_about(version, question)), None)
        for version, question in asked
    ]
    if None in found:
        raise Wanting(tenant_id, questions=asked)
    return [verdict for verdict in found if verdict is not None]


async def _asked_policies(
    world: World, tenant_id: TenantId, questions: Iterable[tuple[str, PolicyQuestion]]
) -> list[Verdict]:
    asked = list(questions)
    async with world.store.read() as tx:
        policies = {version: await tx.policies.policy(tenant_id, version) for version in {one for one, _ in asked}}

    async def verdict(version: str, question: PolicyQuestion) -> Verdict:
        policy = policies[version]
        answer = PolicyAnswer(permitted=False, errors=(MISSING_VERSION,))
        if policy is not None:
            async with world.policy_shares.share(tenant_id):
                answer = await world.policies.answer(policy.text, question)
        return Verdict(version=version, question=question, answer=answer)

    # One after the other: a call takes no more of the engine than one place.
    return [await verdict(version, question) for version, question in asked]
