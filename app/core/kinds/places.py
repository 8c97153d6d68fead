"""Kinds for places: paths, URLs, hosts, addresses. What two readers could read differently is no place at all."""

import re
from dataclasses import dataclass
from typing import Final

from app.core.addresses import HostPattern, Network, address_in, host_matches, read_host
from app.core.kinds.base import STEPS_TO_READ, Constraint, Objection, Site
from app.core.strict_json import JsonValue
from app.core.urls import UrlRule, read_url, url_matches

MAX_PATH_CHARS: Final = 4096  # PATH_MAX of Linux

_SEGMENT: Final = re.compile(r"[^/\\%\x00-\x1f\x7f-\x9f]+")
_PATH_SHAPE: Final = (
    "must be a canonical absolute path: no '.' or '..', no empty segment, no slash at the end, no control"
    f" character, backslash or percent sign, at most {MAX_PATH_CHARS} characters"
)
_URL_SHAPE: Final = (
    "must be an absolute URL that can be read in one way only: no user, fragment, backslash, white space or control"
    " character, no other host than an ASCII name or a canonical address, no empty or dot segment, encoded or not"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Path(Constraint):
    """A canonical absolute POSIX path at or under a root, by whole segments."""

    kind = "path"
    root: str

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        if not isinstance(value, str) or not is_canonical_path(value):
            return at.invalid(_PATH_SHAPE)
        return None if self.holds(value) else at.outside(f"must be at or under {self.root}")

    def holds(self, path: str) -> bool:
        """Whether a canonical path is the root or below it; `/database` is not below `/data`."""
        return path == self.root or path.startswith(self.root.removesuffix("/") + "/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Url(Constraint):
    """An absolute URL with one of these schemes, hosts, ports, and paths."""

    kind = "url"
    rule: UrlRule

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        at.steps.take(STEPS_TO_READ)
        url = read_url(value) if isinstance(value, str) else None
        if url is None:
            return at.invalid(_URL_SHAPE)
        return None if url_matches(self.rule, url) else at.outside("is a URL that the grant does not reach")


@dataclass(frozen=True, slots=True, kw_only=True)
class Host(Constraint):
    """A host name, or a canonical address, among these."""

    kind = "host"
    hosts: tuple[HostPattern, ...]

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        at.steps.take(STEPS_TO_READ)
        host = read_host(value) if isinstance(value, str) else None
        if host is None:
            return at.invalid("must be a host name in ASCII, or an address in canonical form")
        return None if host_matches(self.hosts, host) else at.outside("is a host that the grant does not reach")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cidr(Constraint):
    """A canonical address in a network; one of the other family is outside."""

    kind = "cidr"
    network: Network

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        at.steps.take(STEPS_TO_READ)
        inside = address_in(self.network, value) if isinstance(value, str) else None
        if inside is None:
            return at.invalid("must be an IP address in canonical form")
        return None if inside else at.outside(f"must be in {self.network}")


def is_canonical_path(path: str) -> bool:
    """Whether a path can be read in one way only, by whatever may stand behind us."""
    if len(path) > MAX_PATH_CHARS or not path.startswith("/"):
        return False
    return path == "/" or all(map(_is_segment, path[1:].split("/")))


def _is_segment(text: str) -> bool:
    # Segment by segment: one expression for the whole would need possessive repeats, which Python 3.11.2 gets wrong.
    return text not in {".", ".."} and _SEGMENT.fullmatch(text) is not None
