"""Who drafts in a reply, what it brings, and whether speculation rests."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from localspec.engine.events import Step
from localspec.engine.metrics import RequestMetrics
from localspec.engine.requests import Mode
from localspec.speculative.drafter import DraftSource

SOURCE_NAMES: Final[dict[DraftSource | None, str]] = {
    DraftSource.MODEL: "draft model",
    DraftSource.LOOKUP: "copied",
    None: "none",
}

# "Of late", in steps.
_LATE: Final = 32
# Fewer steps prove no rest.
_LEAST_STEPS: Final = 8
# A probe now and then does not end a rest, unless it brings something: drafts per step, and accepted tokens.
_MOST_PROBES: Final = 1 / 16
_MOST_ACCEPTED: Final = 1 / 8

_SOURCES: Final[dict[Mode, tuple[DraftSource | None, ...]]] = {
    Mode.AUTO: (DraftSource.MODEL, DraftSource.LOOKUP, None),
    Mode.DRAFT: (DraftSource.MODEL, None),
    Mode.LOOKUP: (DraftSource.LOOKUP, None),
    Mode.PLAIN: (),
}
_RESTING: Final = {
    Mode.AUTO: "resting: drafts do not pay here",
    Mode.DRAFT: "resting: drafts do not pay here",
    Mode.LOOKUP: "resting: nothing to copy here",
}
_OFF: Final = "off: at most 0 are drafted"


@dataclass(frozen=True, slots=True)
class Contribution:
    """What came from `source` (None: steps without a draft).

    `share`: its part of the steps. `acceptance`: accepted / drafted of its drafts. None where there is nothing yet.
    """

    source: DraftSource | None
    share: float | None
    acceptance: float | None


def contributions(mode: Mode, metrics: RequestMetrics | None) -> list[Contribution]:
    """One for each source that `mode` has; none in plain mode."""
    return [_contribution(source, metrics) for source in _SOURCES[mode]]


def recent_draft_length(steps: Sequence[Step]) -> float | None:
    """Tokens drafted at once in the latest steps, on average. Steps without a draft do not count."""
    lengths = [step.n_draft for step in _latest(steps) if step.n_draft]
    return sum(lengths) / len(lengths) if lengths else None


def rest_note(mode: Mode, ceiling: int | None, steps: Sequence[Step]) -> str:
    """Why next to nothing was drafted of late, if that is so."""
    if mode is Mode.PLAIN:
        return ""
    latest = _latest(steps)
    n_drafts = sum(step.n_draft > 0 for step in latest)
    n_accepted = sum(step.n_accepted for step in latest)
    rests = n_drafts <= _MOST_PROBES * len(latest) and n_accepted <= _MOST_ACCEPTED * len(latest)
    if len(latest) < _LEAST_STEPS or not rests:
        return ""
    return _OFF if ceiling == 0 else _RESTING[mode]


def _contribution(source: DraftSource | None, metrics: RequestMetrics | None) -> Contribution:
    if metrics is None or not metrics.n_steps:
        return Contribution(source, None, None)
    n_copies = metrics.n_lookup_steps
    match source:
        case None:
            n_steps, n_drafted, n_accepted = metrics.n_plain_steps, 0, 0
        case DraftSource.LOOKUP:
            n_steps, n_drafted, n_accepted = n_copies, metrics.n_lookup_drafted, metrics.n_lookup_accepted
        case DraftSource.MODEL:
            n_steps = metrics.n_steps - metrics.n_plain_steps - n_copies
            n_drafted = metrics.n_drafted - metrics.n_lookup_drafted
            n_accepted = metrics.n_accepted - metrics.n_lookup_accepted
    return Contribution(source, n_steps / metrics.n_steps, n_accepted / n_drafted if n_drafted else None)


def _latest(steps: Sequence[Step]) -> list[Step]:
    return list(itertools.islice(steps, max(0, len(steps) - _LATE), None))
