"""Sizes, fits and speeds of models as they stand in the lists: a sign and words, and a colour that adds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from localspec.models.compat import Verdict
from localspec.pairing.downloads import Download, DownloadState
from localspec.pairing.fit import Fit
from localspec.printable import one_line
from localspec.quantities import span
from localspec.tui import figures
from localspec.tui.figures import file_size
from localspec.tui.gauges import progress_bar

if TYPE_CHECKING:
    from localspec.pairing.drafts import DraftOption

VERDICT_SIGNS: Final = {Verdict.IDENTICAL: "=", Verdict.COMPATIBLE: "≈", Verdict.REFUSED: "✗"}

_FITS: Final = {
    Fit.FITS: ("✓ fits", "$success"),
    Fit.PARTLY: ("◐ partly", "$warning"),
    Fit.TOO_LARGE: ("✗ too large", "$error"),
    Fit.UNKNOWN: ("? size", "dim"),
}
_BAR_WIDTH: Final = 20
_LEAST_NAME: Final = 16


def fit_text(fit: Fit) -> Content:
    """Whether it has room, at most 11 cells."""
    text, style = _FITS[fit]
    return Content.styled(text, style)


def draft_fit_text(option: DraftOption) -> Content:
    """The same for a draft beside its target."""
    if option.is_refused:
        return Content.styled("✗ refused", "$error")
    if option.plan is None:
        return Content.styled("? weights", "dim")
    if option.fits:
        return Content.styled("✓ fits", "$success")
    return Content.styled("✗ no room", "$error")


def speed_text(option: DraftOption) -> Content:
    """How many times as fast as the target alone: measured, or predicted ("~"); at most 7 cells."""
    if option.measured is not None:
        return Content.styled(f"{option.measured.speedup:.2f} x", "bold")
    if option.prediction is not None:
        return Content.styled(f"~{option.prediction.speedup:.1f} x", "")
    return Content.styled(figures.NOTHING, "dim")


def parameters(count: int | None) -> str:
    """A number of weights, as models are named by it."""
    if not count:
        return ""
    return f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count / 1e6:.0f}M"


def tokens(count: int) -> str:
    """A context size, at most 5 cells: 128k is 131,072."""
    if not count:
        return figures.NOTHING
    return f"{count // 1024}k" if count >= 1024 else str(count)


def download_line(row: Download, width: int) -> Content:
    """A name, a bar, how far, how fast, how long still; a narrow window leaves out the bar."""
    name = Content(one_line(row.reference.rpartition("/")[2]))
    share = row.n_done_bytes / max(1, row.n_total_bytes)
    state = _download_state(row)
    room = width - state.cell_length - 2
    bar_width = min(_BAR_WIDTH, room - _LEAST_NAME - 2)
    has_bar = bar_width >= 6 and row.state is not DownloadState.FAILED
    name_width = max(0, room - (bar_width + 2 if has_bar else 0))
    bar = Content("  ") + progress_bar(share, bar_width) if has_bar else Content("")
    return Content.assemble(
        name.truncate(name_width, ellipsis=True).pad_right(max(0, name_width - name.cell_length)), bar, "  ", state
    ).truncate(width, ellipsis=True)


def _download_state(row: Download) -> Content:
    done = f"{file_size(row.n_done_bytes)} of {file_size(row.n_total_bytes)}"
    match row.state:
        case DownloadState.RUNNING:
            pace = f"{file_size(row.bytes_per_second)}/s" if row.bytes_per_second else "waiting"
            left = "" if row.seconds_left is None else f"{span(row.seconds_left)} left"
            return Content("  ".join(filter(None, (done, pace, left))))
        case DownloadState.FAILED:
            error = one_line(row.error.message) if row.error is not None else ""
            return Content.styled(f"✗ failed: {error}".strip(": "), "$error")
        case DownloadState.DONE:
            return Content.styled(f"✓ {file_size(row.n_total_bytes)}, here", "$success")
        case DownloadState.WAITING:
            return Content.styled(f"{file_size(row.n_total_bytes)}, waits for its turn", "dim")
        case _:
            return Content.styled(f"{row.state.value}, {done} are kept", "dim")
