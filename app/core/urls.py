"""URLs: which can be read in one way only, which of them a rule allows, which rule is the narrower.

Whoever fetches a URL parses it again, and a URL that is read here in one way and there in another is a way around
every rule. So nothing is parsed leniently and nothing repaired: what is recognised is a subset of RFC 3986 that a
WHATWG parser, too, reads and writes back as it stands, but for the case of scheme and host, an explicit default port
and an empty path. All else is refused. Refuses to know what a host resolves to, and what a query means.
"""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple
from unicodedata import normalize
from urllib.parse import unquote

from app.core.addresses import (
    HostPattern,
    either_case,
    host_expression,
    host_matches,
    hosts_within,
    literal,
    one_of,
    read_host,
)

MAX_URL_CHARS: Final = 2048
MAX_PORT: Final = 65535
DEFAULT_SCHEMES: Final = frozenset({"https"})
MAX_PATTERN_CHARS: Final = 16 * 1024
"""A longer JSON Schema pattern tells a model nothing."""

SCHEMES: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}
"""The schemes whose URLs every parser takes apart alike, and their default ports."""


class UrlPath(NamedTuple):
    """One path, or with `below` also every path under it, by whole segments: `/v1` holds `/v1/`, not `/v10`."""

    path: str
    below: bool

    def holds(self, path: str) -> bool:
        """Whether a path, as `read_url` gives it, is this one or may be under it."""
        return path == self.path or (self.below and path.startswith(self.path.removesuffix("/") + "/"))


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlRule:
    """Which URLs are allowed. Without `ports` it is each scheme's own, without `path` any, without `query` none."""

    schemes: frozenset[str] = DEFAULT_SCHEMES
    hosts: tuple[HostPattern, ...]
    ports: frozenset[int] | None = None
    path: UrlPath | None = None
    query: bool = False

    def ports_of(self, scheme: str) -> frozenset[int]:
        """The ports that are allowed with this scheme."""
        return frozenset({SCHEMES[scheme]}) if self.ports is None else self.ports


class Url(NamedTuple):
    """A URL in its parts: scheme and host in lower case, the port that counts, path and query as they stood."""

    scheme: str
    host: str
    port: int
    path: str
    query: str | None


# --- values -----------------------------------------------------------------------------------------------

_URL: Final = re.compile(
    r"([A-Za-z]{2,5})://"
    r"(\[[0-9a-f:]+\]|[A-Za-z0-9.-]+)"
    r"(?::([1-9][0-9]{0,4}))?"
    # Parsers older than RFC 3986 end the authority at a slash and nothing else, so there must be one before a query.
    r"(?:(/[^?]*)(?:\?(.*))?)?"
)
_NAME_CHAR: Final = r"(?:[A-Za-z0-9_~!$&'()*+,=:@-]|%(?:2[23B]|3[CEF]|5[BDE]|60|7[BCD]|[89A-F][0-9A-F]))"
"""A character of a segment's name. Of the triplets there are those that nobody decodes and takes for a separator.

What may stand as it is must stand as it is, since some parsers decode it: `%2E`, `%41`, `%40`. A plus is the one that
none touches, and which otherwise some server takes for a space.
"""

_SEGMENT: Final = rf"(?:\.|%20)*{_NAME_CHAR}(?:{_NAME_CHAR}|[.;]|%20)*"
"""A segment: there is more than dots and spaces before its parameters, which a semicolon begins."""

_REST: Final = rf"(?:{_SEGMENT}/)*(?:{_SEGMENT})?"
"""What may follow the first slash of a path."""

_QUERY: Final = r"(?:[A-Za-z0-9._~!$&()*+,;=:@/?-]|%[0-9A-F]{2})*"
"""A query. An apostrophe is written `%27`, as a WHATWG parser would write it."""

_PATH: Final = re.compile(f"/{_REST}")
_QUERY_CHARS: Final = re.compile(_QUERY)
_SEPARATORS: Final = re.compile(r"[\\%\x00-\x1f\x7f-\x9f]")


