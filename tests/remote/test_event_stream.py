"""Server-sent events from whatever bytes arrive, however they are cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import EndpointAnswerError
from localspec.remote.event_stream import MAX_EVENT_BYTES, MAX_LINE_BYTES, StreamEvent, stream_events


def read(pieces: Sequence[bytes]) -> list[StreamEvent]:
    async def send() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async def collect() -> list[StreamEvent]:
        return [event async for event in stream_events(send(), "http://server")]

    return asyncio.run(collect())


@pytest.mark.parametrize(
    ("sent", "events"),
    [
        (b"data: one\n\ndata:two\n\n", [("", "one"), ("", "two")]),
        (b"data: one\r\n\r\ndata: two\r\n\r\n", [("", "one"), ("", "two")]),
        (b": keep-alive\n\nid: 7\nretry: 10\ndata: one\n\n", [("", "one")]),
        (b"data: one\ndata: more\n\n", [("", "one\nmore")]),
        (b"event: error\ndata: {}\n\n", [("error", "{}")]),
        (b'error: {"message": "x"}\n\n', [("error", '{"message": "x"}')]),
        (b"\xef\xbb\xbfdata: one\n\n", [("", "one")]),
        (b"data: no end", [("", "no end")]),
        (b"event: nothing\n\n\n\ndata: one\n\n", [("", "one")]),
        (b"data: broken \xff byte\n\n", [("", "broken \N{REPLACEMENT CHARACTER} byte")]),
        (b"", []),
    ],
)
def test_the_forms_of_events(sent: bytes, events: list[tuple[str, str]]) -> None:
    assert read([sent]) == [StreamEvent(*event) for event in events]


@given(st.lists(st.text(st.characters(exclude_characters="\r\n\ufeff")), min_size=1), st.data())
def test_events_do_not_depend_on_how_their_bytes_are_cut(texts: list[str], data: st.DataObject) -> None:
    sent = "".join(f"data: {text}\n\n" for text in texts).encode("utf-8", "replace")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)))))
    pieces = [sent[start:end] for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    assert read(pieces) == read([sent])
    assert [event.data for event in read(pieces)] == [text.encode("utf-8", "replace").decode() for text in texts]


@pytest.mark.parametrize("n_bytes", [MAX_LINE_BYTES, 3 * MAX_LINE_BYTES])
def test_a_line_without_end_is_not_kept(n_bytes: int) -> None:
    with pytest.raises(EndpointAnswerError, match="http://server streams a line of more than 1 MiB"):
        read([b"data: ", *[b"x" * 4096] * (n_bytes // 4096)])


def test_an_event_of_endless_lines_is_not_kept() -> None:
    line = b"data: " + b"x" * 100_000 + b"\n"
    with pytest.raises(EndpointAnswerError, match="an event of more than 4 MiB"):
        read([line] * (MAX_EVENT_BYTES // len(line) + 2))


@pytest.mark.parametrize("sent", [b'{"not": "an event"}\n', b"<html>\n<body>\n", b"\x1b[31m: x\n"])
def test_what_is_no_event_is_shown_without_control_characters(sent: bytes) -> None:
    with pytest.raises(EndpointAnswerError, match="no event") as caught:
        read([sent])
    assert caught.value.message.isprintable()
