"""A secret is taken out wherever it stands, and nothing else is touched."""

from app.core.redaction import REDACTED, redact
from app.core.strict_json import JsonValue

SECRET = "a-long-secret"


def test_a_secret_is_taken_out_of_strings_lists_members_and_names() -> None:
    document: JsonValue = {"a": [f"x{SECRET}y", 1, None, True], SECRET: {"b": SECRET}}
    assert redact(document, [SECRET]) == {"a": [f"x{REDACTED}y", 1, None, True], REDACTED: {"b": REDACTED}}


def test_a_secret_within_a_secret_leaves_nothing_of_the_longer_one() -> None:
    assert redact("http://a-long-secret/path", ["a-long-secret", "http://a-long-secret"]) == f"{REDACTED}/path"


def test_what_is_too_short_to_be_told_from_a_word_is_left() -> None:
    assert redact("key", ["k", "key"]) == "key"
