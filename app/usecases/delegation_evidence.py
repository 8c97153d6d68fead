"""What the audit log keeps of delegation: who gave what to whom, and what was refused.

Constraints may hold argument values, so the log has their keyed digest and the names of the tools; the grant
itself, which has them in full, stays in the store.
"""

from dataclasses import replace

from app.core.audit import RecordType
from app.core.budget import ucents_to_cents
from app.core.grant import ClientId, Grant, TenantId, render_grant, spell_tool
from app.core.strict_json import JsonObject, JsonValue, canonical
from app.ports import Transaction
from app.usecases.failures import Denied
from app.usecases.prove_identity import Proven
from app.usecases.world import World, digest, evidence


def grant_refs(grant: Grant) -> JsonObject:
    """The members by which every record names a grant, so that one search finds all of its life."""
    return {
        "grantId": grant.grant_id,
        "parentGrantId": grant.parent_grant_id,
        "rootGrantId": grant.root_grant_id,
        "depth": grant.depth,
        "runId": grant.child_run_id,
        "subject": grant.subject,
        "actor": grant.actor,
        "policyVersion": grant.policy_version,
    }


def proof_refs(subject: Proven | None, actor: Proven | None = None) -> JsonObject:
    """The tokens of other issuers that proved for whom something is issued, and who acts with it."""
    proofs = {"provenBy": subject, "actorProvenBy": actor}
    return {name: proven.reference for name, proven in proofs.items() if proven is not None}


def creation_events(
    world: World, client_id: ClientId, grant: Grant, proof: JsonObject | None = None
) -> list[JsonObject]:
    """That a delegation was made, and its scope."""
    now = world.clock()
    refs = grant_refs(grant)
    created: JsonObject = {"clientId": client_id, "holder": grant.holder, "issuedBy": grant.issued_by}
    created |= ({"standing": True} if grant.standing else {}) | (proof or {})
    return [
        evidence(RecordType.DELEGATION_CREATED, now, refs | created),
        evidence(RecordType.DELEGATION_SCOPE, now, refs | {"clientId": client_id} | _scope(world, grant)),
    ]


def exchange_event(
    world: World, client_id: ClientId, grant: Grant, issued: str, token_id: str, proof: JsonObject | None = None
) -> JsonObject:
    """That a token or grant was exchanged for a narrower one."""
    members: JsonObject = {
        "clientId": client_id,
        "issuedTokenType": issued,
        "tokenId": token_id,
        "keyThumbprint": grant.key_thumbprint,
    }
    return evidence(RecordType.DELEGATION_EXCHANGED, world.clock(), grant_refs(grant) | members | (proof or {}))


def _scope(world: World, grant: Grant) -> JsonObject:
    document = render_grant(grant)
    shown: tuple[str, ...] = ("audience", "allowedTools", "maxToolCalls", "notBefore", "expiresAt")
    scope = {name: document[name] for name in (*shown, "mayRedelegate", "maxDepth")}
    constraints: JsonValue = document["resourceConstraints"]
    projected: list[JsonValue] = [*sorted(spell_tool(grant.audience, ref) for ref in grant.projections)]
    return scope | {
        "maxSpendCents": ucents_to_cents(grant.limit.spend_ucents),
        "constraintsDigest": digest(world, grant.tenant_id, canonical(constraints)),
        **({"projectedTools": projected} if projected else {}),
    }


async def record_refusal(
    tx: Transaction,
    world: World,
    client_id: ClientId,
    tenant_id: TenantId,
    denied: Denied,
    parent: Grant | None = None,
    through: ClientId | None = None,
) -> Denied:
    """Append the refusal of a delegation; the denial comes back with its decision id."""
    decision_id = world.new_id("dec")
    members: JsonObject = {
        "clientId": client_id,
        "through": through,
        "decision": "deny",
        "reason": denied.reason.value,
        # Only which member it was: what stands below is named by the caller, and so may be anything.
        "pointer": None if denied.pointer is None else "/".join(denied.pointer.split("/")[:2]),
        "decisionId": decision_id,
    }
    refs = {} if parent is None else grant_refs(parent)
    await tx.audit.append(tenant_id, [evidence(RecordType.DELEGATION_REFUSED, world.clock(), refs | members)])
    return replace(denied, decision_id=decision_id)


async def record_refusal_alone(
    world: World,
    client_id: ClientId,
    tenant_id: TenantId,
    denied: Denied,
    through: ClientId | None = None,
    parent: Grant | None = None,
) -> Denied:
    """The same for what was refused outside of any transaction, or in one that is taken back."""
    async with world.store.write() as tx:
        refused = await record_refusal(tx, world, client_id, tenant_id, denied, parent, through)
        await tx.commit()
    return refused
