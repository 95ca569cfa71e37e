"""A measurement as SVG pictures. Drawn without pyplot: no window system, no global state."""

from __future__ import annotations

import importlib.util
import itertools
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from localspec.bench.figures import Figures, Results, Scope
from localspec.bench.schedule import Contender
from localspec.errors import UsageError
from localspec.printable import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MAX_CONTENDERS: Final = 6
_PANEL_INCHES: Final = (6.0, 4.0)
_INCHES_PER_BAR: Final = 0.16

Drawing = Callable[["Axes", Scope], None]


def require_plots() -> None:
    """Refuse before hours of measuring, not after.

    Raises:
        UsageError: the library that draws is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        install = f"{sys.executable} -m pip install matplotlib"
        raise UsageError("--plots needs matplotlib.", hint=f"Install it with: {install}")


def write_plots(results: Results, folder: Path) -> list[Path]:
    """Draw what the measurement holds into files of `folder`, which is made; returns them.

    speed.svg and acceptance.svg always; length.svg with a sweep of fixed lengths, context.svg with several contexts.

    Raises:
        OSError: a file cannot be written.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it warns of its font cache, which is nobody's concern
    import matplotlib

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with (
        # Text stays text, names are not read as formulas, and the same numbers give the same file.
        matplotlib.rc_context(
            {"svg.fonttype": "none", "svg.hashsalt": "localspec", "text.parse_math": False, "font.size": 9}
        ),
        warnings.catch_warnings(),
    ):
        # A prompt's name may be in a script that the font lacks; a browser has others.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        for name, figure in _figures(results):
            path = folder / f"{name}.svg"
            figure.savefig(path, format="svg", metadata={"Date": None})
            written.append(path)
    return written


def _figures(results: Results) -> Iterator[tuple[str, Figure]]:
    shown = _shown(results)
    n_bars = len(shown) * max(sum(scope.includes(cell) for cell in results.cells) for scope in results.scopes())
    yield "speed", _panels(results, lambda axes, scope: _speed(axes, results, scope, shown), n_bars)
    yield "acceptance", _panels(results, lambda axes, scope: _acceptance(axes, results, scope, shown))
    if results.fixed_lengths():
        yield "length", _panels(results, lambda axes, scope: _length(axes, results, scope))
    if len(results.contexts) > 1:
        yield "context", _panels(results, lambda axes, scope: _context(axes, results, scope, shown))


def _shown(results: Results) -> Sequence[Contender]:
    """All contenders, or of many those that adapt: a sweep has a picture of its own."""
    if len(results.contenders) <= _MAX_CONTENDERS:
        return results.contenders
    return [contender for contender in results.contenders if contender.fixed_length is None]


def _panels(results: Results, draw: Drawing, n_bars: int = 0) -> Figure:
    """One panel per temperature, on a common scale."""
    from matplotlib.figure import Figure

    scopes = [scope for scope in results.scopes() if scope.temperature is not None]
    width, height = _PANEL_INCHES
    size = (width * len(scopes), max(height, n_bars * _INCHES_PER_BAR + 1))
    figure = Figure(figsize=size, layout="constrained")
    for axes, scope in zip(figure.subplots(1, len(scopes), sharey=True, squeeze=False)[0], scopes, strict=True):
        axes.set_title(str(scope))
        draw(axes, scope)
        axes.grid(alpha=0.3)
        axes.set_axisbelow(True)
    entries = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if entries:
        figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=min(4, len(entries)))
    return figure


def _speed(axes: Axes, results: Results, scope: Scope, contenders: Sequence[Contender]) -> None:
    """Tokens per second by prompt and mode, with the extremes over the repetitions."""
    cells = [cell for cell in results.cells if scope.includes(cell)]
    height = 0.8 / len(contenders)
    for i, contender in enumerate(contenders):
        speeds = [(row, results.of_cell(contender, cell).speed) for row, cell in enumerate(cells)]
        known = [(row, speed) for row, speed in speeds if speed is not None]
        axes.barh(
            [row + (i - (len(contenders) - 1) / 2) * height for row, _ in known],
            [speed.middle for _, speed in known],
            height,
            xerr=[
                [speed.middle - speed.low for _, speed in known],
                [speed.high - speed.middle for _, speed in known],
            ],
            error_kw={"linewidth": 0.8},
            color=f"C{i}",
            label=str(contender),
        )
    axes.set_yticks(range(len(cells)), [one_line(cell.prompt_name) for cell in cells])
    axes.set_ylim(len(cells) - 0.5, -0.5)  # the first prompt on top
    axes.set_xlabel("tokens/s")


def _acceptance(axes: Axes, results: Results, scope: Scope, contenders: Sequence[Contender]) -> None:
    """Share of the drafted tokens that were kept, by position in the draft."""
    for i, contender in enumerate(contenders):
        rates = results.over(contender, scope).metrics.acceptance_by_position
        _line(axes, [(n, rate) for n, rate in enumerate(rates, start=1)], f"C{i}", str(contender))
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("position in the draft")
    axes.set_ylabel("accepted, of those looked at")


def _length(axes: Axes, results: Results, scope: Scope) -> None:
    """Time per token against the fixed length of drafts; contenders that adapt are level lines."""
    colours = (f"C{i}" for i in itertools.count())
    for mode, sweep in results.fixed_lengths().items():
        points = [(each.fixed_length or 0, _ms_per_token(results.over(each, scope))) for each in sweep]
        _line(axes, points, next(colours), f"{mode}, fixed length")
    for contender in results.contenders:
        if contender.fixed_length is None and (cost := _ms_per_token(results.over(contender, scope))) is not None:
            axes.axhline(cost, linestyle="--", color=next(colours), label=str(contender))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("tokens per draft")
    axes.set_ylabel("ms/token")


def _context(axes: Axes, results: Results, scope: Scope, contenders: Sequence[Contender]) -> None:
    """Time per token against the length of the context."""
    for i, contender in enumerate(contenders):
        scopes = {n_context: Scope(scope.temperature, n_context) for n_context in sorted(results.contexts)}
        points = [(n_context, _ms_per_token(results.over(contender, each))) for n_context, each in scopes.items()]
        _line(axes, points, f"C{i}", str(contender))
    axes.set_xscale("log", base=2)
    axes.set_xticks(results.contexts, map(str, results.contexts))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("context in tokens")
    axes.set_ylabel("ms/token")


def _line(axes: Axes, points: Iterable[tuple[int, float | None]], colour: str, label: str) -> None:
    """A line through the points that were measured."""
    known = [(x, y) for x, y in points if y is not None]
    if known:
        axes.plot([x for x, _ in known], [y for _, y in known], marker=".", color=colour, label=label)


def _ms_per_token(each: Figures) -> float | None:
    return 1e3 / each.speed.middle if each.speed else None
