"""What the command line says on stderr: errors with their hint, progress, summaries."""

from __future__ import annotations

import json
import sys
from typing import Final, TextIO

from localspec.engine.events import LoadEvent, Loading
from localspec.engine.metrics import RequestMetrics
from localspec.errors import LocalspecError
from localspec.printable import printable

# The exit code of a shell for what Ctrl-C has ended.
INTERRUPTED: Final = 130
_BUSY_SHARE: Final = 0.2


def say(text: str) -> None:
    """One line for the person, never for a pipe."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def say_error(error: LocalspecError) -> None:
    """An error and its next step."""
    say(f"localspec: {printable(error.message)}")
    if error.hint:
        say(f"  {printable(error.hint)}")


def say_if_busy() -> None:
    """Warn before a measurement on a machine that others use. Takes half a second."""
    from localspec.memory.processors import busy_share

    share = busy_share(0.5)
    if share >= _BUSY_SHARE:
        say(f"Other programs use {share:.0%} of the processor: speeds will scatter, and settings may be misjudged.")


def write_json(answer: object) -> None:
    """One JSON document on stdout, in ASCII: what files are named must neither steer a terminal nor break it."""
    sys.stdout.write(json.dumps(answer, ensure_ascii=True) + "\n")
    sys.stdout.flush()


class LoadProgress:
    """A load listener: one line that is rewritten on a terminal, silent elsewhere."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._shown = ""

    def __call__(self, event: LoadEvent) -> None:
        """Show the event."""
        if not self._stream.isatty():
            return
        text = f"{event.what} {event.fraction:4.0%}" if isinstance(event, Loading) else ""
        if text != self._shown:
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()
            self._shown = text


# How a reply ended, where that is worth a word.
_CUT: Final = {"length": "cut at --max-tokens", "context_full": "cut where the context is full", "cancelled": "stopped"}


def summary(metrics: RequestMetrics, mode: str, finish_reason: str) -> str:
    """One line: how fast it went and why. `mode` "": a server has replied, which may not tell how many tokens."""
    n_tokens = f"{metrics.n_tokens} tokens" if metrics.n_tokens or mode else ""
    parts = list(filter(None, [n_tokens, _CUT.get(finish_reason)]))
    if metrics.tokens_per_second is not None:
        parts.append(f"{metrics.tokens_per_second:.1f} tokens/s")
    if metrics.draft_acceptance_rate is not None:
        copied = f", {metrics.n_lookup_accepted} copied" if metrics.n_lookup_accepted else ""
        share = f"{metrics.n_accepted}/{metrics.n_drafted}{copied}"
        parts.append(f"acceptance {metrics.draft_acceptance_rate:.0%} ({share})")
    if metrics.n_steps:
        parts.append(f"{metrics.n_tokens / metrics.n_steps:.2f} tokens/step")
    if metrics.ttft_s is not None:
        parts.append(f"first token after {metrics.ttft_s:.2f} s")
    return " · ".join([*parts, *([f"{mode} mode"] if mode else [])])
