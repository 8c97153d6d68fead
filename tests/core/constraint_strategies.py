"""What hypothesis draws for the properties of constraints: documents of every kind, and values that aim at them.

Few words and small numbers, so that constraints and values meet; and the edges where readings part. How many examples
a property is given is said here, too: `PROVE_TIMES` multiplies it for a nightly run (prove/README.md).
"""

import os
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias
from unicodedata import is_normalized

from hypothesis import settings
from hypothesis import strategies as st

from app.core.resources import ResourceRef
from prove.documents import CLAUSES, SAFE_INTEGER, TEXTS, Document, constraint_of, kind_of, kinds_in
from prove.samples import ATTRIBUTES, BINDABLE, GLOBS, NETWORKS, PREFIXES, REGEXES, ROOTS, SUFFIXES, WORDS, spell

Documents: TypeAlias = st.SearchStrategy[Document]
Values: TypeAlias = st.SearchStrategy[Any]
Members: TypeAlias = dict[str, Any]

TIMES: Final = int(os.environ.get("PROVE_TIMES", "1"))
BINDINGS: Final[dict[str, str | None]] = {"tenantId": "t_1", "subject": "/data/x", "childRunId": None}


def examples(number: int) -> settings:
    """How many cases a property gets in `make test`, or so many times as many at night."""
    return settings(max_examples=number * TIMES)


@st.composite
def evenly(draw: st.DrawFn, *strategies: st.SearchStrategy[Any]) -> Any:  # noqa: ANN401 - whatever they draw
    """One of these, each as often as the others: `one_of` takes alternatives apart that are made of alternatives."""
    return draw(strategies[draw(st.integers(0, len(strategies) - 1))])


# --- what is drawn from -----------------------------------------------------------------------------------

UNSTEADY: Final = ("e\u0301", "\u212a", "\u2126", "a\u0301/", "\u1100\u1161")
"""Text that is not in normalisation form C: no kind may look at it."""

texts: st.SearchStrategy[str] = st.one_of(
    st.sampled_from(WORDS), st.sampled_from(WORDS), st.text("ab1./*_- \n\u00e9", max_size=5)
)
integers: st.SearchStrategy[int] = st.one_of(
    st.sampled_from([-SAFE_INTEGER, -1, 0, 1, 2, 5, 9, 10, 50, SAFE_INTEGER - 1, SAFE_INTEGER]), st.integers(-3, 12)
)
numbers: st.SearchStrategy[float] = st.sampled_from([0.5, 1.5, -0.5, 2.25, 0.1, 1e-7, 99.99, 0.001])
scalars: Values = st.one_of(texts, integers, numbers, st.sampled_from([True, False, None]))
several: st.SearchStrategy[list[Any]] = st.lists(scalars, min_size=1, max_size=4)
names: st.SearchStrategy[str] = st.sampled_from(["a", "b", "c", "a/b", "\u00e9", "*b"])
lengths: Final = [0, 1, 2, 3, 5]
IDS: Final = ("c_1", "c_2", "c_42", "a_1", "unheard of")

HOSTS: Final = ("example.com", "api.example.com", "*.example.com", "*.api.example.com", "evil.com", "10.0.0.1", "[::1]")


def _some(among: Sequence[Any], most: int = 3) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(among), min_size=1, max_size=most)


@st.composite
def _bounds(draw: st.DrawFn, least: str, most: str, ends: st.SearchStrategy[int]) -> Document:
    low, high = sorted([draw(ends), draw(ends)])
    return {name: end for name, end in ((least, low), (most, high)) if draw(st.integers(0, 4))}


_sizes: Documents = _bounds("minLength", "maxLength", st.sampled_from(lengths))


@st.composite
def _decimals(draw: st.DrawFn) -> Document:
    scale = draw(st.sampled_from([0, 1, 2, 2, 4, 15]))
    units = st.sampled_from([-SAFE_INTEGER, -150, -1, 0, 1, 99, 100, 150, 9999, SAFE_INTEGER])
    bounds = draw(_bounds("min", "max", units))
    return {name: spell(end, scale) for name, end in bounds.items()} | {"scale": scale}


