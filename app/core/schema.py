"""What a model is shown of a rule: the tool's input schema, narrowed to what the grant allows (JSON Schema 2020-12).

The evaluator decides, the schema tells: what the evaluator accepts the schema accepts. The converse has
exceptions, since JSON Schema can't say everything: `EXCEPTIONS` lists them. A bound argument is not shown at
all; the gateway fills it in.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from app.core.addresses import host_schema_pattern, literal
from app.core.kinds import (
    MAX_PATH_CHARS,
    Absent,
    AllOf,
    AnyOf,
    AnyValue,
    ArgumentRule,
    Bind,
    Bool,
    Cidr,
    Constraint,
    ContainsAll,
    Decimal,
    Eq,
    Glob,
    Host,
    Int,
    List,
    NotOneOf,
    Object,
    OneOf,
    Path,
    Prefix,
    Regex,
    Resource,
    Site,
    Str,
    SubsetOf,
    Suffix,
    ToolRule,
    Url,
    everything_in,
    judge,
    spell_decimal,
)
from app.core.languages import Language, ending_with, pattern_of, starting_with
from app.core.spelling import plainly, said_bounds
from app.core.steps import OutOfSteps, Steps
from app.core.strict_json import MAX_SAFE_INTEGER, JsonObject, JsonValue, canonical
from app.core.urls import url_schema_pattern

EXCEPTIONS: Final[Mapping[str, str]] = {
    "strings": "normalisation form C and lone surrogates",
    "numbers": "integers beyond ±(2^53-1)",
    "decimal": "how many digits a number has after the point; bounds and a negative zero where a string spells it",
    "host": "below a name, how long a host is in all, and what its Punycode means",
    "url": "parts of what makes a URL canonical; of several schemes, which port is whose",
    "cidr": "whether an address is in the network",
    "resource": "what is on record",
    "bind": "not shown, and filled in",
}
"""What the evaluator refuses and the schema may accept, by kind."""


def narrowed_schema(schema: JsonObject, rule: ToolRule) -> JsonObject:
    """A tool's input schema for a caller whose calls are within the rule.

    Kept are what the tool says of each argument that may be given, and its definitions. What it says of several
    arguments together is kept where all of them may be given and none is bound, since else it could speak of one that
    is not shown; the gateway holds calls to it all the same.
    """
    definitions = _definitions(schema)
    own = {name: _standing(words, definitions) for name, words in _object(schema.get("properties")).items()}
    allowed = rule_schema(rule)
    narrowed = _object(allowed["properties"])
    shown = {name: _both(_sayable(own.get(name), rule.of(name)), words) for name, words in narrowed.items()}
    if rule.open:
        shown = {name: words for name, words in own.items() if not _is_bound(rule.of(name).constraint)} | shown
    required = {*_names(schema.get("required"))} & shown.keys() | {*_names(allowed.get("required"))}
    needed: JsonObject = {"required": [*sorted(required)]} if required else {}
    dialect: JsonObject = {"$schema": schema["$schema"]} if "$schema" in schema else {}
    together = _of_several(schema, definitions) if _hides_nothing(rule) else {}
    return {**dialect, **definitions, **allowed, **together, "properties": shown, **needed}


def _hides_nothing(rule: ToolRule) -> bool:
    parts = (part for argument in rule.arguments.values() for part in everything_in(argument.constraint))
    return rule.open and not any(map(_is_bound, parts))


def _of_several(schema: JsonObject, definitions: JsonObject) -> JsonObject:
    """What the tool says of its arguments together, where that means the same beside these definitions."""
    return {
        name: words for name, words in schema.items() if name not in _OF_EACH and _standing({name: words}, definitions)
    }


_OF_EACH: Final = frozenset({"$schema", "$id", "$anchor", "$defs", "definitions", "type", "properties", "required"})
"""Keywords that are narrowed one by one, or name the document as a whole."""


def _definitions(schema: JsonObject) -> JsonObject:
    """What the tool defines once, where it leads to nothing but more of it: the rest of its schema is not kept."""
    found: JsonObject = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    return found if _standing(found, found) is found else {}


def _standing(words: JsonValue, definitions: JsonObject) -> JsonValue:
    """The same words where they mean the same in another document with these definitions, else none."""
    inside = tuple(f"#/{name}/" for name in definitions)
    return words if all(reference.startswith(inside) for reference in _references(words)) else {}


def _references(words: JsonValue) -> Iterator[str]:
    pending = [words]
    while pending:
        part = pending.pop()
        pending += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        if isinstance(part, dict) and isinstance(part.get("$ref"), str):
            yield str(part["$ref"])


def _sayable(own: JsonValue, argument: ArgumentRule) -> JsonValue:
    """What the tool says of an argument; not what it says of the parts of one in which something is bound.

    Nor a default that the grant refuses: whoever reads it would take it for allowed.
    """
    if not isinstance(own, dict):
        return own
    if any(map(_is_bound, everything_in(argument.constraint))):
        return _headings(own)
    refused = "default" in own and not _allows(argument.constraint, own["default"])
    return {name: words for name, words in own.items() if name != "default"} if refused else own


def _allows(constraint: Constraint, value: JsonValue) -> bool:
    try:
        return judge(constraint, value, Site(bindings={}, steps=Steps())) is None
    except OutOfSteps:
        return False


def _both(own: JsonValue, narrowed: JsonValue) -> JsonValue:
    """A schema for what fits both: one object where they speak of different things."""
    if own is False or narrowed is False:
        return False
    if not isinstance(own, dict) or not isinstance(narrowed, dict):
        return narrowed
    common = own.keys() & narrowed.keys()
    if own.keys() <= _INDEPENDENT and all(own[name] == narrowed[name] for name in common):
        return own | narrowed
    return {**_headings(own), "allOf": [own, narrowed]}


def _headings(own: JsonObject) -> JsonObject:
    return {name: own[name] for name in ("title", "description") if name in own}


_INDEPENDENT: Final = frozenset(
    {
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"),
        *("type", "enum", "const", "format", "multipleOf", "minimum", "maximum", "exclusiveMinimum"),
        *("exclusiveMaximum", "minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems"),
        *("minProperties", "maxProperties", "required", "propertyNames", "anyOf", "oneOf", "not"),
    }
)
"""Keywords that mean the same whatever stands beside them; `items` does not, nor does a `$ref` before 2019."""


def rule_schema(rule: ToolRule) -> JsonObject:
    """The schema of the arguments, or of an object's members, that a rule allows."""
    shown = {name: argument for name, argument in rule.arguments.items() if not _is_bound(argument.constraint)}
    properties: JsonObject = {name: _argument_schema(argument) for name, argument in shown.items()}
    required: list[JsonValue] = [name for name, argument in sorted(shown.items()) if not argument.allows_absence]
    if not rule.open:
        properties = {name: schema for name, schema in properties.items() if schema is not False}
    closed: JsonObject = {} if rule.open else {"additionalProperties": False}
    needed: JsonObject = {"required": required} if required else {}
    return {"type": "object", "properties": properties, **needed, **closed}


