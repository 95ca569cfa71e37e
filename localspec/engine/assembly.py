"""From a request to a sequence that can run: its sampler, its drafters and the policy that chooses between them."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from localspec.engine.loader import LoadedPair
from localspec.engine.metrics import MetricsRecorder
from localspec.engine.requests import MAX_NUM_SPECULATIVE_TOKENS, GenerateRequest, Mode
from localspec.engine.sequence import ActiveSequence
from localspec.engine.slots import Slot
from localspec.llama.draft_model import DraftModelDrafter
from localspec.llama.model import Model
from localspec.llama.sampler import SamplerChain
from localspec.llama.sampling_params import SamplingParams
from localspec.llama.sequence_cache import SequenceCache
from localspec.speculative.drafter import Drafter, DraftSource
from localspec.speculative.evidence import Evidence
from localspec.speculative.expected_gain import ExpectedGain
from localspec.speculative.policy import DraftPolicy, FixedLength
from localspec.speculative.prompt_lookup import PromptLookup
from localspec.speculative.step import SpeculativeStep

__all__ = ["Admitted", "Assembly"]


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that was accepted: with the seed that it runs with, and its clock."""

    request: GenerateRequest
    seed: int
    metrics: MetricsRecorder


class Assembly:
    """Builds the sequences of one loaded pair, by what is known of it."""

    def __init__(self, pair: LoadedPair, evidence: Evidence, *, verifies_blocks: bool) -> None:
        self._pair = pair
        self._evidence = evidence
        self._verifies_blocks = verifies_blocks

    def sequence(self, admitted: Admitted, prompt: list[int], slot: Slot) -> ActiveSequence:
        """The sequence of a request, whose caches are those of `slot`.

        Raises:
            UsageError: the sampling parameters name a token that there is not, or the grammar is not valid.
        """
        pair, request = self._pair, admitted.request
        target = pair.target.model
        sampling = self._sampling(request)
        rng = random.Random(admitted.seed)
        is_end = frozenset[int]().__contains__ if request.ignores_end else target.end_of_generation.__contains__
        with ExitStack() as owned:
            n_ctx = pair.target.context.n_ctx
            sampler = owned.enter_context(SamplerChain(target, sampling, n_ctx=n_ctx, seed=admitted.seed))
            drafters: dict[DraftSource, Drafter] = {}
            mode, _ = self.mode_of(request)
            if mode in (Mode.AUTO, Mode.LOOKUP):
                drafters[DraftSource.LOOKUP] = slot.lookup
            if mode in (Mode.AUTO, Mode.DRAFT) and slot.draft is not None:
                drafters[DraftSource.MODEL] = self._draft_model(sampling, admitted.seed, slot.draft, rng)
            for drafter in drafters.values():
                owned.enter_context(closing(drafter))
            speculation = SpeculativeStep(
                drafters,
                self._policy(request, drafters, slot.lookup),
                is_end,
                rows_are_memoryless=self._verifies_blocks and sampler.is_memoryless,
            )
            sequence = ActiveSequence(
                request,
                prompt=prompt,
                slot=slot,
                sampler=sampler,
                speculation=speculation,
                rng=rng,
                token_bytes=_token_bytes(target, request.shown_tokens),
                ends_generation=is_end,
                max_draft=self._max_draft(),
                metrics=admitted.metrics,
            )
            owned.pop_all()  # the sequence closes them from now on
        return sequence

    def mode_of(self, request: GenerateRequest) -> tuple[Mode, str]:
        """The mode that will run, and why it is another than the one asked for, if it is."""
        if request.num_speculative_tokens == 0:
            return Mode.PLAIN, ""
        if request.mode is not Mode.PLAIN and self._pair.target.max_rollback == 0:
            return Mode.PLAIN, f"{self._pair.speculation_note}."
        if request.mode is Mode.AUTO and self._pair.draft is None:
            return Mode.LOOKUP, ""
        if request.mode is Mode.DRAFT and self._pair.draft is None:
            note = self._pair.speculation_note or "No draft model is loaded"
            return Mode.LOOKUP, f"{note}; drafts are copied from the text so far (lookup)."
        return request.mode, ""

    def _sampling(self, request: GenerateRequest) -> SamplingParams:
        if not request.ignores_end:
            return request.sampling
        forbidden = tuple((token, float("-inf")) for token in sorted(self._pair.target.model.end_of_generation))
        return replace(request.sampling, logit_bias=(*request.sampling.logit_bias, *forbidden))

    def _policy(
        self, request: GenerateRequest, drafters: dict[DraftSource, Drafter], lookup: PromptLookup
    ) -> DraftPolicy:
        # The draft model never reads its own last token.
        of_draft = self._pair.draft.max_rollback if self._pair.draft else None
        model_ceiling = request.ceiling(DraftSource.MODEL)
        ceilings = {
            DraftSource.MODEL: model_ceiling if of_draft is None else min(model_ceiling, of_draft + 1),
            DraftSource.LOOKUP: request.ceiling(DraftSource.LOOKUP),
        }
        if request.fixed_length or not drafters:
            return FixedLength({source: ceilings[source] for source in drafters})
        return ExpectedGain(
            self._evidence,
            model=drafters.get(DraftSource.MODEL),
            lookup=lookup if DraftSource.LOOKUP in drafters else None,
            greedy=request.sampling.greedy,
            ceiling=ceilings[DraftSource.MODEL],
            copy_ceiling=ceilings[DraftSource.LOOKUP],
        )

    def _draft_model(
        self, sampling: SamplingParams, seed: int, cache: SequenceCache, rng: random.Random
    ) -> DraftModelDrafter:
        target = self._pair.target.model
        # Token ids are shared, so the request's transforms are those over the target's vocabulary, as far as both have
        # it: the models may differ in padding, in what ends a reply, and in the text of their first few tokens.
        n_vocab = min(cache.context.n_vocab, target.n_vocab)
        n_ctx = self._pair.target.context.n_ctx
        make_sampler = functools.partial(SamplerChain, target, sampling, n_ctx=n_ctx, seed=seed, n_vocab=n_vocab)
        ends_generation = target.end_of_generation.__contains__
        return DraftModelDrafter(cache, make_sampler, rng, greedy=sampling.greedy, ends_generation=ends_generation)

    def _max_draft(self) -> int:
        """The longest draft that the target can take back."""
        most = self._pair.target.max_rollback
        return MAX_NUM_SPECULATIVE_TOKENS if most is None else min(most, MAX_NUM_SPECULATIVE_TOKENS)


def _token_bytes(model: Model, shown: Sequence[str]) -> Callable[[int], bytes]:
    """The text of tokens in a reply, where these control tokens have one."""
    written = (model.tokenize(text, add_special=False, parse_special=True) for text in shown)
    shown_ids = {tokens[0] for tokens in written if len(tokens) == 1}
    return lambda token: model.token_bytes(token, special=token in shown_ids)
