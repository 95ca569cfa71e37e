"""What a model thinks of tokens by themselves: log-probabilities from a row of logits, before all transforms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def log_probabilities(logits: NDArray[np.float32], token: int, n_likeliest: int) -> tuple[list[int], list[float]]:
    """Token ids and natural logarithms of their probabilities: of `token`, then of the `n_likeliest`, falling.

    `logits`: float32 [n_vocab]. Probabilities are their softmax at temperature 1.
    """
    n_likeliest = min(n_likeliest, len(logits))
    likeliest = np.argpartition(logits, -n_likeliest)[-n_likeliest:] if n_likeliest else np.empty(0, np.intp)
    likeliest = likeliest[np.lexsort((likeliest, -logits[likeliest]))]
    ids = [token, *likeliest.tolist()]
    top = float(logits.max())
    log_total = top + float(np.log(np.exp(logits - top, dtype=np.float64).sum()))
    return ids, (logits[ids].astype(np.float64) - log_total).tolist()