def read_url(text: str) -> Url | None:
    """The parts of an absolute URL; None if there is any doubt about how somebody else would read it."""
    shape = _URL.fullmatch(text) if len(text) <= MAX_URL_CHARS else None
    if shape is None:
        return None
    scheme, host, path = shape[1].lower(), read_host(shape[2]), read_url_path(shape[4] or "/")
    if scheme not in SCHEMES or host is None or path is None:
        return None
    port, query = int(shape[3] or SCHEMES[scheme]), shape[5]
    if port > MAX_PORT or (query is not None and not _QUERY_CHARS.fullmatch(query)):
        return None
    return Url(scheme, host, port, path, query)


def read_url_path(text: str) -> str | None:
    """The same path, if it is absolute and no server can read it as another one; else None.

    One slash at the end is allowed, and makes it another path.
    """
    if len(text) > MAX_URL_CHARS or not _PATH.fullmatch(text):
        return None
    return text if "%" not in text or _is_steady(text) else None


def _is_steady(path: str) -> bool:
    """Whether a path keeps its segments for a server that decodes it, normalises it and then drops `;` parameters."""
    try:
        shown = normalize("NFKC", unquote(path, errors="strict"))
    except UnicodeDecodeError:
        return False
    if shown.count("/") != path.count("/") or _SEPARATORS.search(shown):
        return False
    return all(map(_is_segment, shown[1:].removesuffix("/").split("/")))


def _is_segment(shown: str) -> bool:
    # Neither empty nor made of dots. Some servers drop spaces and dots at the end of a name, so these don't count.
    return shown.partition(";")[0].strip(" .") != ""


# --- rules ------------------------------------------------------------------------------------------------

_ANYWHERE: Final = UrlPath("/", below=True)


def url_matches(rule: UrlRule, url: Url) -> bool:
    """Whether the rule allows the URL."""
    return (
        url.scheme in rule.schemes
        and host_matches(rule.hosts, url.host)
        and url.port in rule.ports_of(url.scheme)
        and (rule.path or _ANYWHERE).holds(url.path)
        and (rule.query or url.query is None)
    )


def url_within(child: UrlRule, parent: UrlRule) -> bool:
    """Whether every URL that the child allows is allowed by the parent, part by part."""
    return (
        child.schemes <= parent.schemes
        and hosts_within(child.hosts, parent.hosts)
        and all(child.ports_of(scheme) <= parent.ports_of(scheme) for scheme in child.schemes)
        and _path_within(child.path or _ANYWHERE, parent.path or _ANYWHERE)
        and (parent.query or not child.query)
    )


def _path_within(child: UrlPath, parent: UrlPath) -> bool:
    return parent.holds(child.path) and (parent.below or not child.below)


# --- JSON Schema ------------------------------------------------------------------------------------------


def url_schema_pattern(rule: UrlRule) -> str | None:
    """A JSON Schema pattern for the URLs that the rule allows; None if it would be longer than MAX_PATTERN_CHARS.

    It accepts each of them, and some more: with several schemes, the port of one after another; hosts as
    `host_schema_pattern` says; paths that become others when what is not ASCII in them is decoded; any length.
    """
    schemes = one_of(either_case(scheme) for scheme in sorted(rule.schemes))
    pattern = f"^{schemes}://{host_expression(rule.hosts)}{_ports_expression(rule)}{_path_expression(rule)}$"
    return pattern if len(pattern) <= MAX_PATTERN_CHARS else None


def _ports_expression(rule: UrlRule) -> str:
    ports = {port for scheme in rule.schemes for port in rule.ports_of(scheme)}
    may_be_silent = any(SCHEMES[scheme] in rule.ports_of(scheme) for scheme in rule.schemes)
    return f"(?::{one_of(map(str, sorted(ports)))}){'?' if may_be_silent else ''}"


def _path_expression(rule: UrlRule) -> str:
    path, below = rule.path or _ANYWHERE
    stem, query = literal(path.removesuffix("/")), rf"(?:\?{_QUERY})?" if rule.query else ""
    if path == "/":
        return f"(?:/{_REST if below else ''}{query})?"
    if path.endswith("/"):
        return f"{stem}/{_REST if below else ''}{query}"
    return f"{stem}{f'(?:/{_REST})?' if below else ''}{query}"
