"""What attention takes at the context lengths that prompts reach: measured in place, before the first step.

At load the cache is empty, and to fill it would take as long as reading a prompt. When a prompt has been read anyway, a
few passes over it cost little more.
"""

from __future__ import annotations

from typing import Final

from localspec.llama.sequence_cache import SequenceCache
from localspec.speculative.pass_times import PassTimes

__all__ = ["learn_context_times"]

_WIDTHS: Final = (1, 3)
_N_TIMES: Final = 2  # of which the faster one counts


def learn_context_times(times: PassTimes, cache: SequenceCache, *, n_outputs_max: int) -> None:
    """Time passes over what the cache holds, if that would show something new. The cache is afterwards as before.

    Raises:
        EngineError: a pass failed; the cache is as before, or empty.
    """
    n_cells = cache.n_past
    if not times.is_worth_measuring(n_cells):
        return
    measured: dict[int, float] = {}
    for n_rows in _WIDTHS * _N_TIMES:
        pass_s = cache.time_pass(n_rows, n_outputs=min(n_rows, n_outputs_max))
        if pass_s is None:
            return
        measured[n_rows] = min(pass_s, measured.get(n_rows, pass_s))
    times.learn_context(n_cells, measured)
