"""Server-sent events, from bytes that somebody else sends: bounded, whatever they are."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Final

from localspec.errors import EndpointAnswerError
from localspec.printable import one_line

__all__ = ["StreamEvent", "stream_events"]

MAX_LINE_BYTES: Final = 1 << 20
MAX_EVENT_BYTES: Final = 4 << 20
_MARK: Final = b"\xef\xbb\xbf"  # some servers begin their texts with it
_FIELD: Final = re.compile(rb"[A-Za-z_-]*")


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """`data` of one event, its lines joined; `name` "" unless the server gave one."""

    name: str
    data: str


async def stream_events(pieces: AsyncIterator[bytes], server: str) -> AsyncGenerator[StreamEvent]:
    """The events of a stream, comments left out; an event that the end of the stream cuts off counts as complete.

    Format: WHATWG HTML, "Server-sent events". A field `error`, which old versions of llama-server send in place of
    `data`, makes an event of that name. `server` is named in errors.

    Raises:
        EndpointAnswerError: a line or an event is too long, or a line is none of this format.
    """
    name, data, n_bytes = "", list[str](), 0
    async for line in _lines(pieces, server):
        if not line:
            if data:
                yield StreamEvent(name, "\n".join(data))
            name, data, n_bytes = "", [], 0
            continue
        field, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        n_bytes += len(line)
        if n_bytes > MAX_EVENT_BYTES:
            raise _too_long(server, "an event", MAX_EVENT_BYTES)
        match field:
            case b"data":
                data.append(text)
            case b"event":
                name = text
            case b"error":
                name, data = "error", [text]
            case _ if not _FIELD.fullmatch(field):
                shown = one_line(line[:60].decode("utf-8", "replace"))
                raise EndpointAnswerError(
                    f"{server} streams something that is no event: {shown}",
                    hint="Is it an OpenAI-style server? Its address usually ends with /v1.",
                )
    if data:
        yield StreamEvent(name, "\n".join(data))


async def _lines(pieces: AsyncIterator[bytes], server: str) -> AsyncIterator[bytes]:
    rest, is_first = bytearray(), True
    async for piece in pieces:
        rest += piece
        if b"\n" in piece:
            *lines, tail = rest.split(b"\n")
            rest = tail
            for line in lines:
                yield _checked(bytes(line.removeprefix(_MARK) if is_first else line), server)
                is_first = False
        _checked(rest, server)
    if rest:
        yield _checked(bytes(rest), server)


def _checked(line: bytes | bytearray, server: str) -> bytes:
    if len(line) > MAX_LINE_BYTES:
        raise _too_long(server, "a line", MAX_LINE_BYTES)
    return line.removesuffix(b"\r") if isinstance(line, bytes) else b""


def _too_long(server: str, what: str, limit: int) -> EndpointAnswerError:
    return EndpointAnswerError(
        f"{server} streams {what} of more than {limit >> 20} MiB.", hint="No reply looks like that: check the server."
    )
