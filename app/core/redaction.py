"""Taking out of a document what its reader may not see."""

from collections.abc import Iterable

from app.core.strict_json import JsonValue

REDACTED = "[redacted]"
MIN_SECRET_CHARS = 8
"""Something shorter would be found in every other word, and is left."""


def redact(document: JsonValue, secrets: Iterable[str]) -> JsonValue:
    """The document with every occurrence of a secret replaced, in strings and in members' names."""
    # The longest first, so that no part of one is left when another is a piece of it.
    return _without(document, sorted({s for s in secrets if len(s) >= MIN_SECRET_CHARS}, key=len, reverse=True))


def _without(value: JsonValue, secrets: list[str]) -> JsonValue:
    if isinstance(value, str):
        return _clean(value, secrets)
    if isinstance(value, list):
        return [_without(item, secrets) for item in value]
    if isinstance(value, dict):
        return {_clean(name, secrets): _without(member, secrets) for name, member in value.items()}
    return value


def _clean(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return text