@st.composite
def _exclusions(draw: st.DrawFn) -> Document:
    by_type: dict[str, Values] = {
        "string": texts,
        "integer": integers,
        "number": integers | numbers,
        "boolean": st.booleans(),
    }
    name = draw(st.sampled_from([*by_type]))
    return {"type": name, "values": draw(st.lists(by_type[name], min_size=1, max_size=3))}


_url_paths: Final = st.sampled_from(["/", "/v1", "/v1/", "/v1/a", "/v10"])
_urls: Documents = st.fixed_dictionaries(
    {"hosts": _some(HOSTS)},
    optional={
        "schemes": _some(["https", "http", "wss"], 2),
        "ports": _some([443, 80, 8443], 2),
        "path": st.builds(lambda word, path: {word: path}, st.sampled_from(["exact", "under"]), _url_paths),
        "query": st.sampled_from(["none", "any"]),
    },
)


@st.composite
def _attributes(draw: st.DrawFn) -> Document:
    chosen = draw(st.lists(st.sampled_from([*ATTRIBUTES]), min_size=1, max_size=2, unique=True))
    return {name: draw(st.sampled_from(ATTRIBUTES[name])) for name in chosen}


_types: Final = st.sampled_from(["case", "account"])
_resources: Values = _types | st.builds(lambda kind, where: {"type": kind, "where": where}, _types, _attributes())

_pieces: Final = st.sampled_from(
    ["a", "b", "c_", "[a-z]", "[0-9]", r"\d", r"\w", ".", "[^/]", r"\.", "(?:ab|a)", "(a|b)", "\u00e9", "[^a-z]", r"\s"]
)
_regexes: st.SearchStrategy[str] = st.one_of(
    st.sampled_from(REGEXES),
    st.lists(
        st.builds(lambda piece, sign: f"(?:{piece}){sign}", _pieces, st.sampled_from(["", "", "*", "+", "?", "{1,3}"])),
        min_size=1,
        max_size=3,
    ).map("".join),
)

_BODIES: Final[dict[str, Values]] = {
    "eq": scalars,
    "oneOf": several,
    "notOneOf": _exclusions(),
    "bool": st.just({}),
    "int": _bounds("min", "max", integers),
    "decimal": _decimals(),
    "str": _sizes,
    "prefix": st.sampled_from(PREFIXES),
    "suffix": st.sampled_from(SUFFIXES),
    "glob": st.sampled_from(GLOBS),
    "regex": _regexes,
    "containsAll": st.lists(scalars, min_size=1, max_size=3),
    "subsetOf": several,
    "path": st.sampled_from(ROOTS).map(lambda root: {"root": root}),
    "host": _some(HOSTS).map(lambda hosts: {"hosts": hosts}),
    "cidr": st.sampled_from(NETWORKS),
    "url": _urls,
    "resource": _resources,
    "any": st.just(True),
}


def of_kind(kind: str) -> Documents:
    """Constraints of one of the kinds that aren't made of others."""
    return _BODIES[kind].map(lambda body: {kind: body})


simple: Documents = st.one_of([of_kind(kind) for kind in _BODIES])
like: Final[dict[str, Documents]] = {
    kind: st.one_of([of_kind(other) for other in group])
    for group in (TEXTS, ("int", "notOneOf"), ("path", "str", "prefix"), ("list",), ("url",), ("resource",))
    for kind in group
    if kind in _BODIES and all(other in _BODIES for other in group)
}
"""For some kinds, constraints that are about the same values."""

_clauses_alike: st.SearchStrategy[list[Document]] = st.sampled_from([*like.values()]).flatmap(
    lambda kinds: st.lists(kinds, min_size=1, max_size=3)
)


