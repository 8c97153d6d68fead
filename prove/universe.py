"""Values for the kinds that no solver knows: every way to spell a place, right and wrong, and things on record.

Exhaustive over what is listed here, and silent about the rest: what is called narrower on these grounds is so as far
as this universe shows. Arrays and objects are built around the documents, one item or member varied at a time.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain, product
from typing import Any, Final, TypeAlias

from app.core.resources import ResourceRef, Resources
from prove.documents import (
    CLAUSES,
    SAFE_INTEGER,
    Document,
    constraint_of,
    everything_in,
    kind_of,
    kinds_in,
    scalars_in,
)
from prove.samples import ATTRIBUTES, NETWORKS, ROOTS
from prove.solving import some_text

Allows: TypeAlias = Callable[[Document, Any], bool]
"""Whether a constraint allows a value."""

BINDINGS: Final[dict[str, str | None]] = {"tenantId": "a", "subject": "/data/x", "childRunId": None}
MAX_PARTS: Final = 120
"""Values that are tried at one place inside an array or object."""

MAX_LENGTH: Final = 12

_PLAIN: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    0,
    1,
    0.5,
    -1,
    2**53 - 1,
    "",
    "a",
    "1",
    "c_1",
    "unheard of",
    [],
    {},
)

_BELOW_ROOTS: Final = (
    *("", "/x", "/x/y.txt", "/.x", "/...", "/\uff0e\uff0e", "/a b"),
    *("x", "/", "//x", "/.", "/..", "/../x", "/%2e%2e/x", "/%252e", "\\x", "/x\n", "/x\0"),
)
_PATHS: Final = tuple(root.removesuffix("/") + end for root in (*ROOTS, "/other") for end in _BELOW_ROOTS)

_HOSTS: Final = (
    *("example.com", "api.example.com", "API.example.com", "a.api.example.com", "x.a.api.example.com", "x.example.com"),
    *("evil.com", "api.example.com.evil.com", "notexample.com", "10.0.0.1"),
)
_ODD_HOSTS: Final = (
    *("", "example.com.", ".example.com", "*.example.com", "a_b.example.com", "xn--a.example.com", "ex\u00e4mple.com"),
    *("010.0.0.1", "10.1", "0x7f.1", "[::1]", "::1", "user@example.com", "example.com:443"),
)

_URL_PATHS: Final = ("", "/", "/v1", "/v1/", "/v1/a", "/v1/a/b", "/v1/a/b/c", "/a", "/a/b", "/v10", "/v10/a")
_URL_PARTS: Final = product(("https", "http"), _HOSTS, ("", ":443", ":80", ":8443"), _URL_PATHS, ("", "?x=1"))
_ODD_URLS: Final = (
    *("https://example.com:/", "https://example.com:0443/", "https://example.com/v1/..", "https://example.com/v1//a"),
    *(
        "https://example.com/v1/%2e%2e/x",
        "https://example.com\\@evil.com/",
        "https://u:p@example.com/",
        "HTTPS://evil.com",
    ),
    *("https://example.com/v1#x", "https://example.com /v1", "https://example.com/v1\n", "https://ex%61mple.com/"),
    *(
        "https://example.com?x",
        "https://example.com/v1/%2F",
        "https://example.com/v1;x=1",
        "//example.com",
        "ftp://a.b",
    ),
)
_URLS: Final = tuple(f"{scheme}://{host}{port}{path}{query}" for scheme, host, port, path, query in _URL_PARTS)

_ADDRESSES: Final = (
    *("0.0.0.1", "9.255.255.255", "10.0.0.0", "10.0.0.1", "10.1.0.0", "10.1.1.255", "10.1.2.0", "10.1.2.3", "10.1.2.4"),
    *("10.1.3.0", "10.2.0.0", "11.0.0.0", "192.168.0.1", "192.167.255.255", "255.255.255.255", "010.1.2.3", "10.258"),
    *("::", "::1", "fcff::1", "fd00::1", "fd00:1::1", "fd00:2::1", "fe00::1", "2001:db8::1", "2001:DB8::1"),
    *("::ffff:10.1.2.3", "::10.1.2.3", "fd00::1%eth0", "10.1.2.3/32"),
)


def _on_record() -> Iterator[tuple[str, dict[str, Any]]]:
    """Things of each combination of attributes, some of which are missing."""
    missing = object()
    choices = [(missing, *values, "else") for values in ATTRIBUTES.values()]
    for number, chosen in enumerate(product(*choices)):
        known = zip(ATTRIBUTES, chosen, strict=True)
        yield str(number), {name: value for name, value in known if value is not missing}


DIRECTORY: Final[Resources] = {
    ResourceRef(kind, f"{kind}_{number}"): attributes
    for kind in ("case", "account")
    for number, attributes in _on_record()
} | {ResourceRef("case", "both"): {"region": "eu"}, ResourceRef("account", "both"): {"open": True}}
"""What is on record in this world; no solver's matter."""

_OF_KIND: Final[dict[str, tuple[Any, ...]]] = {
    "path": tuple(dict.fromkeys(_PATHS)),
    "host": (*_HOSTS, *_ODD_HOSTS),
    "cidr": (*_ADDRESSES, *NETWORKS),
    "url": (*_URLS, *_ODD_URLS),
    "resource": (*(ref.id for ref in DIRECTORY), "unheard of"),
}


