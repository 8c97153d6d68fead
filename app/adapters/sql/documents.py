"""Registered things as JSON documents: every member of a dataclass that is not a column of its own.

The dataclass is the format: a member added with a default reads old documents, and one that is renamed or
removed needs a migration. A document with a member that this version does not know is refused rather than
read without it, since what is not known might restrict.
"""

import json
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache
from threading import Lock
from types import NoneType
from typing import Any, NewType, TypeVar, cast, get_args, get_origin

Record = TypeVar("Record")

CACHED_DOCUMENTS = 4096
CACHED_CHARS = 2_000_000
"""Of text; what is read from it takes several times as much."""

Key = tuple[type, str, tuple[tuple[str, Hashable], ...]]


class RecordCache:
    """The records that were read last, by kind, text and columns: bounded in number and in what their texts weigh.

    Several threads use it.
    """

    def __init__(self, *, documents: int, chars: int) -> None:
        self._documents = documents
        self._chars = chars
        self._held_chars = 0
        self._records: OrderedDict[Key, object] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Key) -> object | None:
        with self._lock:
            record = self._records.get(key)
            if record is not None:
                self._records.move_to_end(key)
            return record

    def put(self, key: Key, record: object) -> None:
        with self._lock:
            if key in self._records or _chars(key) > self._chars:
                return
            self._records[key] = record
            self._held_chars += _chars(key)
            while len(self._records) > self._documents or self._held_chars > self._chars:
                oldest, _ = self._records.popitem(last=False)
                self._held_chars -= _chars(oldest)


def _chars(key: Key) -> int:
    """Of a document and of the columns beside it, since some of those are long texts, too."""
    _, text, columns = key
    return len(text) + sum(len(value) for _, value in columns if isinstance(value, str))


# Records are immutable and a text has one meaning, so reading it once is enough: calls read the same few.
_cache = RecordCache(documents=CACHED_DOCUMENTS, chars=CACHED_CHARS)


def dump(record: object, *, without: Collection[str] = ()) -> str:
    """The document of a record, without the members that have columns."""
    names: Iterable[str] = _hints(cast("Any", type(record)))
    members = {name: _dumped(getattr(record, name)) for name in names if name not in without}
    return json.dumps(members, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def load(kind: type[Record], document: str, **columns: Hashable) -> Record:
    """The record of a document and its columns. Raises ValueError for a document of another version."""
    key = (kind, document, tuple(columns.items()))
    record = _cache.get(key)
    if record is None:
        record = load_once(kind, document, **columns)
        _cache.put(key, record)
    return cast("Record", record)


def load_once(kind: type[Record], document: str, **columns: Hashable) -> Record:
    """The same without keeping the record: for those that are many, which would push out what every call reads."""
    members = json.loads(document)
    unknown = members.keys() - _hints(cast("Any", kind)).keys()
    if unknown:
        raise ValueError(f"a stored {kind.__name__} has members that this version does not know: {unknown}")
    return cast("Record", _record(kind, {**members, **columns}))


@cache
def _hints(kind: Any) -> dict[str, Any]:  # noqa: ANN401
    return {member.name: member.type for member in fields(kind)}


_WRITTEN: Mapping[type, tuple[Callable[[Any], object], Callable[[Any], object]]] = {
    timedelta: (lambda span: span // timedelta(microseconds=1), lambda count: timedelta(microseconds=count)),
    datetime: (datetime.isoformat, datetime.fromisoformat),
    bytes: (lambda raw: b64encode(raw).decode(), b64decode),
}
"""How values are written and read that JSON has no kind for."""


def _dumped(value: object) -> object:
    """A value as JSON; plain JSON (a tool's schema, say) stays what it is."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _dumped(getattr(value, name)) for name in _hints(type(value))}
    if type(value) in _WRITTEN:
        return _WRITTEN[type(value)][0](value)
    if isinstance(value, frozenset | tuple):
        items = [_dumped(item) for item in value]
        return sorted(items) if isinstance(value, frozenset) else items  # type: ignore[type-var]
    if isinstance(value, Mapping):
        return dict(value)
    return value


def _record(kind: Any, members: dict[str, Any]) -> Any:  # noqa: ANN401
    hints = _hints(kind)
    return kind(**{name: _loaded(hints[name], value) for name, value in members.items()})


def _loaded(hint: Any, value: Any) -> Any:  # noqa: ANN401 - JSON on one side, any type on the other
    hint = _bare(hint)
    if value is None:
        return None
    if hint in _WRITTEN:
        # What comes from a column has been read already.
        return value if isinstance(value, hint) else _WRITTEN[hint][1](value)
    if get_origin(hint) in (frozenset, tuple):
        item = get_args(hint)[0]
        return get_origin(hint)(_loaded(item, element) for element in value)
    if is_dataclass(hint):
        return _record(hint, value)
    return hint(value) if isinstance(hint, type) and issubclass(hint, StrEnum) else value


def _bare(hint: Any) -> Any:  # noqa: ANN401
    """The type behind a NewType and behind `| None`."""
    while isinstance(hint, NewType):
        hint = hint.__supertype__
    options = [option for option in get_args(hint) if option is not NoneType]
    is_optional = NoneType in get_args(hint) and len(options) == 1
    return _bare(options[0]) if is_optional else hint
