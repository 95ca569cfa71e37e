"""First estimates of how long a forward pass takes, by its number of rows. The draft policy keeps them up to date."""

from __future__ import annotations

import time
from typing import Final

from localspec.engine.requests import MAX_NUM_SPECULATIVE_TOKENS
from localspec.llama.context import Context
from localspec.speculative.pass_times import PassTimes

# Kernels differ by width, so there are more points where drafts are short.
_WIDTHS: Final = (1, 2, 3, 5, 9, 17, 1 + MAX_NUM_SPECULATIVE_TOKENS)
# A narrow pass is measured again: it is what everything else is compared with.
_REPETITIONS: Final = {1: 3, 2: 2}
# Slow models are measured up to here; what is missing, the first steps will tell.
_BUDGET_S: Final = 0.6


def measure_pass_times(context: Context, n_outputs_max: int) -> PassTimes:
    """Time passes over an empty cache, which is empty again afterwards.

    Raises:
        EngineError: a pass failed.
    """
    started = time.perf_counter()
    _pass_s(context, 1, 1)  # the first one allocates
    measured: dict[int, float] = {}
    for n_rows in _WIDTHS:
        if n_rows > min(context.n_batch, context.n_ctx) or (measured and time.perf_counter() - started > _BUDGET_S):
            break
        passes = (_pass_s(context, n_rows, n_outputs_max) for _ in range(_REPETITIONS.get(n_rows, 1)))
        measured[n_rows] = min(passes)
    return PassTimes(measured)


def _pass_s(context: Context, n_rows: int, n_outputs_max: int) -> float:
    context.clear_all()
    context.add([0] * n_rows, position=0, n_outputs=min(n_rows, n_outputs_max))
    started = time.perf_counter()
    try:
        context.decode()
        return time.perf_counter() - started
    finally:
        context.clear_all()