def _is_bound(constraint: Constraint) -> bool:
    """Whether the value is a field of the grant, whatever else it must be."""
    met = constraint.clauses if isinstance(constraint, AllOf) else ()
    return isinstance(constraint, Bind) or any(map(_is_bound, met))


def _argument_schema(argument: ArgumentRule) -> JsonValue:
    return False if isinstance(argument.constraint, Absent) else schema_of(argument.constraint)


def schema_of(constraint: Constraint) -> JsonValue:
    """The schema of the values that a constraint allows."""
    return _SCHEMAS[type(constraint)](constraint)


def _text(language: Language) -> JsonObject:
    return {"type": "string", "pattern": pattern_of(language)}


def _decimal(decimal: Decimal) -> JsonObject:
    low, high = (spell_decimal(bound, decimal.scale) for bound in (decimal.minimum, decimal.maximum))
    fraction = rf"(\.[0-9]{{1,{decimal.scale}}})?" if decimal.scale else ""
    return {
        "description": f"a decimal from {low} to {high} with at most {decimal.scale} digits after the point",
        "anyOf": [
            {"type": "number", "minimum": float(low), "maximum": float(high)},
            {"type": "string", "pattern": f"^-?(0|[1-9][0-9]*){fraction}$"},
        ],
    }


_SEGMENT: Final = (
    r"([^/\\%\u0000-\u001f\u007f-\u009f.][^/\\%\u0000-\u001f\u007f-\u009f]*"
    r"|\.[^/\\%\u0000-\u001f\u007f-\u009f.][^/\\%\u0000-\u001f\u007f-\u009f]*"
    r"|\.\.[^/\\%\u0000-\u001f\u007f-\u009f]+)"
)
"""A segment of a canonical path, without looking ahead: neither `.` nor `..`."""


