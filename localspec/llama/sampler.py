"""From logits to the distribution that a request samples: llama.cpp's own transforms, in its own order.

The chain stops before llama.cpp would draw a token: it leaves candidates and logits, and their softmax is the
`TokenDistribution` that verification needs. Only what a request uses is in the chain.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Self

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from localspec.errors import EngineError, UsageError
from localspec.llama import log
from localspec.llama.model import Model
from localspec.llama.sampling_params import SamplingParams
from localspec.speculative.distribution import TokenDistribution

_CANDIDATE: Final = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
_MIN_KEEP: Final = 1
_STACK: Final = 32
_MAX_GRAMMAR_BYTES: Final = 1 << 20


class SamplerChain:
    """The transforms of one request, with the state that penalties, DRY, XTC and grammar keep."""

    def __init__(
        self, model: Model, params: SamplingParams, *, n_ctx: int, seed: int, n_vocab: int | None = None
    ) -> None:
        """Build the chain. `n_vocab`: only so many token ids, where the model has more than its target.

        Raises:
            UsageError: the grammar or JSON schema is not valid, or a biased token does not exist.
        """
        self._params = params
        self._remembers = _penalizes(params) or params.dry_multiplier > 0.0
        self._n_vocab = n_vocab or model.n_vocab
        self._candidates = np.empty(self._n_vocab, _CANDIDATE)
        self._ids = np.arange(self._n_vocab, dtype=np.int32)
        self._candidates_pointer = self._candidates.ctypes.data_as(llama_cpp.llama_token_data_p)
        self._candidates_address = self._candidates.ctypes.data
        self._array = llama_cpp.llama_token_data_array()
        self._biased_ids, self._biases = _checked_bias(model, params.logit_bias)
        known = self._biased_ids < self._n_vocab
        self._biased_ids, self._biases = self._biased_ids[known], self._biases[known]
        self._chain: Any = None
        self._grammar: Any = None
        try:
            self._grammar = _grammar(model, params)
            self._chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
            _fill_chain(self._chain, model, params, n_ctx, seed)
        except BaseException:
            self.close()
            raise
        moves_logits = self.has_state or params.top_n_sigma > 0.0
        # Where top-k comes first, the rest of the vocabulary need not be written out for it.
        self._k_first = 0 if moves_logits else params.top_k
        # Where nothing can move the largest logit, greedy decoding needs no chain at all.
        self._is_argmax = params.greedy and not (moves_logits or params.typical_p < 1.0 or params.xtc_probability > 0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the native samplers. Repeated calls do nothing."""
        for name in ("_chain", "_grammar"):
            handle = getattr(self, name)
            setattr(self, name, None)
            if handle is not None:
                llama_cpp.llama_sampler_free(handle)

    @property
    def has_state(self) -> bool:
        """True when the distribution depends on the tokens that were accepted before."""
        return self._remembers or self._grammar is not None

    def distribution(self, logits: NDArray[np.float32]) -> TokenDistribution:
        """The distribution after all transforms, from one row of logits [n_vocab].

        Raises:
            EngineError: no token is left (the grammar allows none), or the logits are not numbers.
        """
        logits = self._biased(logits[: self._n_vocab])
        top = int(logits.argmax())
        # The largest is NaN when any is. Native samplers abort the process on what is not a number.
        if not np.isfinite(logits[top]):
            raise _unusable("its logits are not numbers, or a logit bias forbids every token")
        if self._is_argmax:
            return TokenDistribution.one_hot(top)
        ids, logits = self._worth_writing(logits)
        n = len(ids)
        self._candidates["id"][:n] = ids
        self._candidates["logit"][:n] = logits
        if self._grammar is not None:
            n = self._allowed_by_grammar(n)
        left = self._apply(self._chain, n)
        try:
            if self._params.greedy:
                return TokenDistribution.one_hot(int(left["id"][left["logit"].argmax()]))
            return TokenDistribution.from_logits(left["id"], left["logit"])
        except ValueError as error:
            raise _unusable(str(error)) from error

    def _biased(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        if not self._params.logit_bias:
            return logits
        logits = logits.copy()
        np.add.at(logits, self._biased_ids, self._biases)
        return logits

    def _allowed_by_grammar(self, n: int) -> int:
        """Keep the candidates that the grammar allows; returns how many.

        It marks the others with minus infinity, which some of the samplers after it take for a number.
        """
        self._apply(self._grammar, n)
        allowed = self._candidates[:n][np.isfinite(self._candidates["logit"][:n])]
        if not len(allowed):
            raise EngineError(
                "The grammar allows no token of this model here.",
                hint="Check that every alternative of the grammar can end, and that no logit bias forbids its tokens.",
            )
        self._candidates[: len(allowed)] = allowed
        return len(allowed)

    def _apply(self, sampler: Any, n: int) -> NDArray[Any]:
        """Run a native sampler over the first `n` candidates; returns those that it leaves."""
        array = self._array
        array.data = self._candidates_pointer
        array.size, array.selected, array.sorted = n, -1, False
        llama_cpp.llama_sampler_apply(sampler, ctypes.byref(array))
        return self._left(array)

    def _worth_writing(self, logits: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """All tokens, or those of a superset of the top k.

        The row is dealt out into stacks. Where k stacks have a maximum that reaches a bound, k logits reach it, so the
        k largest logits reach it too.
        """
        n_stacks = len(logits) // _STACK
        if not 0 < self._k_first < n_stacks:
            if logits.min() > -np.inf:
                return self._ids, logits
            ids = np.flatnonzero(logits > -np.inf).astype(np.int32)
            return ids, logits[ids]
        maxima = logits[: n_stacks * _STACK].reshape(_STACK, n_stacks).max(axis=0)
        bound = np.partition(maxima, -self._k_first)[-self._k_first]
        ids = np.flatnonzero(logits >= max(bound, np.finfo(np.float32).min)).astype(np.int32)
        return ids, logits[ids]

    def _left(self, array: Any) -> NDArray[Any]:
        """The candidates that survived; a sampler may have moved them to memory of its own."""
        address = ctypes.addressof(array.data.contents)
        if address == self._candidates_address:
            return self._candidates[: array.size]
        raw = (ctypes.c_char * (array.size * _CANDIDATE.itemsize)).from_address(address)
        return np.frombuffer(raw, _CANDIDATE).copy()

    def accept(self, token: int) -> None:
        """Advance the state over a committed token."""
        if self._grammar is not None:
            llama_cpp.llama_sampler_accept(self._grammar, token)
        if self._remembers:
            llama_cpp.llama_sampler_accept(self._chain, token)

    def accept_prompt(self, tokens: Iterable[int]) -> None:
        """Let penalties and DRY see the prompt. A grammar describes the reply only."""
        if self._remembers:
            for token in tokens:
                llama_cpp.llama_sampler_accept(self._chain, token)

    def copy_state_from(self, other: SamplerChain) -> None:
        """Take over the state of a chain with the same parameters: how a draft is forgotten."""
        if self._remembers:
            llama_cpp.llama_sampler_copy(other._chain, self._chain)
        if self._grammar is not None:
            llama_cpp.llama_sampler_copy(other._grammar, self._grammar)


def _unusable(reason: str) -> EngineError:
    return EngineError(
        f"The model's output cannot be sampled: {reason.rstrip('.')}.",
        hint="The file may be damaged or its quantization broken; fetch it again or choose another.",
    )


def _fill_chain(chain: Any, model: Model, params: SamplingParams, n_ctx: int, seed: int) -> None:
    """Add what the request uses, in llama.cpp's order."""
    # XTC's coin is part of its law: each position is transformed once, so the law of the output is XTC's own.
    xtc = (params.xtc_probability, params.xtc_threshold, _MIN_KEEP, seed % 0xFFFFFFFF)
    dynamic = (params.temperature, params.dynatemp_range, params.dynatemp_exponent)
    is_dynamic = params.dynatemp_range > 0.0
    stages: tuple[tuple[bool, Callable[[], Any]], ...] = (
        (_penalizes(params), lambda: _penalties(model, params, n_ctx)),
        (params.dry_multiplier > 0.0, lambda: _dry(model, params, n_ctx)),
        (params.top_n_sigma > 0.0, lambda: llama_cpp.llama_sampler_init_top_n_sigma(params.top_n_sigma)),
        (params.top_k > 0, lambda: llama_cpp.llama_sampler_init_top_k(min(params.top_k, model.n_vocab))),
        (params.typical_p < 1.0, lambda: llama_cpp.llama_sampler_init_typical(params.typical_p, _MIN_KEEP)),
        (params.top_p < 1.0, lambda: llama_cpp.llama_sampler_init_top_p(params.top_p, _MIN_KEEP)),
        (params.min_p > 0.0, lambda: llama_cpp.llama_sampler_init_min_p(params.min_p, _MIN_KEEP)),
        (params.xtc_probability > 0.0, lambda: llama_cpp.llama_sampler_init_xtc(*xtc)),
        (is_dynamic and not params.greedy, lambda: llama_cpp.llama_sampler_init_temp_ext(*dynamic)),
        (not is_dynamic and not params.greedy, lambda: llama_cpp.llama_sampler_init_temp(params.temperature)),
    )
    for is_used, make in stages:
        if is_used:
            llama_cpp.llama_sampler_chain_add(chain, make())


def _penalizes(params: SamplingParams) -> bool:
    return params.repeat_penalty != 1.0 or params.frequency_penalty != 0.0 or params.presence_penalty != 0.0


def _penalties(model: Model, params: SamplingParams, n_ctx: int) -> Any:
    last_n = n_ctx if params.repeat_last_n < 0 else min(params.repeat_last_n, n_ctx)
    strengths = (params.repeat_penalty, params.frequency_penalty, params.presence_penalty)
    return llama_cpp.llama_sampler_init_penalties(model.n_vocab, last_n, *strengths)


def _checked_bias(model: Model, biases: Sequence[tuple[int, float]]) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    for token, _ in biases:
        if not 0 <= token < model.n_vocab:
            raise UsageError(
                f"logit_bias names token {token}; {model.name} has tokens 0 to {model.n_vocab - 1}.",
                hint="Use token ids of this model.",
            )
    return np.array([token for token, _ in biases], np.intp), np.array([bias for _, bias in biases], np.float32)


def _dry(model: Model, params: SamplingParams, n_ctx: int) -> Any:
    breakers = [text.encode("utf-8", "replace") for text in params.dry_sequence_breakers]
    return llama_cpp.llama_sampler_init_dry(
        model.vocab_handle,
        params.dry_multiplier,
        params.dry_base,
        params.dry_allowed_length,
        n_ctx if params.dry_penalty_last_n < 0 else min(params.dry_penalty_last_n, n_ctx),
        (ctypes.c_char_p * len(breakers))(*breakers),
        len(breakers),
    )


def _grammar(model: Model, params: SamplingParams) -> Any:
    source = params.grammar if params.json_schema is None else json_schema_grammar(params.json_schema)
    if source is None:
        return None
    if len(source) > _MAX_GRAMMAR_BYTES:
        raise UsageError(f"The grammar has {len(source)} characters; at most {_MAX_GRAMMAR_BYTES} are read.")
    if "\0" in source:
        raise UsageError("The grammar contains a NUL character.", hint="Write it as \\x00.")
    if not source.strip():
        raise UsageError("The grammar is empty.", hint="Leave it out, or write a rule named root.")
    # The parser explains itself on stderr, not in the log.
    with log.captured_errors() as errors, log.captured_stderr() as stderr:
        handle = llama_cpp.llama_sampler_init_grammar(model.vocab_handle, source.encode("utf-8", "replace"), b"root")
    if not handle:
        first_line = next((line for line in stderr if line.strip()), "").removeprefix("parse: error parsing grammar: ")
        raise UsageError(
            f"The grammar is not valid: {first_line or '; '.join(errors) or 'llama.cpp gave no reason'}.",
            hint="GBNF needs a rule named root; see grammars/README.md of llama.cpp.",
        )
    return handle


def json_schema_grammar(schema: str) -> str:
    """The GBNF grammar of the JSON texts that a schema allows, by llama-cpp-python's converter.

    Raises:
        UsageError: the schema is not JSON, or uses something that the converter does not know.
    """
    from llama_cpp.llama_grammar import json_schema_to_gbnf

    try:
        parsed = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The JSON schema is not JSON: {error}.") from error
    if not isinstance(parsed, dict):
        raise UsageError(f"The JSON schema is {type(parsed).__name__}; it must be an object.")
    try:
        return str(json_schema_to_gbnf(schema))
    except Exception as error:
        raise UsageError(
            f"The JSON schema cannot be turned into a grammar: {str(error) or type(error).__name__}.",
            hint="Use types, properties, enum, const, items, anyOf, oneOf and local $ref.",
        ) from error
