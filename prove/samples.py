"""Constraints of every kind, as people write them and as nobody would: aimed at where readings part.

Few words, so that what is drawn twice has something to do with each other. Among them are the language's own
delimiters, metacharacters that stand for themselves, numbers in quotes, look-alikes, the largest integers.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, TypeVar

from prove.documents import ARRAYS, CLAUSES, FINITE, GIVEN, NUMBERS, PLACES, SAFE_INTEGER, TEXTS, Document

T = TypeVar("T")

WORDS: Final = (
    *("a", "ab", "abc", "b", "c_", "c_1", "c_42", "case_", "case_1", "case_17", "a b", " a", "a ", "A", "1", "1.50"),
    *("true", "null", "", "reports/a.pdf", "reports/", ".pdf", "x.tar.gz", "/data", "/data/x", "/database", "/data/.."),
    *("a*b", "a.b", "[a]", "a,b", '["a"]', "a|b", "\\", "a\nb", "\u00e9", "\u0430", "\uff0e\uff0e", "\U0001f600"),
)
INTEGERS: Final = (-SAFE_INTEGER, -10, -1, 0, 1, 2, 3, 5, 9, 10, 50, 5000, SAFE_INTEGER - 1, SAFE_INTEGER)
NUMBERS_BETWEEN: Final = (0.5, 1.5, -0.5, 2.25, 9.99)
OTHERS: Final = (True, False, None)
PREFIXES: Final = ("a", "ab", "c_", "case_", "case_1", "reports/", "/data", "a*", " ", "1", "\u00e9", "\U0001f600")
SUFFIXES: Final = (".gz", ".tar.gz", ".pdf", "b", "ab", "/a", "*", " ", "1", "\u00e9")
GLOBS: Final = (
    *("*", "a*", "*b", "a*b", "*.pdf", "reports/*", "reports/*.pdf", "reports/*/*.pdf", "*/*", "case_*", "c_*"),
    *("[a]*", "a?*", "\\*", "x*y*z", "\u00e9*", "/data/*"),
)
ATOMS: Final = (
    *("a", "b", "c_", "case_", "[a-z]", "[a-f]", "[0-9]", r"\d", r"\w", ".", "[^/]", r"[^\x00-\x1f]", r"\.", r"\*"),
    *("(?:ab|a)", "(a|b)", "[a-c_]", "\u00e9", r"[^a-z]", "reports/", r"[\x00-\x{10FFFF}]", " ", r"\s", r"[\w.-]"),
)
SIGNS: Final = ("", "", "", "*", "+", "?", "{2}", "{1,3}", "{0,8}", "{2,}")
REGEXES: Final = (
    *(r"c_[0-9]{1,8}", r"case_\d+", r"[a-z]+", r"\w+", r".*", r"[^/]*\.pdf", r"(a|b)*", r"(ab|a)*", r"(?:GET|POST)"),
    *(r"[A-Z]{2,3}-\d{4}", r"a?", r"reports/[^/]+\.pdf", r"[^\x00-\x1f]*", r"\d{1,3}(?:\.\d{1,3}){3}"),
)
ROOTS: Final = ("/", "/data", "/data/x", "/data/x/y", "/database", "/data-old", "/Data", "/\u00e9", "/data/.x")
HOSTS: Final = (
    *("example.com", "api.example.com", "a.api.example.com", "*.example.com", "*.api.example.com"),
    *("evil.com", "api.example.com.evil.com", "10.0.0.1"),
)
NETWORKS: Final = (
    *("0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3/32", "192.168.0.0/16"),
    *("::/0", "fd00::/8", "fd00:1::/32", "2001:db8::/32"),
)
URL_PATHS: Final = ("/", "/v1", "/v1/a", "/v1/a/b", "/v10")
SCHEMES: Final = (["https"], ["http"], ["http", "https"])
PORTS: Final = ([443], [80], [8443], [443, 8443], [80, 443])
ATTRIBUTES: Final[dict[str, tuple[Any, ...]]] = {"region": ("eu", "us"), "open": (True, 1)}
BINDABLE: Final = ("tenantId", "subject", "childRunId")
NAMES: Final = ("a", "b", "c")
SIZES: Final = (0, 1, 2, 3, 5, 9)
LENGTHS: Final = (0, 1, 2, 3, 5, 9, 20, 200)

SIMPLE: Final = (*FINITE, "notOneOf", *NUMBERS, *TEXTS)
MAX_DEPTH: Final = 2


class Sampler:
    """Draws constraints; the same ones for the same chance."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance

    def pick(self, among: Sequence[T]) -> T:
        return among[int(self.chance.random() * len(among))]

    def often(self, share: float) -> bool:
        return self.chance.random() < share

    def some(self, among: Sequence[T], most: int) -> list[T]:
        """One to so many of these, none of them twice."""
        return self.chance.sample([*among], self.chance.randint(1, min(most, len(among))))

    # --- values and bounds

    def scalar(self) -> Any:  # noqa: ANN401 - any JSON scalar
        return self.pick(self.pick((WORDS, WORDS, INTEGERS, INTEGERS, NUMBERS_BETWEEN, OTHERS)))

    def scalars(self, most: int) -> list[Any]:
        found = {(type(scalar).__name__, scalar): scalar for scalar in (self.scalar() for _ in range(most))}
        return [*found.values()][: self.chance.randint(1, most)]

    def bounds(self, low: str, high: str, among: Sequence[int]) -> Document:
        """Two bounds in order, of which either may be left out."""
        ends = sorted([self.pick(among), self.pick(among)])
        return {name: end for name, end in zip((low, high), ends, strict=True) if self.often(0.8)}

    # --- kinds

    def rule(self, label: str) -> Document:
        """The rule of an argument, by how it stands in the table."""
        if label == "optional":
            return self.constraint(self.pick(SIMPLE), 1) | {"optional": True}
        return self.constraint(label, 0)

    def constraint(self, kind: str, depth: int) -> Document:
        bodies: dict[str, Callable[[], Any]] = {
            "any": lambda: True,
            "absent": lambda: True,
            "bind": lambda: self.pick(BINDABLE),
            "eq": self.scalar,
            "oneOf": lambda: self.scalars(4),
            "bool": dict,
            "notOneOf": self._exclusions,
            "int": lambda: self.bounds("min", "max", INTEGERS),
            "decimal": self._decimal,
            "str": lambda: self.bounds("minLength", "maxLength", LENGTHS),
            "prefix": lambda: self.pick(PREFIXES),
            "suffix": lambda: self.pick(SUFFIXES),
            "glob": lambda: self.pick(GLOBS),
            "regex": self._regex,
            "path": lambda: {"root": self.pick(ROOTS)},
            "host": lambda: {"hosts": self.some(HOSTS, 3)},
            "cidr": lambda: self.pick(NETWORKS),
            "url": self._url,
            "resource": self._resource,
            "containsAll": lambda: self.scalars(3),
            "subsetOf": lambda: self.scalars(4),
            "list": lambda: {"items": self.part(depth), **self.bounds("minLength", "maxLength", SIZES)},
            "object": lambda: {"fields": self._fields(depth)},
            "allOf": lambda: self._clauses(depth),
            "anyOf": lambda: [self.part(depth) for _ in range(self.chance.randint(1, 3))],
        }
        return {kind: bodies[kind]()}

    def part(self, depth: int) -> Document:
        """A constraint inside another."""
        deeper = (*ARRAYS, "object", *CLAUSES) if depth + 1 < MAX_DEPTH and self.often(0.2) else ()
        places = PLACES if self.often(0.1) else ()
        return self.constraint(self.pick(deeper or places or (*SIMPLE, "any")), depth + 1)

    def _clauses(self, depth: int) -> list[Document]:
        # Clauses about different types exclude one another, which nobody writes: most are about one.
        if self.often(0.8):
            kinds = self.pick((TEXTS, TEXTS, NUMBERS[:1], (*TEXTS, "notOneOf")))
            return [self.constraint(self.pick(kinds), depth + 1) for _ in range(self.chance.randint(1, 3))]
        return [self.part(depth) for _ in range(self.chance.randint(1, 2))]

    def _fields(self, depth: int) -> Document:
        return {name: self._field(depth) for name in self.some(NAMES, 3)} if self.often(0.95) else {}

    def _field(self, depth: int) -> Document:
        if self.often(0.1):
            return {"absent": True}
        if depth == 0 and self.often(0.1):
            return {"bind": self.pick(BINDABLE)}
        return self.part(depth) | ({"optional": True} if self.often(0.3) else {})

    def _exclusions(self) -> Document:
        by_type: dict[str, Sequence[Any]] = {
            "string": WORDS,
            "integer": INTEGERS,
            "number": (*INTEGERS, *NUMBERS_BETWEEN),
            "boolean": (True, False),
        }
        name = self.pick((*by_type, "string"))
        # Without both of its values nothing would be left of a boolean, which nobody means.
        return {"type": name, "values": self.some(by_type[name], 1 if name == "boolean" else 3)}

    def _decimal(self) -> Document:
        scale = self.pick((0, 1, 2, 2, 2, 4))
        units = [-(10**6), -150, -1, 0, 1, 5, 99, 100, 150, 250, 9999, 10**6]
        bounds = {name: spell(end, scale) for name, end in self.bounds("min", "max", units).items()}
        return bounds | {"scale": scale}

    def _regex(self) -> str:
        if self.often(0.5):
            return self.pick(REGEXES)
        rows = ["".join(self._piece() for _ in range(self.chance.randint(1, 3))) for _ in range(self.pick((1, 1, 2)))]
        return "|".join(rows)

    def _piece(self) -> str:
        atom, sign = self.pick(ATOMS), self.pick(SIGNS)
        single = len(atom) == 1 or atom[0] in "[(\\"
        return f"{atom}{sign}" if single or not sign else f"(?:{atom}){sign}"

    def _url(self) -> Document:
        paths = [{self.pick(("exact", "under")): self.pick(URL_PATHS)}]
        rarely: dict[str, Sequence[Any]] = {
            "schemes": SCHEMES,
            "ports": PORTS,
            "path": paths,
            "query": ("none", "any"),
        }
        said = {name: self.pick(among) for name, among in rarely.items() if self.often(0.4)}
        return {"hosts": self.some(HOSTS, 2), **said}

    def _resource(self) -> Any:  # noqa: ANN401 - a name or a document
        name = self.pick(("case", "account"))
        if self.often(0.4):
            return name
        where = {attribute: self.pick(ATTRIBUTES[attribute]) for attribute in self.some([*ATTRIBUTES], 2)}
        return {"type": name, "where": where}


def spell(units: int, scale: int) -> str:
    """So many units of the last digit, with exactly so many digits after the point."""
    digits = f"{abs(units):0{scale + 1}d}"
    point = len(digits) - scale
    return ("-" if units < 0 else "") + digits[:point] + (f".{digits[point:]}" if scale else "")


LABELS: Final = (*SIMPLE, "any", *ARRAYS, "object", *CLAUSES, *GIVEN, *PLACES)
"""What pairs are drawn of."""