def _combined(inner: Documents) -> Documents:
    clauses = evenly(_clauses_alike, st.lists(inner, min_size=1, max_size=3))
    return evenly(
        st.builds(lambda items, sizes: {"list": {"items": items, **sizes}}, inner, _sizes),
        st.dictionaries(names, fields(inner), max_size=3).map(lambda rules: {"object": {"fields": rules}}),
        clauses.map(lambda several: {"allOf": several}),
        clauses.map(lambda several: {"anyOf": several}),
    )


def fields(inner: Documents) -> Documents:
    """The rule of an argument or field that binds nothing."""
    return evenly(inner, inner, inner.map(lambda rule: rule | {"optional": True}), st.just({"absent": True}))


constraints: Documents = st.recursive(simple, _combined, max_leaves=4)
"""Constraints of every kind that may stand anywhere."""

bound: Documents = st.sampled_from(BINDABLE).map(lambda name: {"bind": name})
_bound_fields: Documents = st.dictionaries(names, evenly(fields(simple), bound), min_size=1, max_size=3).map(
    lambda rules: {"object": {"fields": rules}}
)
_free: Documents = fields(constraints)
arguments: Documents = evenly(_free, _free, _free, bound, fields(_bound_fields))
"""The rule of an argument."""

tool_rules: Documents = st.builds(
    lambda rules, star: rules | star,
    st.dictionaries(names, arguments, max_size=3),
    st.sampled_from([{}, {}, {"*": {"any": True}}]),
)
"""The rule of a tool."""


# --- near to another --------------------------------------------------------------------------------------


@st.composite
def near(draw: st.DrawFn, parent: Document) -> Document:
    """A constraint that has something to do with another, so that proofs are not rare."""
    kind = kind_of(parent)
    other = draw(like.get(kind, simple))
    shapes: list[Callable[[], Document]] = [
        lambda: draw(constraints),
        lambda: other,
        lambda: parent,
        lambda: {"allOf": [parent, other]},
        lambda: {"allOf": [other, parent]},
        lambda: {"anyOf": [parent, other]},
        lambda: {"allOf": [{"anyOf": [parent, other]}, other]},
        lambda: _tighter(draw, parent),
        lambda: _tighter(draw, parent),
        lambda: _tighter(draw, parent),
        lambda: {"eq": _scalar_or(draw(values_for(parent)), 1)},
        lambda: {"oneOf": [_scalar_or(draw(values_for(parent)), "a") for _ in range(2)]},
    ]
    return draw(st.sampled_from(shapes))()


def _scalar_or(value: Any, otherwise: Any) -> Any:  # noqa: ANN401 - any JSON value
    steady = not isinstance(value, str) or is_normalized("NFC", value)
    return value if steady and not isinstance(value, list | dict) else otherwise


def _tighter(draw: st.DrawFn, parent: Document) -> Document:
    """The same with something inside it narrowed, or a bound drawn in."""
    kind = kind_of(parent)
    body = parent[kind]
    if kind in CLAUSES:
        place = draw(st.integers(0, len(body) - 1))
        return {kind: [*body[:place], draw(near(body[place])), *body[place + 1 :]]}
    if kind == "list":
        return {kind: body | {"items": draw(near(body["items"]))}}
    if kind == "object" and body["fields"]:
        name = draw(st.sampled_from([*body["fields"]]))
        return {kind: {"fields": body["fields"] | {name: draw(near_rule(body["fields"][name]))}}}
    if kind in {"oneOf", "subsetOf", "containsAll"}:
        fewer = st.lists(st.sampled_from(body), min_size=1, max_size=len(body))
        return {kind: [*body, draw(scalars)] if kind == "containsAll" else draw(fewer)}
    if kind in {"prefix", "suffix"}:
        more = draw(st.sampled_from(["a", "1", "/"]))
        return {kind: body + more if kind == "prefix" else more + body}
    return {kind: _drawn_in(body)} if kind in {"int", "str"} else dict(parent)


def _drawn_in(body: Document) -> Document:
    low, high = ("min", "max") if {"min", "max"} & body.keys() else ("minLength", "maxLength")
    if low not in body or high not in body or body[low] == body[high]:
        return body
    return {low: body[low] + 1, high: body[high]}


