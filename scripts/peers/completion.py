"""One reply from llama-server, or from localspec in its words: `/completion`, streamed as server-sent events.

The standard library's HTTP client: each message is stamped as it comes off the socket, and the client takes next to
nothing of the cores that are measured.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from localspec.engine.requests import SamplingParams
from localspec.errors import EngineError
from localspec.printable import printable
from scripts.peers.reply import Reply

HOST: Final = "127.0.0.1"
# The transforms that localspec applies, in its order.
SAMPLERS: Final = ("top_k", "top_p", "min_p", "temperature")
_SILENCE_TIMEOUT_S: Final = 600.0
_MAX_LINE_BYTES: Final = 1 << 20


def request_body(prompt: Sequence[int], sampling: SamplingParams, max_tokens: int) -> dict[str, Any]:
    """The request of a reply to these tokens, sampled as localspec would. The prompt is computed anew each time."""
    return {
        "prompt": list(prompt),
        "n_predict": max_tokens,
        "stream": True,
        "cache_prompt": False,
        "ignore_eos": False,
        "samplers": list(SAMPLERS),
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repeat_penalty": sampling.repeat_penalty,
        "seed": sampling.seed,
    }


def complete(port: int, body: dict[str, Any]) -> Reply:
    """Ask the server on this port, and wait for the whole reply.

    Raises:
        EngineError: it refuses, breaks off, or answers something else.
    """
    connection = http.client.HTTPConnection(HOST, port, timeout=_SILENCE_TIMEOUT_S)
    try:
        connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise EngineError(f"The server answered {response.status}: {_shortened(response.read(_MAX_LINE_BYTES))}")
        return read_reply(_lines(response))
    except (OSError, http.client.HTTPException) as error:
        raise EngineError(f"The server broke off: {str(error) or type(error).__name__}.") from error
    finally:
        connection.close()


def _lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while line := response.readline(_MAX_LINE_BYTES):
        if len(line) == _MAX_LINE_BYTES:
            raise EngineError(f"The server sent a line without end: {_shortened(line)}")
        yield line


def read_reply(lines: Iterable[bytes], now: Callable[[], float] = time.perf_counter) -> Reply:
    """The reply in the lines of a stream, each stamped with the time at which it came.

    Every message tells how many tokens there are so far, also where one holds several: text waits for the rest of a
    split character. So the count is exact without a tokenizer.

    Raises:
        EngineError: the server reports an error, the stream ends early, or a message has another form.
    """
    arrivals: list[tuple[float, int]] = []
    for line in lines:
        arrived_s = now()
        if not line.startswith(b"data: "):
            if line.startswith(b"error: "):
                raise EngineError(f"The server failed: {_shortened(line)}")
            continue
        try:
            message = json.loads(line.removeprefix(b"data: "))
            if "error" in message:
                raise EngineError(f"The server failed: {_shortened(line)}")
            if message["stop"]:
                return _finished(arrivals, message)
            n_tokens = int(message["tokens_predicted"])
        except (ValueError, KeyError, TypeError) as error:
            raise EngineError(f"The server sent a message that is not understood: {_shortened(line)}") from error
        if n_tokens > (arrivals[-1][1] if arrivals else 0):
            arrivals.append((arrived_s, n_tokens))
    raise EngineError("The server ended its reply in the middle.")


def _finished(arrivals: list[tuple[float, int]], message: dict[str, Any]) -> Reply:
    """The last message brings no token, only the figures."""
    timings = message["timings"]
    if int(timings["cache_n"]):
        raise EngineError("The server took a prompt from its cache, which was turned off.")
    return Reply(
        arrivals=tuple(arrivals),
        n_prompt_tokens=int(message["tokens_evaluated"]),
        n_drafted=int(timings.get("draft_n", 0)),
        n_accepted=int(timings.get("draft_n_accepted", 0)),
        own_tokens_per_second=float(timings["predicted_per_second"]),
    )


def _shortened(data: bytes) -> str:
    text = printable(data.decode("utf-8", "replace")).strip()
    return text if len(text) <= 300 else f"{text[:300]} ..."
