"""What people do to a constraint to narrow it.

`Narrowing` tightens: a bound, a list, a prefix, a clause more, an argument made required, a few values instead of many.
Whether what comes out is narrower is for the oracles to say: nearly always, not always.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from prove.documents import CLAUSES, SAFE_INTEGER, TEXTS, Document, constraint_of, kind_of, kinds_in
from prove.samples import HOSTS, LENGTHS, NAMES, PREFIXES, ROOTS, SIMPLE, WORDS, Sampler, spell

MAX_TRIES: Final = 8

_TOKEN: Final = re.compile(r"\\x\{[0-9A-F]+\}|\\.|\[(?:\\.|[^\]])+\]|\{\d+(?:,\d*)?\}|\(\?:|.", re.DOTALL)
_TIGHTER: Final[dict[str, tuple[str, ...]]] = {
    "*": ("+", "{0,3}", "{1,2}", "?"),
    "+": ("{1,4}", "{2}"),
    "?": ("",),
    "{1,3}": ("{2}", "{1,2}", "{3}"),
    "{0,8}": ("{1,8}", "{0,7}", "?"),
    "{1,8}": ("{1,4}", "{8}"),
    "{2,}": ("{2,4}", "{3,}"),
    "{2,3}": ("{2}",),
    r"\d": ("[0-4]", "7"),
    r"\w": (r"\d", "[a-z]", "_"),
    ".": ("[a-z]", r"\w", "[^/]"),
    "[a-z]": ("[a-f]", "a"),
    "[0-9]": (r"\d", "[1-9]"),
    "[^/]": ("[a-z]", r"[\w.-]", "[^/.]"),
    r"[^\x00-\x1f]": ("[ -~]", r"\w"),
    r"[\x00-\x{10FFFF}]": (".",),
    "(": ("(?:",),
}
"""Pieces of a regular expression, and what somebody might put in their place."""


class Narrowing:
    """Makes children of parents."""

    def __init__(self, draw: Sampler) -> None:
        self._draw = draw
        self._by_kind: dict[str, tuple[Callable[[Any], Document | None], ...]] = {
            "any": (lambda _: draw.constraint(draw.pick((*SIMPLE, "list", "object")), 1),),
            "oneOf": (self._fewer("oneOf"),),
            "subsetOf": (self._fewer("subsetOf"), self._one_value_lists),
            "containsAll": (self._more_required,),
            "bool": (lambda _: {"eq": draw.pick((True, False))},),
            "notOneOf": (self._more_excluded, self._of_the_type),
            "int": (self._tighter_int, self._tighter_int, self._numbers),
            "decimal": (self._tighter_decimal, self._tighter_decimal, self._amounts),
            "str": (self._tighter_str, self._tighter_str, lambda _: {"prefix": draw.pick(PREFIXES)}, self._spelt_str),
            "prefix": (self._longer_prefix, self._longer_prefix, self._glob_after, self._regex_after),
            "suffix": (self._longer_suffix, self._longer_suffix, self._glob_before),
            "glob": (self._finer_glob, self._finer_glob),
            "regex": (self._finer_regex, self._finer_regex, self._finer_regex),
            "path": (self._deeper_path,),
            "host": (self._fewer_hosts,),
            "cidr": (self._smaller_network,),
            "url": (self._stricter_url,),
            "resource": (self._more_attributes,),
            "list": (self._tighter_list, self._tighter_list, self._tighter_items),
            "object": (self._tighter_field, self._tighter_field, self._named_field),
            "allOf": (self._tighter_clause, self._one_more_clause),
            "anyOf": (self._fewer_clauses, self._tighter_branches, draw.pick),
        }

    def narrower(self, rule: Document) -> Document:
        """A child of the rule of an argument."""
        draw = self._draw
        kind = kind_of(rule)
        if kind in {"bind", "absent"}:
            return dict(rule)
        if "optional" in rule:
            kept = constraint_of(rule) if draw.often(0.5) else self.constraint(constraint_of(rule))
            return {"absent": True} if draw.often(0.15) else kept | ({"optional": True} if draw.often(0.4) else {})
        return self.constraint(rule)

    def constraint(self, parent: Document) -> Document:
        """A child of a constraint."""
        draw = self._draw
        kind = kind_of(parent)
        ways = [*self._by_kind.get(kind, ())]
        if draw.often(0.2):
            ways = [lambda _: self._some_members(parent)]
        elif draw.often(0.12) and "bind" not in kinds_in(parent):
            ways = [lambda _: self._with_a_clause(parent)]
        for _ in range(MAX_TRIES if ways else 0):
            child = draw.pick(ways)(parent[kind])
            if child is not None:
                return child
        return dict(parent)

    # --- whatever the parent is

    def _with_a_clause(self, parent: Document) -> Document:
        kind = kind_of(parent)
        like = kind if kind in {"int", "list"} else self._draw.pick((*TEXTS, "notOneOf"))
        return {"allOf": [parent, self._draw.constraint(like, 1)]}

    def _some_members(self, parent: Document) -> Document | None:
        members = [self.member(parent) for _ in range(self._draw.pick((1, 1, 2, 3)))]
        kept = [member for member in members if not isinstance(member, list | dict)]
        if len(kept) < len(members):
            return None
        return {"eq": kept[0]} if len(kept) == 1 else {"oneOf": kept}

    def member(self, parent: Document) -> Any:  # noqa: ANN401 - any JSON value
        """A value that the parent is likely to allow; an empty list where that isn't one scalar."""
        draw = self._draw
        kind = kind_of(parent)
        body = parent[kind]
        if kind in CLAUSES:
            return self.member(draw.pick(body))
        members: dict[str, Callable[[], Any]] = {
            "any": draw.scalar,
            "eq": lambda: body,
            "oneOf": lambda: draw.pick(body),
            "bool": lambda: draw.pick((True, False)),
            "int": lambda: self._between(body.get("min", -SAFE_INTEGER), body.get("max", SAFE_INTEGER)),
            "decimal": lambda: body.get(draw.pick(("min", "max")), spell(150, body["scale"])),
            "str": lambda: draw.pick(WORDS),
            "prefix": lambda: body + draw.pick(WORDS),
            "suffix": lambda: draw.pick(WORDS) + body,
            "glob": lambda: body.replace("*", draw.pick(("", "a", "case", "1 2"))),
            "path": lambda: body["root"].removesuffix("/") + draw.pick(("/x", "/a/b", "")),
            "host": lambda: draw.pick(body["hosts"]).replace("*", "x"),
            "cidr": lambda: draw.pick(("10.1.2.3", "10.1.2.4", "192.168.0.1", "fd00::1")),
            "url": lambda: f"https://{draw.pick(body['hosts']).replace('*', 'x')}{draw.pick(('', '/v1', '/v1/a'))}",
            "resource": lambda: f"case_{draw.chance.randint(0, 8)}",
            "notOneOf": draw.scalar,
        }
        return members.get(kind, list)()

    def _between(self, low: int, high: int) -> int:
        return self._draw.pick((low, high, (low + high) // 2))

    # --- values

    def _fewer(self, kind: str) -> Callable[[list[Any]], Document | None]:
        def fewer(values: list[Any]) -> Document | None:
            return {kind: self._draw.some(values, len(values))}

        return fewer

    def _one_value_lists(self, values: list[Any]) -> Document | None:
        return {"subsetOf": [self._draw.pick(values)]}

    def _more_required(self, values: list[Any]) -> Document | None:
        return {"containsAll": [*values, *(value for value in self._draw.scalars(2) if value not in values)]}

    def _more_excluded(self, body: Document) -> Document | None:
        if body["type"] != "string":
            return None
        return {"notOneOf": {"type": "string", "values": [*dict.fromkeys([*body["values"], self._draw.pick(WORDS)])]}}

    def _of_the_type(self, body: Document) -> Document | None:
        kinds = {"string": TEXTS, "integer": ("int",), "number": ("int",)}.get(body["type"])
        return None if kinds is None else self._draw.constraint(self._draw.pick(kinds), 1)

    # --- numbers

    def _tighter(self, low: int, high: int) -> tuple[int, int]:
        inner = sorted({low, high, low + 1, high - 1, (low + high) // 2, 0, 1})
        kept = [number for number in inner if low <= number <= high]
        first, last = sorted([self._draw.pick(kept), self._draw.pick(kept)])
        return first, last

    def _tighter_int(self, body: Document) -> Document | None:
        low, high = self._tighter(body.get("min", -SAFE_INTEGER), body.get("max", SAFE_INTEGER))
        return {"int": {"min": low, "max": high}}

    def _numbers(self, body: Document) -> Document | None:
        low, high = self._tighter(body.get("min", -SAFE_INTEGER), body.get("max", SAFE_INTEGER))
        return {"oneOf": [*range(low, min(high, low + 3) + 1)]}

    def _decimal_bounds(self, body: Document) -> tuple[int, int]:
        scale = body["scale"]
        ends = (body.get("min", spell(-(10**6), scale)), body.get("max", spell(10**6, scale)))
        low, high = (int(end.replace(".", "")) for end in ends)
        return (low, high) if low <= high else (low, low) if "min" in body else (high, high)

    def _tighter_decimal(self, body: Document) -> Document | None:
        low, high = self._tighter(*self._decimal_bounds(body))
        return {
            "decimal": {"min": spell(low, body["scale"]), "max": spell(high, body["scale"]), "scale": body["scale"]}
        }

    def _amounts(self, body: Document) -> Document | None:
        low, high = self._tighter(*self._decimal_bounds(body))
        return {"oneOf": [spell(low, body["scale"]), spell(high, body["scale"])]}

    # --- strings

    def _tighter_str(self, body: Document) -> Document | None:
        low, high = self._tighter(body.get("minLength", 0), body.get("maxLength", max(LENGTHS)))
        return {"str": {"minLength": low, "maxLength": high}}

    def _spelt_str(self, body: Document) -> Document | None:
        low, high = body.get("minLength", 0), min(body.get("maxLength", 12), 12)
        return {"regex": f"{self._draw.pick(('[a-z]', r'.', r'[0-9]'))}{{{low},{high}}}"} if low <= high else None

    def _longer_prefix(self, prefix: str) -> Document | None:
        return {"prefix": prefix + self._draw.pick(("a", "1", "_", "/", " ", "*"))}

    def _glob_after(self, prefix: str) -> Document | None:
        return None if "*" in prefix else {"glob": prefix + self._draw.pick(("*", "*.pdf", "a/*"))}

    def _regex_after(self, prefix: str) -> Document | None:
        return {"regex": re.escape(prefix) + self._draw.pick(("[0-9]{1,8}", r"\w*", "[a-z]+", ""))}

    def _longer_suffix(self, suffix: str) -> Document | None:
        return {"suffix": self._draw.pick(("a", "1", ".", "/", " ", "*")) + suffix}

    def _glob_before(self, suffix: str) -> Document | None:
        return None if "*" in suffix else {"glob": self._draw.pick(("*", "reports/*", "*/*")) + suffix}

    def _finer_glob(self, glob: str) -> Document | None:
        finer = glob.replace("*", self._draw.pick(("a", "a*", "*b", "x*y", "*1*", "")), 1)
        return None if "**" in finer or not finer else {"glob": finer}

    def _finer_regex(self, pattern: str) -> Document | None:
        tokens = _TOKEN.findall(pattern)
        places = [index for index, token in enumerate(tokens) if token in _TIGHTER]
        if not places:
            return {"regex": f"{pattern}|{pattern}"} if self._draw.often(0.5) else None
        place = self._draw.pick(places)
        tokens[place] = self._draw.pick(_TIGHTER[tokens[place]])
        return {"regex": "".join(tokens)} if "".join(tokens) else None

    # --- places

    def _deeper_path(self, body: Document) -> Document | None:
        below = [root for root in ROOTS if root.startswith(body["root"].removesuffix("/"))]
        return {"path": {"root": self._draw.pick(below)}}

    def _fewer_hosts(self, body: Document) -> Document | None:
        return {"host": {"hosts": [*map(self._finer_host, self._draw.some(body["hosts"], 3))]}}

    def _finer_host(self, host: str) -> str:
        if not host.startswith("*.") or self._draw.often(0.4):
            return host
        below = [other for other in HOSTS if other.endswith(host[1:])]
        return self._draw.pick(below)

    def _smaller_network(self, network: str) -> Document | None:
        families = {True: ("fd00::/8", "fd00:1::/32"), False: ("10.1.0.0/16", "10.1.2.0/24", "10.1.2.3/32")}
        return {"cidr": self._draw.pick((network, *families[":" in network]))}

    def _stricter_url(self, body: Document) -> Document | None:
        stricter = dict(body)
        stricter["hosts"] = [*map(self._finer_host, self._draw.some(body["hosts"], 2))]
        if "path" not in body or "under" in body["path"]:
            root = body.get("path", {}).get("under", "/")
            deeper = root.removesuffix("/") + self._draw.pick(("", "/a", "/a/b")) or "/"
            stricter["path"] = {self._draw.pick(("exact", "under")): deeper}
        for name in ("schemes", "ports"):
            if name in body and self._draw.often(0.5):
                stricter[name] = self._draw.some(body[name], 2)
        if self._draw.often(0.3):
            stricter["query"] = "none"
        return {"url": stricter}

    def _more_attributes(self, body: Any) -> Document | None:  # noqa: ANN401 - a name or a document
        name, where = (body, {}) if isinstance(body, str) else (body["type"], body["where"])
        more = {self._draw.pick(("region", "open")): self._draw.pick(("eu", True, 1))} | where
        return {"resource": {"type": name, "where": more}}

    # --- made of others

    def _tighter_list(self, body: Document) -> Document | None:
        low, high = self._tighter(body.get("minLength", 0), body.get("maxLength", 9))
        items = self.constraint(body["items"]) if self._draw.often(0.5) else body["items"]
        return {"list": {"items": items, "minLength": low, "maxLength": high}}

    def _tighter_items(self, body: Document) -> Document | None:
        return {"list": body | {"items": self.constraint(body["items"])}}

    def _tighter_field(self, body: Document) -> Document | None:
        fields = body["fields"]
        if not fields:
            return None
        name = self._draw.pick([*fields])
        return {"object": {"fields": fields | {name: self.narrower(fields[name])}}}

    def _named_field(self, body: Document) -> Document | None:
        name = self._draw.pick(NAMES)
        return None if name in body["fields"] else {"object": {"fields": body["fields"] | {name: {"absent": True}}}}

    def _tighter_clause(self, clauses: list[Document]) -> Document | None:
        place = self._draw.chance.randrange(len(clauses))
        return {"allOf": [*clauses[:place], self.constraint(clauses[place]), *clauses[place + 1 :]]}

    def _one_more_clause(self, clauses: list[Document]) -> Document | None:
        return {"allOf": [*clauses, self._draw.constraint(kind_of(self._draw.pick(clauses)), 1)]}

    def _fewer_clauses(self, clauses: list[Document]) -> Document | None:
        return {"anyOf": self._draw.some(clauses, len(clauses))}

    def _tighter_branches(self, clauses: list[Document]) -> Document | None:
        return {"anyOf": [*map(self.constraint, clauses)]}