@st.composite
def near_rule(draw: st.DrawFn, parent: Document, others: Documents = _free) -> Document:
    """The rule of an argument or field that has something to do with another, now and then one of the others."""
    if {"bind", "absent"} & parent.keys() or "bind" in kinds_in(parent):
        return draw(evenly(st.just(parent), others))
    child = draw(near(constraint_of(parent)))
    choices = [child, child | {"optional": True}, {"absent": True}, constraint_of(parent), parent]
    return draw(st.sampled_from(choices))


@st.composite
def near_tool_rule(draw: st.DrawFn, parent: Document) -> Document:
    """The rule of a tool in which most arguments have something to do with the parent's."""
    named = {name: rule for name, rule in parent.items() if name != "*"}
    child = {name: draw(near_rule(rule, arguments)) if draw(st.booleans()) else rule for name, rule in named.items()}
    more = draw(st.dictionaries(names, arguments, max_size=1))
    star = {"*": {"any": True}} if "*" in parent and draw(st.booleans()) else {}
    return {**more, **child} | star


pairs: st.SearchStrategy[tuple[Document, Document]] = constraints.flatmap(
    lambda parent: st.tuples(near(parent), st.just(parent))
)
chains: st.SearchStrategy[tuple[Document, Document, Document]] = pairs.flatmap(
    lambda pair: st.tuples(near(pair[0]), st.just(pair[0]), st.just(pair[1]))
)
tool_rule_pairs: st.SearchStrategy[tuple[Document, Document]] = tool_rules.flatmap(
    lambda parent: st.tuples(near_tool_rule(parent), st.just(parent))
)


# --- values -----------------------------------------------------------------------------------------------

unsteady: st.SearchStrategy[str] = st.sampled_from(UNSTEADY)
json_values: Values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=4,
)
"""Any JSON, of the same few words."""


POOL: Final[list[Any]] = [
    *("", "a", "ab", "case_1", "1", "1.50", "/data/x", "a.b", "reports/a.pdf", "\u00e9", UNSTEADY[0]),
    *(-1, 0, 1, 5, SAFE_INTEGER, 0.5, 1.5, True, False, None),
    *([], [[]], [1], ["a", "a"], [True], {}, {"a": 1}, {"a": "a", "b": "a"}),
    *("https://example.com/", "example.com", "10.1.2.3"),
]
"""What is tried with every constraint: cheaper than drawing, and a shrunk failure often ends there anyway."""

_aim: Final = st.integers(0, 9)


@st.composite
def values_for(draw: st.DrawFn, rule: Document) -> Any:  # noqa: ANN401 - any JSON value
    """Values that aim at a constraint: what it allows, what is just beyond, and now and then anything."""
    aim = draw(_aim)
    if aim == 9:
        return draw(json_values | unsteady)
    value = draw(_aimed_at(constraint_of(rule)))
    return [value] if aim == 8 else value


def _aimed_at(constraint: Document) -> Values:
    kind = kind_of(constraint)
    return _AIMS[kind](constraint[kind])


def _around(bounds: Sequence[int]) -> Values:
    near_by = [bound + more for bound in bounds for more in (-1, 0, 1)]
    return st.sampled_from([number for number in near_by if abs(number) <= SAFE_INTEGER])