def bindings_for(child: Document, parent: Document, value: Any) -> Iterator[dict[str, str | None]]:  # noqa: ANN401 - any JSON value
    """Grants to try a value with: one that is as it is and, where something is bound, one that fits the value."""
    yield BINDINGS
    if isinstance(value, str) and "bind" in kinds_in(child, parent):
        yield dict.fromkeys(BINDINGS, value)


def values_for(child: Document, parent: Document, allows: Allows) -> Iterator[Any]:
    """What to try these two with."""
    named = [*_named_in(child), *_named_in(parent)]
    scalars = (*named, *_scalars(frozenset(kinds_in(child, parent))))
    yield from scalars
    for rule in (child, parent):
        yield from _built(constraint_of(rule), scalars, allows)


@cache
def _scalars(kinds: frozenset[str]) -> tuple[Any, ...]:
    return (*chain.from_iterable(_OF_KIND[kind] for kind in sorted(kinds & _OF_KIND.keys())), *_PLAIN)


def _named_in(rule: Document) -> Iterator[Any]:
    """What a document itself names, and what is near to it."""
    yield from scalars_in(rule)
    for part in everything_in(rule):
        kind = kind_of(part)
        yield from _NEAR.get(kind, _near_none)(part)


def _near_none(_part: Document) -> Iterator[Any]:
    return iter(())


def _near_text(part: Document) -> Iterator[Any]:
    for text in (next(iter(part.values())), some_text(part)):
        if text is not None:
            yield from (text, f"{text}x", f"x{text}")


def _near_length(part: Document) -> Iterator[Any]:
    lengths = (part["str"].get("minLength", 0), part["str"].get("maxLength", MAX_LENGTH))
    yield from ("x" * (length + more) for length in lengths for more in (-1, 0, 1))


def _near_int(part: Document) -> Iterator[Any]:
    bounds = (part["int"].get("min", -SAFE_INTEGER), part["int"].get("max", SAFE_INTEGER))
    near = (bound + more for bound in bounds for more in (-1, 0, 1))
    yield from (number for number in near if abs(number) <= SAFE_INTEGER)


def _near_decimal(part: Document) -> Iterator[Any]:
    yield from (bound for bound in (part["decimal"].get("min"), part["decimal"].get("max")) if bound is not None)
    yield from (1, 2.5, "1", "2.5", "2.50", "1.505")


_NEAR: Final[dict[str, Callable[[Document], Iterator[Any]]]] = {
    "prefix": _near_text,
    "suffix": _near_text,
    "glob": _near_text,
    "regex": _near_text,
    "str": _near_length,
    "int": _near_int,
    "decimal": _near_decimal,
}


# --- arrays and objects -----------------------------------------------------------------------------------


def _built(constraint: Document, scalars: Sequence[Any], allows: Allows) -> Iterator[Any]:
    """Arrays and objects that have the shape of what a constraint allows."""
    kind = kind_of(constraint)
    body = constraint[kind]
    if kind in CLAUSES:
        for clause in body:
            yield from _built(clause, scalars, allows)
    elif kind == "list":
        yield from _arrays(body, _inside(body["items"], scalars, allows))
    elif kind in {"containsAll", "subsetOf"}:
        yield from ([*body], body[1:], [*body, *body], [*body, 0.25], [*body, []])
        yield from ([scalar, *body] for scalar in _spread(scalars))
    elif kind == "object":
        yield from _objects(body["fields"], scalars, allows)


def _inside(constraint: Document, scalars: Sequence[Any], allows: Allows) -> list[Any]:
    """Values for one place: some of those that are allowed there, some of the others."""
    every = [*scalars, *_built(constraint, scalars, allows)]
    kept = [value for value in every if allows(constraint, value)]
    return [*_spread(kept), *_spread([value for value in every if value not in kept], MAX_PARTS // 4)]


def _spread(values: Sequence[Any], most: int = MAX_PARTS) -> Sequence[Any]:
    """At most so many of these, from all over."""
    return values[:: 1 + len(values) // most]


def _arrays(body: Document, items: list[Any]) -> Iterator[Any]:
    low = body.get("minLength", 0)
    high = min(body.get("maxLength", MAX_LENGTH), MAX_LENGTH)
    lengths = {low - 1, low, low + 1, high, high + 1} & {*range(MAX_LENGTH + 2)}
    yield from ([item] * length for item in items for length in sorted(lengths))


def _objects(fields: Document, scalars: Sequence[Any], allows: Allows) -> Iterator[Any]:
    given = {name: constraint_of(rule) for name, rule in fields.items() if kind_of(rule) not in {"absent", "bind"}}
    choices = {name: _inside(constraint, scalars, allows) for name, constraint in given.items()}
    bound = {name: BINDINGS[rule["bind"]] for name, rule in fields.items() if "bind" in rule}
    plain = {name: values[0] for name, values in choices.items()} | bound
    yield plain
    yield plain | {"another name": 1}
    for name, values in choices.items():
        yield {other: value for other, value in plain.items() if other != name}
        yield from (plain | {name: value} for value in values)
    optional = {name for name, rule in fields.items() if "optional" in rule}
    yield {name: value for name, value in plain.items() if name not in optional}
    yield from (plain | {name: 1} for name in fields if name not in plain)
