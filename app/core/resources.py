"""Things outside Subgrant that arguments name: whose they are, by the server's own record.

A case, an account, a document: named by type and id, described by attributes. What a caller says of a thing
counts for nothing; what is not on record belongs to nobody.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from app.core.strict_json import JsonScalar


class ResourceRef(NamedTuple):
    """A thing by its type and its id, which is only unique inside its type and tenant."""

    type: str
    id: str


Attributes: TypeAlias = Mapping[str, JsonScalar]

Resources: TypeAlias = Mapping[ResourceRef, Attributes]
"""What was found on record of the things that were asked about: those of the grant's tenant, and no others."""