def _path(path: Path) -> JsonObject:
    stem = path.root.removesuffix("/")
    below = f"(/{_SEGMENT})+"
    pattern = f"^{literal(stem)}({below})?$" if stem else f"^(/|{below})$"
    return {"type": "string", "pattern": pattern, "maxLength": MAX_PATH_CHARS}


def _url(url: Url) -> JsonObject:
    pattern = url_schema_pattern(url.rule)
    known: JsonObject = {} if pattern is None else {"pattern": pattern}
    return {"type": "string", "format": "uri", **known}


def _cidr(cidr: Cidr) -> JsonObject:
    described = f"an address in {cidr.network}"
    return {"type": "string", "format": f"ipv{cidr.network.version}", "description": described}


def _resource(resource: Resource) -> JsonObject:
    having = "".join(f" with {name} {canonical(value).decode()}" for name, (_type, value) in resource.where.items())
    return {"type": "string", "description": f"the id of a {resource.type}{having}"}


def _list(constraint: List) -> JsonObject:
    bounds = said_bounds(constraint, "minItems", "maxItems")
    return {"type": "array", "items": schema_of(constraint.items)} | bounds


_SCHEMAS: Final[Mapping[type[Constraint], Callable[[Any], JsonValue]]] = {
    AnyValue: lambda _: {},
    Absent: lambda _: False,
    Bind: lambda bind: {"description": f"the grant's {bind.field}"},
    Eq: lambda eq: {"const": eq.value[1]},
    OneOf: lambda one_of: {"enum": plainly(one_of.values)},
    NotOneOf: lambda not_: {"type": not_.type, "not": {"enum": plainly(not_.values)}},
    Bool: lambda _: {"type": "boolean"},
    Int: lambda int_: {"type": "integer"} | said_bounds(int_, "minimum", "maximum", -MAX_SAFE_INTEGER),
    Decimal: _decimal,
    Str: lambda str_: {"type": "string"} | said_bounds(str_, "minLength", "maxLength"),
    Prefix: lambda prefix: _text(starting_with(prefix.prefix)),
    Suffix: lambda suffix: _text(ending_with(suffix.suffix)),
    Glob: lambda glob: _text(glob.language),
    Regex: lambda regex: _text(regex.language),
    Path: _path,
    Url: _url,
    Host: lambda host: {"type": "string", "pattern": host_schema_pattern(host.hosts)},
    Cidr: _cidr,
    Resource: _resource,
    List: _list,
    ContainsAll: lambda all_: {
        "type": "array",
        "allOf": [{"contains": {"const": value}} for value in plainly(all_.values)],
    },
    SubsetOf: lambda subset: {"type": "array", "items": {"enum": plainly(subset.values)}},
    Object: lambda object_: rule_schema(object_.fields),
    AllOf: lambda all_: {"allOf": [schema_of(clause) for clause in all_.clauses]},
    AnyOf: lambda any_: {"anyOf": [schema_of(clause) for clause in any_.clauses]},
}


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _names(value: JsonValue) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
