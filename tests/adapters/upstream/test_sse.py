"""Streams of events, wherever the network cuts them."""

import pytest

from app.adapters.upstream.sse import EventParser, EventTooLargeError

STREAM = (
    b"\xef\xbb\xbf: a comment\nid: 1\ndata:\n\n"
    b'data: {"a":\r\ndata: 1}\r\n\r\n'
    b"event: message\rdata: one\rdata:two\r\rretry: 5\n\n"
)
EVENTS = [b'{"a":\n1}', b"one\ntwo"]


def parser_of(max_event_bytes: int = 1000) -> EventParser:
    return EventParser(max_event_bytes=max_event_bytes)


def test_a_stream_is_read_whole() -> None:
    assert parser_of().feed(STREAM) == EVENTS


@pytest.mark.parametrize("cut", range(1, len(STREAM)))
def test_a_cut_anywhere_changes_nothing(cut: int) -> None:
    parser = parser_of()
    assert parser.feed(STREAM[:cut]) + parser.feed(STREAM[cut:]) == EVENTS


def test_bytes_one_by_one_give_the_same_events() -> None:
    parser = parser_of()
    assert [event for byte in STREAM for event in parser.feed(bytes([byte]))] == EVENTS


def test_an_event_that_does_not_end_is_never_given_out() -> None:
    assert parser_of().feed(b"data: {}\n") == []


def test_a_stream_says_where_it_can_be_taken_up_and_how_soon() -> None:
    parser = parser_of()
    assert (parser.last_id, parser.retry_milliseconds) == (None, None)
    parser.feed(b"id: one\nretry: 250\ndata:\n\nid: two\nretry: soon\n")
    assert (parser.last_id, parser.retry_milliseconds) == (b"one", 250), "an event counts when it has ended"
    parser.feed(b"\nid: with \0 in it\n\n")
    assert parser.last_id == b"two"
    parser.feed(b"data: x\n\nid\n\n")
    assert parser.last_id == b"", "an empty id takes it back"


@pytest.mark.parametrize(
    "stream", [b"data: " + b"x" * 20, b"x" * 21, b"data: 0123456789\ndata: 0123456789\n", b"data:\n" * 21]
)
def test_an_event_that_grows_too_large_is_given_up(stream: bytes) -> None:
    for pieces in ([stream], [bytes([byte]) for byte in stream]):
        with pytest.raises(EventTooLargeError):
            feed_all(parser_of(20), pieces)


def feed_all(parser: EventParser, pieces: list[bytes]) -> None:
    for piece in pieces:
        parser.feed(piece)


def test_many_events_that_are_small_are_none_that_is_large() -> None:
    parser = parser_of(20)
    assert [parser.feed(b"data: 0123456789\n\n") for _ in range(100)] == [[b"0123456789"]] * 100
