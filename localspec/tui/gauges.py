"""Histories in one line of text: readable without colour, since height carries the value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from textual.content import Content

from localspec.engine.events import Step
from localspec.speculative.drafter import DraftSource

_BARS: Final = "▁▂▃▄▅▆▇█"
_PLAIN_STEP: Final = "·"


def sparkline(values: Iterable[float], width: int) -> str:
    """The last `width` values, from zero at the bottom to the highest of them; `width` cells."""
    shown = tuple(values)[-width:] if width > 0 else ()
    highest = max(shown, default=0.0)
    bars = "".join(_bar(value / highest) if highest > 0 else _BARS[0] for value in shown)
    return bars.rjust(width)


def acceptance_strip(steps: Iterable[Step], width: int) -> Content:
    """One cell for each of the last `width` steps: what it accepted, in proportion to the longest draft among them.

    A dot is a step without a draft. In colour, drafts and copies that were accepted whole stand out from partly
    accepted ones, and those from steps that accepted nothing.
    """
    shown = tuple(steps)[-width:] if width > 0 else ()
    longest = max((step.n_draft for step in shown), default=0)
    cells = [_step_cell(step, longest) for step in shown]
    return Content.assemble(" " * (width - len(cells)), *cells)


def progress_bar(fraction: float, width: int) -> Content:
    """A bar of `width` cells, `fraction` (0 to 1) of them heavy."""
    n_done = round(width * min(1.0, max(0.0, fraction)))
    return Content.assemble(("━" * n_done, "$accent"), ("─" * (width - n_done), "dim"))


def _bar(share: float) -> str:
    return _BARS[min(len(_BARS) - 1, max(0, round(share * (len(_BARS) - 1))))]


def _step_cell(step: Step, longest: int) -> tuple[str, str]:
    if not step.n_draft:
        return _PLAIN_STEP, "dim"
    bar = _bar(step.n_accepted / longest)
    if step.n_accepted == step.n_draft:
        # Not the lowest bar: a short draft beside a long copy must not look like none.
        return max(bar, _BARS[1]), "$secondary" if step.source is DraftSource.LOOKUP else "$accent"
    return (max(bar, _BARS[1]), "$foreground") if step.n_accepted else (_BARS[0], "$warning")
