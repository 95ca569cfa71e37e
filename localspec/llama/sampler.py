"""From logits to the distribution that a request samples: llama.cpp's own transforms, in its own order.

The chain stops before llama.cpp would draw a token: it leaves candidates and logits, and their softmax is the
`TokenDistribution` that verification needs. Only what a request uses is in the chain, and only tokens that can pass it
are handed to it: most chains look at the largest logits alone, so the rest of the vocabulary need not be written out.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Self

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from localspec.errors import EngineError, UsageError
from localspec.llama import transforms
from localspec.llama.candidates import Candidates
from localspec.llama.model import Model
from localspec.llama.reply_grammar import ReplyGrammar
from localspec.llama.sampling_params import SamplingParams
from localspec.llama.shortlist import Shortlist
from localspec.speculative.distribution import TokenDistribution

# A grammar is asked about so many of the likeliest tokens first: about all of them takes milliseconds.
_N_FOR_GRAMMAR: Final = 128
_NOT_NUMBERS: Final = "its logits are not numbers, or a logit bias forbids every token"


class _Search(NamedTuple):
    """What finds the likeliest tokens, and how many of them the chain looks at; 0: it looks at all tokens."""

    shortlist: Shortlist
    n_reached: int


class SamplerChain:
    """The transforms of one request, with the state that penalties, DRY, XTC and grammar keep."""

    def __init__(
        self, model: Model, params: SamplingParams, *, n_ctx: int, seed: int, n_vocab: int | None = None
    ) -> None:
        """Build the chain over `model`, the target. `n_vocab`: only so many token ids, where a draft model knows fewer.

        Raises:
            UsageError: the grammar or JSON schema is not valid, or a biased token does not exist.
        """
        self._params = params
        self._n_vocab = n_vocab or model.n_vocab
        self._biased_ids, self._biases = _checked_bias(model, params.logit_bias, self._n_vocab)
        # What penalties and DRY may move: the tokens that they remember.
        self._remembers = transforms.penalizes(params) or params.dry_multiplier > 0.0
        self._remembered: deque[int] = deque(maxlen=transforms.memory(params, n_ctx))
        self._candidates = Candidates(self._n_vocab)
        self._chain: Any = None
        self._grammar: ReplyGrammar | None = None
        try:
            self._grammar = ReplyGrammar.of(model, params)
            self._chain = transforms.native_chain(model, params, n_ctx=n_ctx, seed=seed)
        except BaseException:
            self.close()
            raise
        self._is_argmax = params.greedy and transforms.keeps_largest(params) and not self._remembers
        self._free_search = self._search_for(restricted=False)
        self._bound_search = self._search_for(restricted=True) if self._grammar is not None else self._free_search
        n_padded = max(self._free_search.shortlist.n_padded, self._bound_search.shortlist.n_padded)
        # Rows are copied where something is written into them, or where a shortlist wants them longer.
        is_copied = self._remembers or len(self._biases) > 0 or n_padded > self._n_vocab
        self._copy = np.full(n_padded, -np.inf, np.float32) if is_copied else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the native samplers. Repeated calls do nothing."""
        chain, self._chain = self._chain, None
        if chain is not None:
            llama_cpp.llama_sampler_free(chain)
        if self._grammar is not None:
            self._grammar.close()

    @property
    def has_state(self) -> bool:
        """True when the distribution depends on the tokens that were accepted before."""
        return self._remembers or self._grammar is not None

    @property
    def is_memoryless(self) -> bool:
        """True when the distribution is a function of the row alone: no state, and no coin as XTC throws it.

        Block verification needs that: it reads later rows before it accepts earlier tokens, and a coin of a later row
        would decide about an earlier token and then be tossed anew.
        """
        return not self.has_state and self._params.xtc_probability == 0.0

    def distribution(self, logits: NDArray[np.float32]) -> TokenDistribution:
        """The distribution after all transforms, from one row of logits [n_vocab].

        Raises:
            EngineError: no token is left (the grammar allows none), or the logits are not numbers.
        """
        row = self._row(logits)
        try:
            if self._is_argmax and self._restriction is None:
                return TokenDistribution.one_hot(_argmax(row))
            n = self._write(row)
            if n == 1:
                return TokenDistribution.one_hot(self._candidates.first)
            ids, scores = self._candidates.apply(self._chain, n)
            if self._params.greedy:
                return TokenDistribution.one_hot(int(ids[scores.argmax()]))
            return TokenDistribution.from_logits(ids, scores)
        except ValueError as error:
            raise _unusable(str(error)) from error

    def confidence(self, logits: NDArray[np.float32]) -> float:
        """About the probability of the largest logit at temperature 1, before all transforms but the logit bias.

        How sure a model is of its greedy choice, which the one-hot distribution does not tell. A feature for choosing
        draft lengths and part of no law: see `Shortlist.top_probability` for what it leaves out.
        """
        return self._search.shortlist.top_probability(self._row(logits))

    @property
    def _restriction(self) -> Any:
        """The native grammar that restricts the next token; None where there is none or it sleeps."""
        return None if self._grammar is None else self._grammar.handle

    @property
    def _search(self) -> _Search:
        return self._free_search if self._restriction is None else self._bound_search

    def _search_for(self, *, restricted: bool) -> _Search:
        k, slack, lead = transforms.reach(self._params)
        if not Shortlist.suits(self._n_vocab, k) or (slack and restricted):
            return _Search(Shortlist(self._n_vocab), 0)
        if restricted:
            return _Search(Shortlist(self._n_vocab, max(k, min(_N_FOR_GRAMMAR, self._n_vocab // 2))), k)
        return _Search(Shortlist(self._n_vocab, k, slack=slack, lead=math.inf if self._remembers else lead), k)

    def _row(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """The row with its biases, long enough for the shortlist."""
        logits = logits[: self._n_vocab]
        if self._copy is None:
            return logits
        self._copy[: self._n_vocab] = logits
        if len(self._biases):
            self._copy[self._biased_ids] += self._biases
        return self._copy

    def _write(self, row: NDArray[np.float32]) -> int:
        """Put the tokens that the chain may keep into the candidates; returns how many."""
        n = self._write_likely(row) if self._search.n_reached else 0
        return n or self._write_all(row)

    def _write_likely(self, row: NDArray[np.float32]) -> int:
        """The likeliest, and those that penalties may move; 0 where the grammar leaves too few of them."""
        search = self._search
        if not self.has_state:
            return self._candidates.write(*search.shortlist.find(row))
        moved, moved_logits = self._lifted(row)
        n_likely = self._candidates.write(*search.shortlist.find(row))
        n = self._candidates.write(moved, moved_logits, n_likely)
        if self._restriction is not None and n:
            allowed = self._allowed(n)
            # Any other token is behind those that were found.
            is_enough = np.count_nonzero(allowed[:n_likely]) >= search.n_reached
            n = self._candidates.keep(allowed) if is_enough else 0
        if not n:
            row[moved] = moved_logits
        return n

    def _write_all(self, row: NDArray[np.float32]) -> int:
        row = row[: self._n_vocab]
        possible = row > -np.inf
        if not (possible.any() and np.maximum.reduce(row) < np.inf):
            raise ValueError(_NOT_NUMBERS)
        ids = np.flatnonzero(possible)
        n = self._candidates.write(ids, row[ids])
        if self._restriction is not None:
            n = self._candidates.keep(self._allowed(n))
        if not n:
            raise EngineError(
                "The grammar allows no token of this model here.",
                hint="Check that every alternative of the grammar can end, and that no logit bias forbids its tokens.",
            )
        return n

    def _allowed(self, n: int) -> NDArray[np.bool_]:
        """Which of the first `n` candidates the grammar allows.

        It marks the others with minus infinity, which some of the samplers after it take for a number.
        """
        _, logits = self._candidates.apply(self._restriction, n)
        return logits > -np.inf

    def _lifted(self, row: NDArray[np.float32]) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """Take the tokens that penalties may move out of the row; their ids and logits."""
        ids = np.fromiter(set(self._remembered), np.intp)
        ids = ids[ids < self._n_vocab]
        logits = row[ids]
        if not (logits < np.inf).all():
            raise ValueError(_NOT_NUMBERS)
        row[ids] = -np.inf
        possible = logits > -np.inf
        return ids[possible], logits[possible]

    def accept(self, token: int) -> None:
        """Advance the state over a committed token."""
        if self._grammar is not None:
            self._grammar.accept(token)
        if self._remembers:
            self._remembered.append(token)
            llama_cpp.llama_sampler_accept(self._chain, token)

    def accept_prompt(self, tokens: Iterable[int]) -> None:
        """Let penalties and DRY see the prompt. A grammar describes the reply only."""
        if self._remembers:
            for token in tokens:
                self._remembered.append(token)
                llama_cpp.llama_sampler_accept(self._chain, token)

    def copy_state_from(self, other: SamplerChain) -> None:
        """Take over the state of a chain with the same parameters: how a draft is forgotten."""
        if self._remembers:
            self._remembered = other._remembered.copy()
            llama_cpp.llama_sampler_copy(other._chain, self._chain)
        if self._grammar is not None and other._grammar is not None:
            self._grammar.copy_from(other._grammar)


def _argmax(row: NDArray[np.float32]) -> int:
    top = int(row.argmax())
    # The largest is NaN when any is.
    if not math.isfinite(row[top]):
        raise ValueError(_NOT_NUMBERS)
    return top


def _unusable(reason: str) -> EngineError:
    return EngineError(
        f"The model's output cannot be sampled: {reason.rstrip('.')}.",
        hint="The file may be damaged or its quantization broken; fetch it again or choose another.",
    )


def _checked_bias(
    model: Model, biases: Sequence[tuple[int, float]], n_vocab: int
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """The biased tokens below `n_vocab`, each once, and their biases."""
    total: dict[int, float] = {}
    for token, bias in biases:
        if not 0 <= token < model.n_vocab:
            raise UsageError(
                f"logit_bias names token {token}; {model.name} has tokens 0 to {model.n_vocab - 1}.",
                hint="Use token ids of this model.",
            )
        if token < n_vocab:
            total[token] = total.get(token, 0.0) + bias
    return np.array(list(total), np.intp), np.array(list(total.values()), np.float32)
