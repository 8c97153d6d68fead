"""The kind for things outside Subgrant: whose they are, the server's own record says and nobody else."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from app.core.kinds.base import Constraint, Objection, Scalar, Site, typed
from app.core.resource_rules import id_flaw
from app.core.resources import Attributes, ResourceRef
from app.core.steps import Steps
from app.core.strict_json import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource(Constraint):
    """The id of a thing of this type that is on record as the tenant's, and has these attributes there."""

    kind = "resource"
    type: str
    where: Mapping[str, Scalar] = field(default_factory=dict)

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        if not isinstance(value, str):
            return at.invalid(f"must be a string, the id of a {self.type}")
        found = at.resources.get(ResourceRef(self.type, value))
        if found is not None and self._fits(found):
            return None
        # One sentence for another tenant's thing, for one with other attributes and for none: nothing to tell apart.
        return at.outside(f"names no {self.type} that the grant reaches")

    def resources(self, value: JsonValue, _steps: Steps, /) -> Iterator[ResourceRef]:
        # What can't be on record is not asked about.
        if isinstance(value, str) and id_flaw(value) is None:
            yield ResourceRef(self.type, value)

    def _fits(self, found: Attributes) -> bool:
        return all(name in found and typed(found[name]) == value for name, value in self.where.items())
