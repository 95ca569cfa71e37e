"""What the styles of the origin view mean."""

from __future__ import annotations

from collections import Counter

from textual.content import Content
from textual.widget import Widget

from localspec.engine.events import Step
from localspec.speculative.rejection import Origin
from localspec.tui import figures
from localspec.tui.origins import ORIGIN_STYLES


class OriginLegend(Widget):
    """One line: each origin in its own style, with the tokens of the last reply that came from it."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: Counter[Origin] = Counter()

    def begin(self) -> None:
        """A reply begins."""
        self._counts.clear()
        self.refresh()

    def advance(self, steps: tuple[Step, ...]) -> None:
        """Some steps were decoded."""
        for step in steps:
            self._counts.update(step.origins)
        self.refresh()

    def render(self) -> Content:
        """The line."""
        entries = [
            Content.assemble((origin.value, style), " ", figures.count(self._counts[origin]))
            for origin, style in ORIGIN_STYLES.items()
        ]
        line = Content("   ").join(entries)
        titled = Content.assemble(("tokens by origin  ", "dim"), line)
        return titled if titled.cell_length <= self.content_size.width else line
