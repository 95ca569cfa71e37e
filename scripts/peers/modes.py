"""The ways in which llama-server is run. Flags and defaults are those of b11434."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Final

from localspec.errors import UsageError


@dataclass(frozen=True, slots=True)
class ServerMode:
    """`flags` choose the speculation; files, threads and context come from the comparison.

    `remembers`: it keeps n-grams of earlier replies and would replay them when a prompt comes again, as it does in
    every repetition here. Such a server is started anew for each reply.
    """

    name: str
    flags: tuple[str, ...] = ()
    remembers: bool = False

    @property
    def types(self) -> tuple[str, ...]:
        """The kinds of speculation asked for, by llama-server's names."""
        position = self.flags.index("--spec-type") + 1 if "--spec-type" in self.flags else len(self.flags)
        return tuple("".join(self.flags[position : position + 1]).split(",")) if self.flags[position:] else ()

    @property
    def needs_draft_model(self) -> bool:
        """True when a draft model takes part."""
        return any(name.startswith("draft-") for name in self.types)


def _mode(name: str, flags: str = "", *, remembers: bool = False) -> ServerMode:
    return ServerMode(name, tuple(flags.split()), remembers)


_PROBABILISTIC: Final = "--spec-draft-sampling probabilistic --spec-draft-n-max 8"
_SHORT: Final = "--spec-ngram-simple-size-n 3 --spec-ngram-simple-size-m 8"

MODES: Final = {
    mode.name: mode
    for mode in (
        _mode("plain"),
        _mode("greedy", "--spec-type draft-simple"),  # its default: 3 tokens, the draft's argmax
        _mode("greedy8", "--spec-type draft-simple --spec-draft-n-max 8"),
        _mode("probabilistic", f"--spec-type draft-simple {_PROBABILISTIC}"),
        _mode("ngram", "--spec-type ngram-simple"),  # its default: 48 tokens after 12 that occurred before
        _mode("ngram-short", f"--spec-type ngram-simple {_SHORT}"),
        _mode("ngram-map", "--spec-type ngram-map-k", remembers=True),
        _mode("ngram-mod", "--spec-type ngram-mod", remembers=True),
        _mode("ngram-cache", "--spec-type ngram-cache", remembers=True),
        _mode("combined", f"--spec-type ngram-simple,draft-simple {_PROBABILISTIC}"),
        _mode("combined-short", f"--spec-type ngram-simple,draft-simple {_SHORT} {_PROBABILISTIC}"),
    )
}
DEFAULT_MODES: Final = ("plain", "greedy", "probabilistic", "ngram", "combined")


def own_mode(text: str) -> ServerMode:
    """A mode from the command line, NAME=FLAGS. It is taken to remember when it uses n-grams.

    Raises:
        UsageError: it has another form, or a name that is taken.
    """
    name, _, flags = text.partition("=")
    if not re.fullmatch(r"[\w.-]+", name) or not flags:
        raise UsageError(
            f"--mode is {text!r}; it should be NAME=FLAGS.",
            hint="Such as --mode 'greedy12=--spec-type draft-simple --spec-draft-n-max 12'.",
        )
    if name in MODES:
        raise UsageError(f"--mode {name} is a name that is taken.", hint=f"Taken are: {', '.join(MODES)}.")
    mode = ServerMode(name, tuple(shlex.split(flags)))
    return ServerMode(name, mode.flags, remembers=any(kind.startswith("ngram-") for kind in mode.types))
