"""Five hundred bodies that were valid once: none makes the endpoint fail, or say anything about itself."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import localspec
from localspec.server.settings import ServerSettings
from tests.server.raw_client import RawConnection, request, running

N_BODIES: Final = 500
WEATHER: Final = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
VALID: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5, "stream": True}),
    (
        "/v1/chat/completions",
        {
            "model": "any",
            "messages": [
                {"role": "system", "content": "Brief."},
                {"role": "user", "content": [{"type": "text", "text": "é"}]},
            ],
            "tools": [WEATHER],
            "tool_choice": "auto",
            "temperature": 0.5,
            "logit_bias": {"15": -100},
            "stop": ["a", "b"],
            "seed": 7,
        },
    ),
    (
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": "Hello"}],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": WEATHER["function"]["parameters"]},
            },
            "logprobs": True,
            "top_logprobs": 3,
            "localspec": {"mode": "draft", "num_speculative_tokens": 4},
        },
    ),
    ("/v1/completions", {"prompt": ["Hello", "there"], "max_tokens": 3, "echo": True, "logprobs": 2, "n": 2}),
    ("/v1/completions", {"prompt": [1, 2, 3], "top_p": 0.9, "min_p": 0.1, "stream": True}),
    ("/v1/responses", {"input": "Hello", "instructions": "Brief.", "max_output_tokens": 20, "stream": True}),
    ("/v1/embeddings", {"input": ["Hello"], "encoding_format": "float"}),
    ("/completion", {"prompt": "Hello", "n_predict": 4, "temperature": 0, "samplers": ["top_k"], "stream": False}),
    ("/infill", {"input_prefix": "def f(", "input_suffix": ")", "input_extra": [{"filename": "a.py", "text": "x"}]}),
    ("/tokenize", {"content": "Hello", "add_special": True, "with_pieces": True}),
    ("/detokenize", {"tokens": [72, 105]}),
    ("/apply-template", {"messages": [{"role": "user", "content": "Hello"}]}),
)
ODD: Final[tuple[Any, ...]] = (
    *(None, True, -1, 0, 1e308, 10**30, "", "\u0000", "\x7f\u202e", "x" * 5000, [], {}, [[]], [{}], {"": {}}),
    *([None], [1e-320], "/etc/passwd", "{{ 7 * 7 }}", "root ::= root", "(" * 500, "🙂" * 10, [[1, "a"], 2.5]),
    *({"$ref": "#"}, {"type": "array", "items": {"$ref": "#/x"}}, {"type": "object", "additionalProperties": False}),
)


def test_no_malformed_body_makes_it_fail_or_talk() -> None:
    chance = random.Random(20261130)
    statuses: Counter[int] = Counter()
    with running(ServerSettings(body_timeout_s=2, shutdown_s=1)) as port:
        for number in range(N_BODIES):
            path, body = chance.choice(VALID)
            raw = chance.choice(MUTATIONS)(json.loads(json.dumps(body)), chance)
            with RawConnection(port) as connection:
                connection.send(request(path, raw))
                answer = connection.answer()
            what = f"{number}: {path} {raw[:300]!r} -> {answer.status} {answer.body[:300]!r}"
            assert answer.status < 500, what
            assert not any(word in answer.body for word in SECRETS), what
            if answer.status >= 400:
                assert set(json.loads(answer.body)["error"]) == {"message", "type", "param", "code"}, what
            statuses[answer.status] += 1
    assert statuses[400] > N_BODIES / 2  # most of them really are malformed
    assert statuses[200]


SECRETS: Final = (b"Traceback", b'File "', b".py", b"/secret", str(Path(localspec.__file__).parent).encode())


# --- what is done to a body -------------------------------------------------------------------------------------------


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container with a key in it."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in items for place in ((value, key), *_places(inner))]


def _exchanged(body: dict[str, Any], chance: random.Random) -> bytes:
    container, key = chance.choice(_places(body))
    container[key] = chance.choice(ODD)
    return json.dumps(body).encode()


def _renamed(body: dict[str, Any], chance: random.Random) -> bytes:
    container, key = chance.choice([place for place in _places(body) if isinstance(place[0], dict)])
    container[chance.choice([f"{key}x", "__class__", "\u0000", "é" * 300, ""])] = container.pop(key)
    return json.dumps(body).encode()


def _without(body: dict[str, Any], chance: random.Random) -> bytes:
    container, key = chance.choice(_places(body))
    del container[key]
    return json.dumps(body).encode()


def _cut(body: dict[str, Any], chance: random.Random) -> bytes:
    raw = json.dumps(body, ensure_ascii=False).encode()
    return raw[: chance.randrange(1, len(raw))]


def _with_other_bytes(body: dict[str, Any], chance: random.Random) -> bytes:
    raw = bytearray(json.dumps(body, ensure_ascii=False).encode())
    for _ in range(chance.randint(1, 5)):
        raw[chance.randrange(len(raw))] = chance.choice(b'\0\xff\x80"\\{}[],:0e-\n\x1f')
    return bytes(raw)


def _with_a_piece_in_it(body: dict[str, Any], chance: random.Random) -> bytes:
    raw = json.dumps(body).encode()
    place = chance.randrange(len(raw))
    pieces = [b"\\ud800", b"\\u0000", b"NaN", b"-Infinity", b"1" * 5000, b"[" * 300, b"\xef\xbb\xbf", b"/**/", b'"\\x"']
    return raw[:place] + chance.choice(pieces) + raw[place:]


def _nested(body: dict[str, Any], chance: random.Random) -> bytes:
    container, key = chance.choice(_places(body))
    inner: Any = container[key]
    for _ in range(chance.choice([1, 20, 90, 150])):
        inner = [inner] if chance.random() < 0.5 else {"a": inner}
    container[key] = inner
    return json.dumps(body).encode()


def _of_another_kind(body: dict[str, Any], chance: random.Random) -> bytes:
    return json.dumps(chance.choice([[body], "text", 5, None, [], body | {"messages": body}])).encode()


MUTATIONS: Final[tuple[Callable[[dict[str, Any], random.Random], bytes], ...]] = (
    *(_exchanged, _exchanged, _exchanged, _renamed, _without, _cut, _with_other_bytes, _with_a_piece_in_it, _nested),
    _of_another_kind,
)