def _integers(body: Document) -> Values:
    low, high = body.get("min", -SAFE_INTEGER), body.get("max", SAFE_INTEGER)
    return _around([low, high, (low + high) // 2]) | st.sampled_from([True, "1", 1.5])


@st.composite
def _amounts(draw: st.DrawFn, body: Document) -> Any:  # noqa: ANN401 - a number or a string
    scale = body["scale"]
    ends = [int(body[end].replace(".", "")) for end in ("min", "max") if end in body] or [0, 150]
    units = draw(_around(ends))
    places = draw(st.integers(0, 15))
    text = spell(units, scale)
    shapes = [text, f"{text}0", f"{text}.0", f"-{text}", f"0{text}", spell(units, min(places, 15)), _number(text)]
    return draw(st.sampled_from(shapes))


def _number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number


def _of_length(body: Document) -> Values:
    low, high = body.get("minLength", 0), min(body.get("maxLength", 6), 6)
    sizes = st.sampled_from([size for size in (low - 1, low, high, high + 1) if size >= 0])
    return sizes.flatmap(lambda size: st.text("ab\u00e9\U0001f600 ", min_size=size, max_size=size))


def _filled(glob: str) -> Values:
    fillings = st.lists(st.sampled_from(["", "a", "ab", "/", "\n", " ", "\x7f", "*", ".pdf"]), min_size=4, max_size=4)
    pieces = glob.split("*")
    return fillings.map(lambda between: "".join(sum(zip(pieces, [*between[: len(pieces) - 1], ""], strict=False), ())))


@lru_cache(maxsize=256)
def _matching(pattern: str) -> Values:
    # Hypothesis writes what Python matches, which is near enough to aim.
    readable = re.sub(r"\\x\{([0-9A-F]+)\}", lambda found: f"\\U{int(found[1], 16):08x}", pattern)
    matching = st.from_regex(re.compile(readable, re.ASCII), fullmatch=True)
    return matching | st.builds(lambda text, more: text + more, matching, st.sampled_from(["a", "\n", "/", "9"]))


_BELOW: Final = ("", "/x", "/x/y.txt", "/..x", "/.x", "x", "/", "//x", "/.", "/..", "/%2e", "\\x", "/\n", "/\uff0e")


def _paths(body: Document) -> Values:
    roots = st.sampled_from([body["root"], *ROOTS[:4]])
    return st.builds(lambda root, end: root.removesuffix("/") + end, roots, st.sampled_from(_BELOW))


def _host_names(body: Document) -> Values:
    prefixes = st.sampled_from(["", "", "x", "a.b", "A", "xn--a", "x_y", "-"])
    odd = st.sampled_from(["example.com.", "010.0.0.1", "10.1", "::1", "a" * 64 + ".example.com", "ex\u00e4mple.com"])
    return st.builds(_host, st.sampled_from([*body["hosts"], *HOSTS[:3]]), prefixes, st.booleans()) | odd


def _host(pattern: str, below: str, shouted: bool) -> str:
    name = pattern.replace("*", below or "www") if "*" in pattern else f"{below}.{pattern}".removeprefix(".")
    return name.upper() if shouted else name


def _addresses(network: str) -> Values:
    inside = network.partition("/")[0]
    others = ["10.1.2.3", "10.0.0.0", "11.0.0.0", "fd00::1", "::1", "::", "::ffff:10.1.2.3", "FD00::1", "10.1", network]
    return st.sampled_from([inside, inside, *others])


def _addressed(body: Document) -> Values:
    path = next(iter(body.get("path", {"under": "/v1"}).values()))
    return st.builds(
        lambda scheme, host, port, path, query: f"{scheme}://{host}{port}{path}{query}",
        st.sampled_from([*body.get("schemes", ["https"]), "https", "HTTPS", "ftp"]),
        _host_names(body),
        st.sampled_from(["", "", ":443", ":80", ":8443", ":", ":0443"]),
        st.sampled_from(["", "/", path, path, *(path + end for end in ("/x", "x", "/..", "/%2e%2e/x", "//x", ";x"))]),
        st.sampled_from(["", "", "?x=1", "?", "?'", "#x"]),
    )


def _lists(body: Document) -> Values:
    low, high = body.get("minLength", 0), min(body.get("maxLength", 4), 4)
    return st.lists(values_for(body["items"]), min_size=max(low - 1, 0), max_size=max(low, high) + 1)


@st.composite
def _objects(draw: st.DrawFn, body: Document) -> Members:
    return draw(members_for(body["fields"], always=draw(st.booleans())))


@st.composite
def members_for(draw: st.DrawFn, rules: Document, *, always: bool) -> Members:
    """Members that aim at these rules; `always` where all of them are given, and nothing else."""
    given: Members = {}
    for name, rule in rules.items():
        if name == "*" or ("absent" in rule and (always or draw(st.integers(0, 3)))):
            continue
        if (always and "optional" not in rule) or draw(st.booleans()):
            given[name] = draw(values_for(rule))
    if not always and not draw(st.integers(0, 3)):
        given[draw(names)] = draw(json_values)
    return given


def _excluded(body: Document) -> Values:
    others: dict[str, Values] = {"string": texts, "boolean": st.booleans()}
    return evenly(st.sampled_from(body["values"]), others.get(body["type"], integers | numbers))


def _required(values: list[Any]) -> Values:
    return st.builds(
        lambda more, kept: [*more, *kept], st.lists(scalars, max_size=2), st.sampled_from([values, values, values[1:]])
    )


def _bound_values(name: str) -> Values:
    return st.sampled_from([BINDINGS[name], BINDINGS[name], "t_1", "t_2", None])


_AIMS: Final[dict[str, Callable[[Any], Values]]] = {
    "any": lambda _: json_values,
    "absent": lambda _: json_values,
    "bind": _bound_values,
    "eq": st.just,
    "oneOf": st.sampled_from,
    "notOneOf": _excluded,
    "bool": lambda _: st.sampled_from([True, False, 0, 1, "true"]),
    "int": _integers,
    "decimal": _amounts,
    "str": _of_length,
    "prefix": lambda prefix: texts.map(lambda end: prefix + end) | st.sampled_from([prefix[:-1], f" {prefix}"]),
    "suffix": lambda suffix: texts.map(lambda start: start + suffix) | st.sampled_from([suffix[1:], f"{suffix}\n"]),
    "glob": _filled,
    "regex": _matching,
    "containsAll": _required,
    "subsetOf": lambda values: st.lists(evenly(*[st.sampled_from(values)] * 5, scalars), max_size=4),
    "path": _paths,
    "host": _host_names,
    "cidr": _addresses,
    "url": _addressed,
    "resource": lambda _: st.sampled_from(IDS),
    "list": _lists,
    "object": _objects,
    "allOf": lambda clauses: st.one_of([*map(_aimed_at, clauses)]),
    "anyOf": lambda clauses: st.one_of([*map(_aimed_at, clauses)]),
}


# --- what is on record ------------------------------------------------------------------------------------

_record: Documents = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from([*values, "else"]) for name, values in ATTRIBUTES.items()}
)
directories: st.SearchStrategy[dict[ResourceRef, Document]] = st.dictionaries(
    st.builds(ResourceRef, _types, st.sampled_from(IDS)), _record, max_size=6
)
"""Things on record, with whatever attributes."""

_things: Documents = st.one_of(
    of_kind("resource"),
    of_kind("resource"),
    st.sampled_from(IDS).map(lambda known: {"eq": known}),
    st.lists(st.sampled_from(IDS), min_size=1, max_size=3).map(lambda known: {"oneOf": known}),
    st.builds(lambda thing, known: {"allOf": [thing, {"eq": known}]}, of_kind("resource"), st.sampled_from(IDS)),
    of_kind("str"),
    of_kind("prefix"),
)


def _around_things(inner: Documents) -> Documents:
    clauses = st.lists(inner, min_size=1, max_size=2)
    return evenly(
        st.builds(lambda items, sizes: {"list": {"items": items, **sizes}}, inner, _sizes),
        inner.map(lambda rule: {"object": {"fields": {"a": rule}}}),
        clauses.map(lambda several: {"allOf": several}),
        clauses.map(lambda several: {"anyOf": several}),
    )


_about_things: Documents = st.recursive(_things, _around_things, max_leaves=3)
resourceful_pairs: st.SearchStrategy[tuple[Document, Document]] = _about_things.flatmap(
    lambda parent: st.tuples(evenly(_about_things, near(parent)), st.just(parent))
)
"""A child and a parent that are about things on record."""
