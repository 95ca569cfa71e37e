"""First estimates for the draft policy, which keeps them up to date: pass times, and how far the two models agree."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from localspec.engine.requests import MAX_NUM_SPECULATIVE_TOKENS
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.speculative.evidence import Agreement
from localspec.speculative.pass_times import PassTimes

_WIDEST: Final = 1 + MAX_NUM_SPECULATIVE_TOKENS
# These are measured on every model, in about five passes ...
_NEEDED_WIDTHS: Final = (1, 2, 5)
# ... and these, since kernels differ by width, as far as time allows. Of two measurements the faster one counts.
_MORE_WIDTHS: Final = (1, 9, _WIDEST, 17, 3, 2, 5)
_BUDGET_S: Final = 0.6


def measure_pass_times(context: Context, n_outputs_max: int) -> PassTimes:
    """Time passes over an empty cache, which is empty again afterwards.

    Raises:
        EngineError: a pass failed.
    """
    started = time.perf_counter()
    _pass_s(context, 1, 1)  # the first one allocates
    measured: dict[int, float] = {}
    for n, n_rows in enumerate((*_NEEDED_WIDTHS, *_MORE_WIDTHS)):
        is_late = time.perf_counter() - started > _BUDGET_S
        if n_rows <= min(context.n_batch, context.n_ctx) and (n < len(_NEEDED_WIDTHS) or not is_late):
            pass_s = _pass_s(context, n_rows, n_outputs_max)
            measured[n_rows] = min(pass_s, measured.get(n_rows, pass_s))
    return PassTimes(measured, widest=_WIDEST)


def _pass_s(context: Context, n_rows: int, n_outputs_max: int) -> float:
    context.clear_all()
    context.add([0] * n_rows, position=0, n_outputs=min(n_rows, n_outputs_max))
    started = time.perf_counter()
    try:
        context.decode()
        return time.perf_counter() - started
    finally:
        context.clear_all()


# Such as a model would write: what matters is how both continue it, not what it says. The first tokens are only read.
_TEXT: Final = (
    "Here is a short plan for the day. First, we boil some water and make a cup of tea. Then we go for a walk in the "
    "park, because the weather is nice. In the afternoon, we can read a book or visit a friend. Then we cook dinner."
)
_N_READ: Final = 8
_N_COMPARED: Final = 32


def measure_agreement(model: Model, target: Context, draft: Context) -> Agreement | None:
    """How far the next-token distributions of both agree on a short text; None where the draft cannot read it.

    `model` is the target's. Both caches are empty afterwards.

    Raises:
        EngineError: a pass failed.
    """
    tokens = model.tokenize(_TEXT, add_special=True, parse_special=False)[: _N_READ + _N_COMPARED]
    n_compared = min(_N_COMPARED, len(tokens) - _N_READ)
    if n_compared < 1 or len(tokens) >= min(target.n_ctx, draft.n_ctx) or max(tokens) >= draft.n_vocab:
        return None
    n_vocab = min(target.n_vocab, draft.n_vocab)
    n_read = len(tokens) - n_compared
    try:
        target.add(tokens, position=0, n_outputs=n_compared)
        target.decode()
        # A draft context has room for the logits of one row.
        draft.add(tokens[:n_read], position=0)
        draft.decode()
        rows = range(n_read, len(tokens))
        compared = [_compare(target.logits(i)[:n_vocab], _next_row(draft, tokens, i)[:n_vocab]) for i in rows]
    finally:
        target.clear_all()
        draft.clear_all()
    # Never certain after so few: the rule of succession.
    greedy, sampled = (np.sum(compared, axis=0) + 1.0) / (n_compared + 2.0)
    return Agreement(float(greedy), float(sampled))


def _next_row(draft: Context, tokens: Sequence[int], i: int) -> NDArray[np.float32]:
    draft.add(tokens[i : i + 1], position=i, n_outputs=1)
    draft.decode()
    return draft.logits(0)


def _compare(target: NDArray[np.float32], draft: NDArray[np.float32]) -> tuple[float, float]:
    """Whether both have the same favourite, and how much probability they share: the acceptance, greedy and sampled."""
    shared = float(np.minimum(_softmax(target), _softmax(draft)).sum())
    return float(target.argmax() == draft.argmax()), shared if np.isfinite(shared) else 0.0


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    weights: NDArray[np.float32] = np.exp(logits - logits.max())
    weights /= weights.sum()
    return weights
