"""One chunk of a streamed chat completion, and the numbers in it, checked: text of a server that may send anything."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from typing import Any, Final

from localspec.errors import EndpointAnswerError
from localspec.printable import one_line
from localspec.remote.refusals import error_in

__all__ = ["Chunk", "Progress", "Reported", "read_chunk"]

_SURROGATES: Final = re.compile("[\ud800-\udfff]")  # halves of a character: they cannot be sent back as UTF-8
_MOST: Final = 2**53  # more is no count


@dataclass(frozen=True, slots=True)
class Reported:
    """What a server says of a reply so far; None: it does not say.

    `n_draft_steps`: steps that had a draft. `tokens_per_second`: its own figure, without the prompt.
    """

    n_prompt_tokens: int | None = None
    n_cached_tokens: int | None = None
    n_tokens: int | None = None
    n_drafted: int | None = None
    n_accepted: int | None = None
    n_draft_steps: int | None = None
    tokens_per_second: float | None = None

    def updated(self, newer: Reported) -> Reported:
        """What `newer` says, and where it says nothing, what was said before."""
        names = [field.name for field in fields(self)]
        return Reported(
            **{name: getattr(self, name) if getattr(newer, name) is None else getattr(newer, name) for name in names}
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """Tokens of the prompt that were read, of all, and of these those that were cached."""

    n_done: int
    n_total: int
    n_cached: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """`text` and `reasoning` are what it adds; `finish_reason` is None until the reply ends.

    `error` is what the server says in place of all that, as `error_in` finds it.
    """

    text: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    reported: Reported = Reported()
    progress: Progress | None = None
    error: Any = None


def read_chunk(data: str, server: str) -> Chunk:
    """The chunk that an event holds; `server` is named in errors.

    Raises:
        EndpointAnswerError: it is no JSON, or has not the form of a chunk.
    """
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _unusable(server, "no JSON", data) from error
    if not isinstance(answer, dict):
        raise _unusable(server, "no object", data)
    if said := error_in(answer):
        return Chunk(error=said)
    choices = answer.get("choices") or []
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise _unusable(server, "choices in another form", data)
    choice: dict[str, Any] = next((each for each in choices if each.get("index") in (0, None)), {})
    delta = choice.get("delta") or {}
    if not isinstance(delta, dict):
        raise _unusable(server, "a delta in another form", data)
    reasoning = delta.get("reasoning_content") or delta.get("reasoning")
    parts = {"text": delta.get("content") or delta.get("refusal"), "reasoning": reasoning}
    if not all(part is None or isinstance(part, str) for part in parts.values()):
        raise _unusable(server, "text in another form", data)
    finish_reason = choice.get("finish_reason")
    return Chunk(
        **{name: _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", part or "") for name, part in parts.items()},
        finish_reason=finish_reason if isinstance(finish_reason, str) else None,
        reported=_reported(answer),
        progress=_progress(answer.get("prompt_progress")),
    )


def _reported(answer: dict[str, Any]) -> Reported:
    """OpenAI's `usage`, llama.cpp's `timings`, vLLM's `metrics.speculative_decoding`; the later ones are newer."""
    usage, timings = _section(answer, "usage"), _section(answer, "timings")
    drafts = _section(_section(answer, "metrics"), "speculative_decoding")
    n_read, n_cached = _count(timings, "prompt_n"), _count(timings, "cache_n")
    reported = Reported(
        n_prompt_tokens=_count(usage, "prompt_tokens"),
        n_cached_tokens=_count(_section(usage, "prompt_tokens_details"), "cached_tokens"),
        n_tokens=_count(usage, "completion_tokens"),
    ).updated(
        Reported(
            n_prompt_tokens=None if n_read is None or n_cached is None else n_read + n_cached,
            n_cached_tokens=n_cached,
            n_tokens=_count(timings, "predicted_n"),
            tokens_per_second=_speed(timings.get("predicted_per_second")),
            **_drafts(timings, "draft_n", "draft_n_accepted"),
        )
    )
    return reported.updated(
        Reported(
            n_draft_steps=_count(drafts, "num_spec_steps"),
            **_drafts(drafts, "num_draft_tokens", "num_accepted_draft_tokens"),
        )
    )


def _drafts(section: dict[str, Any], drafted: str, accepted: str) -> dict[str, int | None]:
    """Both or none: either alone says nothing, and nobody accepts more than was drafted."""
    n_drafted, n_accepted = _count(section, drafted), _count(section, accepted)
    if n_drafted is None or n_accepted is None or n_accepted > n_drafted:
        return {}
    return {"n_drafted": n_drafted, "n_accepted": n_accepted}


def _progress(section: Any) -> Progress | None:
    if not isinstance(section, dict):
        return None
    done, total, cached = (_count(section, name) for name in ("processed", "total", "cache"))
    if done is None or total is None or done > total:
        return None
    return Progress(done, total, min(cached or 0, done))


def _section(answer: dict[str, Any], name: str) -> dict[str, Any]:
    section = answer.get(name)
    return section if isinstance(section, dict) else {}


def _count(section: dict[str, Any], name: str) -> int | None:
    value = section.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST else None


def _speed(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 < value <= _MOST else None


def _unusable(server: str, what: str, data: str) -> EndpointAnswerError:
    return EndpointAnswerError(
        f"{server} streams {what}: {one_line(data[:100])}",
        hint="Its version may be too old or too new, or something in between changes its answers.",
    )
