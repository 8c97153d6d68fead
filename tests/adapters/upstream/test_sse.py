"""Streams of events, wherever the network cuts them."""

import pytest

from app.adapters.upstream.sse import EventParser

STREAM = (
    b"\xef\xbb\xbf: a comment\nid: 1\ndata:\n\n"
    b'data: {"a":\r\ndata: 1}\r\n\r\n'
    b"event: message\rdata: one\rdata:two\r\rretry: 5\n\n"
)
EVENTS = [b'{"a":\n1}', b"one\ntwo"]


def test_a_stream_is_read_whole() -> None:
    assert EventParser().feed(STREAM) == EVENTS


@pytest.mark.parametrize("cut", range(1, len(STREAM)))
def test_a_cut_anywhere_changes_nothing(cut: int) -> None:
    parser = EventParser()
    assert parser.feed(STREAM[:cut]) + parser.feed(STREAM[cut:]) == EVENTS


def test_bytes_one_by_one_give_the_same_events() -> None:
    parser = EventParser()
    assert [event for byte in STREAM for event in parser.feed(bytes([byte]))] == EVENTS


def test_an_event_that_does_not_end_is_never_given_out() -> None:
    assert EventParser().feed(b"data: {}\n") == []
