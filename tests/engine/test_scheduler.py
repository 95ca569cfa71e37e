"""Requests through the scheduler on tiny models: text, ends, reuse of the cache, cancellation, isolation."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from localspec.engine.events import Cancelled, Failed, Finished, FinishReason, Prefilling, Queued, StepDecoded
from localspec.engine.loader import LoadedPair, load_pair
from localspec.engine.requests import (
    ChatPrompt,
    GenerateRequest,
    Message,
    Mode,
    ModelSpec,
    PairSpec,
    SamplingParams,
)
from localspec.errors import ContextFullError, EngineError, UsageError
from localspec.llama.sequence_cache import SequenceCache
from localspec.speculative.rejection import Origin
from tests.engine.conftest import InProcessEngine, end_of, raw, text_of, tokens_of
from tests.native_fixtures import TinyModels
from tests.tiny_models import write_tiny_model

pytestmark = pytest.mark.native

GREEDY = SamplingParams(temperature=0.0)
MODES = list(Mode)


@pytest.mark.parametrize("mode", MODES)
def test_one_request_has_one_life(engine: InProcessEngine, mode: Mode):
    request = raw(mode=mode, max_tokens=12, sampling=SamplingParams(seed=3))
    events = engine.run(request)
    assert isinstance(events[0], Queued)
    assert events[0].seed == 3
    assert events[0].mode is mode
    assert isinstance(events[1], Prefilling)
    assert all(isinstance(event, StepDecoded) for event in events[2:-1])
    end = end_of(events)
    assert isinstance(end, Finished)
    assert end.reason is FinishReason.LENGTH
    assert end.metrics.n_tokens == len(tokens_of(events)) == 12


def test_a_draft_model_that_reads_alone_tells_how_far_it_is(load: Callable[..., LoadedPair], tiny_models: TinyModels):
    """The target has the prompt in its cache from another mode; the draft model has all of it before it."""
    engine = InProcessEngine(load(tiny_models.target, tiny_models.draft, n_ctx=2048))
    prompt = "abcdefgh" * 200
    engine.run(raw(prompt, mode=Mode.PLAIN, sampling=GREEDY, max_tokens=2))
    events = engine.run(raw(prompt, mode=Mode.DRAFT, sampling=GREEDY, max_tokens=2))
    progress = [event for event in events if isinstance(event, Prefilling)]
    to_go = [event.n_for_draft for event in progress if event.n_for_draft]
    assert len(to_go) >= 2
    assert to_go == sorted(set(to_go), reverse=True)
    assert all(event.n_done == event.n_total - 1 for event in progress)


LONG_PROMPT = "abcdefgh" * 180


def fresh_pair(tiny_models: TinyModels) -> LoadedPair:
    spec = PairSpec("tiny", ModelSpec(tiny_models.target), ModelSpec(tiny_models.draft), n_ctx=2048, n_threads=1)
    return load_pair(spec, lambda _: True)


def test_a_long_prompt_shows_what_attention_takes_and_the_reply_is_the_same(tiny_models: TinyModels):
    pair = fresh_pair(tiny_models)
    engine = InProcessEngine(pair)
    assert pair.draft is not None
    plain = engine.run(raw(LONG_PROMPT, mode=Mode.PLAIN, sampling=GREEDY, max_tokens=40))
    fixed = engine.run(raw(LONG_PROMPT, mode=Mode.DRAFT, sampling=GREEDY, max_tokens=4, fixed_length=True))
    assert end_of(fixed).metrics.n_tokens == 4
    assert pair.target.pass_times.is_worth_measuring(1100), "only where lengths follow times is it worth while"
    auto = engine.run(raw(LONG_PROMPT, mode=Mode.AUTO, sampling=GREEDY, max_tokens=40))
    assert not pair.target.pass_times.is_worth_measuring(1100)
    assert not pair.draft.pass_times.is_worth_measuring(1100)
    assert tokens_of(auto) == tokens_of(plain)
    again = engine.run(raw(LONG_PROMPT, mode=Mode.AUTO, sampling=GREEDY, max_tokens=40))
    assert tokens_of(again) == tokens_of(plain)
    assert end_of(again).metrics.n_cached_tokens == end_of(again).metrics.n_prompt_tokens - 1
    pair.close()


def test_a_draft_model_that_fails_while_it_is_measured_costs_no_reply(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
):
    pair = fresh_pair(tiny_models)
    assert pair.draft is not None
    of_draft, time_pass = pair.draft.context, SequenceCache.time_pass

    def fail(cache: SequenceCache, n_rows: int, *, n_outputs: int) -> float | None:
        if cache.context is of_draft:
            raise EngineError("the draft's pass failed")
        return time_pass(cache, n_rows, n_outputs=n_outputs)

    monkeypatch.setattr(SequenceCache, "time_pass", fail)
    end = end_of(InProcessEngine(pair).run(raw(LONG_PROMPT, mode=Mode.AUTO, sampling=GREEDY, max_tokens=20)))
    assert isinstance(end, Finished)
    assert end.metrics.n_tokens == 20
    pair.close()


def test_timing_a_pass_needs_room_and_leaves_the_cache_as_it_was(tiny_models: TinyModels):
    pair = fresh_pair(tiny_models)
    cache = SequenceCache(pair.target.context, 0)
    assert cache.time_pass(3, n_outputs=3) is None, "nothing to attend to"
    tokens = [65 + i % 20 for i in range(2046)]
    for start in range(0, len(tokens), 512):
        cache.feed(tokens[start : start + 512], n_outputs=1)
    cache.rollback(len(tokens) - 1)
    cache.feed(tokens[-1:], n_outputs=1)
    before = pair.target.context.logits(0).copy()
    assert cache.time_pass(3, n_outputs=3) is None, "two tokens of room"
    assert cache.time_pass(2, n_outputs=2) is not None
    assert cache.tokens == tokens
    assert pair.target.context.n_past(0) == len(tokens)
    cache.rollback(len(tokens) - 1)
    cache.feed(tokens[-1:], n_outputs=1)
    assert np.array_equal(pair.target.context.logits(0), before)
    pair.close()


@pytest.mark.parametrize("n_draft", [1, 2, 5, 11])
@pytest.mark.parametrize("mode", [Mode.DRAFT, Mode.LOOKUP])
def test_greedy_text_is_that_of_plain_decoding(engine: InProcessEngine, mode: Mode, n_draft: int):
    plain = engine.run(raw("abcabcabc", mode=Mode.PLAIN, sampling=GREEDY, max_tokens=60))
    other = engine.run(raw("abcabcabc", mode=mode, sampling=GREEDY, max_tokens=60, num_speculative_tokens=n_draft))
    assert tokens_of(other) == tokens_of(plain)
    assert text_of(other) == text_of(plain)


def test_a_target_that_drafts_for_itself_is_always_accepted(load: Callable[..., LoadedPair], tiny_models: TinyModels):
    engine = InProcessEngine(load(tiny_models.target, tiny_models.target))
    for temperature in (0.0, 0.8, 1.5):
        sampling = SamplingParams(temperature=temperature, top_k=0, top_p=1.0, min_p=0.0, seed=1)
        metrics = end_of(engine.run(raw(sampling=sampling, max_tokens=80))).metrics
        assert metrics.n_drafted > 50
        # The last draft of a reply may be cut by max_tokens; a batch and a single decode differ in the last bits.
        assert metrics.n_accepted >= metrics.n_drafted - 1


@pytest.mark.parametrize("mode", [Mode.DRAFT, Mode.LOOKUP, Mode.PLAIN])
def test_the_same_seed_gives_the_same_tokens(pair: LoadedPair, mode: Mode):
    """At a fixed length: where the lengths follow measured times, so do the random numbers that are drawn."""

    def tokens(seed: int) -> list[int]:
        request = raw(mode=mode, max_tokens=40, sampling=SamplingParams(temperature=1.5, min_p=0.0, seed=seed))
        pair.target.context.clear_all()
        return tokens_of(InProcessEngine(pair).run(request))

    assert tokens(11) == tokens(11)
    assert tokens(11) != tokens(12)


def test_a_seed_that_was_left_open_is_told_and_repeats(pair: LoadedPair):
    sampling = SamplingParams(temperature=1.5, min_p=0.0)
    events = InProcessEngine(pair).run(raw(max_tokens=30, sampling=sampling))
    queued = events[0]
    assert isinstance(queued, Queued)
    again = InProcessEngine(pair).run(
        raw(max_tokens=30, sampling=SamplingParams(temperature=1.5, min_p=0.0, seed=queued.seed))
    )
    assert tokens_of(again) == tokens_of(events)


def test_origins_tell_where_each_token_came_from(engine: InProcessEngine):
    sampling = SamplingParams(temperature=1.2, seed=5)
    for event in engine.run(raw(max_tokens=60, sampling=sampling)):
        if isinstance(event, StepDecoded):
            step = event.step
            assert step.origins[: step.n_accepted] == (Origin.DRAFT,) * min(step.n_accepted, len(step.origins))
            if len(step.tokens) > step.n_accepted:
                expected = Origin.BONUS if step.n_accepted == step.n_draft else Origin.RESIDUAL
                assert step.origins[-1] is (expected if step.n_draft else Origin.TARGET)
    plain = engine.run(raw(max_tokens=10, mode=Mode.PLAIN))
    assert {o for e in plain if isinstance(e, StepDecoded) for o in e.step.origins} == {Origin.TARGET}


class TestEnds:
    def test_end_of_generation_is_not_text(self, engine: InProcessEngine):
        eos = engine.pair.target.model.eos
        events = engine.run(raw(sampling=SamplingParams(logit_bias=((eos, 100.0),)), max_tokens=10))
        end = end_of(events)
        assert isinstance(end, Finished)
        assert end.reason is FinishReason.STOP
        assert text_of(events) == ""
        assert tokens_of(events) == [eos]

    @pytest.mark.parametrize("mode", MODES)
    def test_a_stop_string_ends_the_reply_before_itself(self, engine: InProcessEngine, mode: Mode):
        whole = text_of(engine.run(raw(mode=mode, sampling=GREEDY, max_tokens=60)))
        stop = whole[20:25]
        events = engine.run(raw(mode=mode, sampling=GREEDY, max_tokens=60, stop=(stop,)))
        end = end_of(events)
        assert isinstance(end, Finished)
        assert end.reason is FinishReason.STOP
        assert text_of(events) == whole[: whole.index(stop)]

    def test_a_stop_string_that_only_begins_is_released_at_the_end(self, engine: InProcessEngine):
        whole = text_of(engine.run(raw(sampling=GREEDY, max_tokens=30)))
        events = engine.run(raw(sampling=GREEDY, max_tokens=30, stop=(whole[-3:] + "\0",)))
        assert text_of(events) == whole

    @pytest.mark.parametrize("mode", MODES)
    def test_the_context_ends_a_reply_with_its_own_reason(self, engine: InProcessEngine, mode: Mode):
        prompt = "x" * 200
        events = engine.run(raw(prompt, mode=mode, sampling=SamplingParams(logit_bias=((257, -100.0),), seed=1)))
        end = end_of(events)
        assert isinstance(end, Finished)
        assert end.reason is FinishReason.CONTEXT_FULL
        assert end.metrics.n_context_tokens == 256

    def test_a_prompt_that_is_too_long_names_both_numbers(self, engine: InProcessEngine):
        end = end_of(engine.run(raw("x" * 300)))
        assert isinstance(end, Failed)
        assert isinstance(end.error, ContextFullError)
        assert (end.error.n_tokens, end.error.n_ctx) == (300, 256)
        assert "300" in str(end.error)
        assert "256" in str(end.error)

    def test_the_longest_prompt_that_fits_gets_one_token(self, engine: InProcessEngine):
        end = end_of(engine.run(raw("x" * 255)))
        assert isinstance(end, Finished)
        assert end.metrics.n_tokens == 1

    def test_an_empty_prompt_is_refused(self, engine: InProcessEngine):
        end = end_of(engine.run(raw("")))
        assert isinstance(end, Failed)
        assert isinstance(end.error, UsageError)


class TestPrefixReuse:
    def test_the_next_turn_decodes_only_what_is_new(self, engine: InProcessEngine):
        first = ChatPrompt((Message("user", "Hello there, how are you?"),))
        reply = text_of(engine.run(GenerateRequest(first, sampling=GREEDY, max_tokens=20)))
        second = ChatPrompt((*first.messages, Message("assistant", reply), Message("user", "And now?")))
        events = engine.run(GenerateRequest(second, sampling=GREEDY, max_tokens=20))
        metrics = end_of(events).metrics
        n_first = len(engine.pair.encoder.encode(first))
        assert metrics.n_cached_tokens >= n_first
        # What was kept gives the same reply as a fresh cache.
        fresh = InProcessEngine(engine.pair)
        engine.pair.target.context.clear_all()
        assert text_of(fresh.run(GenerateRequest(second, sampling=GREEDY, max_tokens=20))) == text_of(events)

    def test_another_prompt_keeps_nothing_that_differs(self, engine: InProcessEngine):
        engine.run(raw("the same start, then this", max_tokens=5))
        metrics = end_of(engine.run(raw("the same start, but that", max_tokens=5))).metrics
        assert metrics.n_cached_tokens == len("the same start, ") - 1  # " t" is one token

    def test_modes_may_alternate(self, engine: InProcessEngine):
        """A draft cache that rested for a few replies catches up, and greedy text stays that of plain decoding."""
        text = "abcabcabc"
        for mode in (Mode.DRAFT, Mode.PLAIN, Mode.LOOKUP, Mode.DRAFT, Mode.PLAIN, Mode.DRAFT):
            plain = text_of(engine.run(raw(text, mode=Mode.PLAIN, sampling=GREEDY, max_tokens=15)))
            assert text_of(engine.run(raw(text, mode=mode, sampling=GREEDY, max_tokens=15))) == plain
            text += plain


class TestCancel:
    def test_within_one_step(self, engine: InProcessEngine):
        request = raw(sampling=SamplingParams(logit_bias=((257, -100.0),)))
        engine.scheduler.submit(request)
        for _ in range(4):
            engine.scheduler.step()
        engine.scheduler.cancel(request.request_id)
        assert engine.scheduler.is_idle
        assert isinstance(end_of(engine.of(request.request_id)), Cancelled)

    def test_in_the_queue(self, engine: InProcessEngine):
        running, waiting = raw(max_tokens=20), raw(max_tokens=20)
        engine.scheduler.submit(running)
        engine.scheduler.step()
        engine.scheduler.submit(waiting)
        engine.scheduler.cancel(waiting.request_id)
        engine.finish()
        assert isinstance(end_of(engine.of(waiting.request_id)), Cancelled)
        assert isinstance(end_of(engine.of(running.request_id)), Finished)

    def test_during_a_long_prefill(self, load: Callable[..., LoadedPair], tiny_models: TinyModels):
        engine = InProcessEngine(load(tiny_models.target, tiny_models.draft, n_ctx=2048))
        request = raw("word " * 380)
        engine.scheduler.submit(request)
        engine.scheduler.step()
        engine.scheduler.cancel(request.request_id)
        assert engine.scheduler.is_idle
        assert not any(isinstance(event, StepDecoded) for event in engine.of(request.request_id))

    def test_what_is_unknown_is_ignored(self, engine: InProcessEngine):
        engine.scheduler.cancel("nothing")
        assert engine.events == []


class TestFailures:
    def test_a_wrong_grammar_fails_its_request_only(self, engine: InProcessEngine):
        bad = raw(sampling=SamplingParams(grammar="root ::= nothing"))
        good = raw(max_tokens=5)
        engine.scheduler.submit(bad)
        engine.scheduler.submit(good)
        engine.finish()
        end = end_of(engine.of(bad.request_id))
        assert isinstance(end, Failed)
        assert "nothing" in str(end.error)
        assert isinstance(end_of(engine.of(good.request_id)), Finished)

    @pytest.mark.parametrize("mode", MODES)
    def test_a_dead_end_in_the_middle_of_a_reply(self, engine: InProcessEngine, mode: Mode):
        request = raw(mode=mode, sampling=SamplingParams(grammar='root ::= "abcdefgh" "\\x00"'))
        end = end_of(engine.run(request))
        assert isinstance(end, Failed)
        assert isinstance(end.error, EngineError)
        assert text_of(engine.run(raw(mode=mode, sampling=GREEDY, max_tokens=8)))

    def test_a_failed_decode_ends_the_request_and_the_next_one_works(
        self, engine: InProcessEngine, monkeypatch: pytest.MonkeyPatch
    ):
        expected = text_of(engine.run(raw(sampling=GREEDY, max_tokens=20)))
        context = engine.pair.target.context
        real, n_calls = context.decode, 0

        def decode() -> None:
            nonlocal n_calls
            n_calls += 1
            if n_calls == 3:
                context.discard_batch()
                raise EngineError("a failure of the test")
            real()

        monkeypatch.setattr(context, "decode", decode)
        assert isinstance(end_of(engine.run(raw(sampling=GREEDY, max_tokens=20))), Failed)
        assert text_of(engine.run(raw(sampling=GREEDY, max_tokens=20))) == expected

    def test_everything_can_be_failed_at_once(self, engine: InProcessEngine):
        requests = [raw(max_tokens=20) for _ in range(3)]
        for request in requests:
            engine.scheduler.submit(request)
        engine.scheduler.step()
        engine.scheduler.fail_all(EngineError("the end"))
        assert engine.scheduler.is_idle
        for request in requests:
            assert isinstance(end_of(engine.of(request.request_id)), Failed)


@pytest.mark.parametrize("mode", MODES)
def test_a_grammar_holds_in_every_mode(engine: InProcessEngine, mode: Mode):
    sampling = SamplingParams(temperature=1.0, seed=2, grammar='root ::= "{" [a-f]+ "}" [0-9] [0-9]')
    for seed in range(5):
        text = text_of(engine.run(raw(mode=mode, max_tokens=200, sampling=sampling)))
        assert text.startswith("{"), seed
        head, _, digits = text[1:].partition("}")
        assert set(head) <= set("abcdef")
        assert digits == "" or digits.isdigit()


def test_sequences_that_share_passes_reply_as_if_alone(load: Callable[..., LoadedPair], tiny_models: TinyModels):
    pair = load(tiny_models.target, tiny_models.draft, n_ctx=1024, n_seq_max=3)
    prompts = ["abcabcabc", "The quick brown fox " * 8, "Once upon a time"]
    alone = [
        text_of(InProcessEngine(pair, n_slots=1).run(raw(prompt, sampling=GREEDY, max_tokens=40))) for prompt in prompts
    ]
    pair.target.context.clear_all()
    engine = InProcessEngine(pair, n_slots=3)
    requests = [
        raw(prompt, sampling=GREEDY, max_tokens=40, mode=mode)
        for prompt, mode in zip(prompts, (Mode.DRAFT, Mode.LOOKUP, Mode.AUTO), strict=True)
    ]
    for request in requests:
        engine.scheduler.submit(request)
    engine.finish()
    assert [text_of(engine.of(request.request_id)) for request in requests] == alone


class TestNotes:
    def test_draft_mode_without_a_draft_model_says_what_it_does(
        self, load: Callable[..., LoadedPair], tiny_models: TinyModels
    ):
        events = InProcessEngine(load(tiny_models.target)).run(raw(mode=Mode.DRAFT, max_tokens=5))
        queued = events[0]
        assert isinstance(queued, Queued)
        assert queued.mode is Mode.LOOKUP
        assert "No draft model" in queued.mode_note


def test_a_draft_with_a_padded_vocabulary_never_proposes_what_the_target_lacks(
    load: Callable[..., LoadedPair], tiny_models: TinyModels, tmp_path_factory: pytest.TempPathFactory
):
    # Its padding tokens are the likeliest of all: an unguarded draft would propose nothing else.
    padded = write_tiny_model(tmp_path_factory.mktemp("padded") / "padded.gguf", extra_tokens=40, loud_padding=True)
    for pair in (load(tiny_models.target, padded), load(padded, tiny_models.target)):
        engine = InProcessEngine(pair)
        plain = engine.run(raw(mode=Mode.PLAIN, sampling=GREEDY, max_tokens=30))
        drafted = engine.run(raw(mode=Mode.DRAFT, sampling=GREEDY, max_tokens=30))
        assert isinstance(end_of(drafted), Finished)
        assert tokens_of(drafted) == tokens_of(plain)


@pytest.mark.parametrize("n_ctx", [16, 33, 34, 40])
@pytest.mark.parametrize("mode", MODES)
def test_the_smallest_contexts_answer(load: Callable[..., LoadedPair], tiny_models: TinyModels, n_ctx: int, mode: Mode):
    engine = InProcessEngine(load(tiny_models.target, tiny_models.draft, n_ctx=n_ctx))
    for prompt in ("a", "a" * (n_ctx - 1)):
        events = engine.run(raw(prompt, mode=mode, sampling=SamplingParams(logit_bias=((257, -100.0),), seed=1)))
        assert end_of(events).metrics.n_context_tokens == n_ctx


class TestDraftsThatFail:
    """A draft costs speed at worst: the reply is the one of plain decoding."""

    def same_as_plain(self, pair: LoadedPair, **fields: object) -> None:
        plain = InProcessEngine(pair).run(raw(mode=Mode.PLAIN, **fields))
        drafted = InProcessEngine(pair).run(raw(mode=Mode.DRAFT, **fields))
        assert isinstance(end_of(plain), Finished)
        assert isinstance(end_of(drafted), Finished)
        assert tokens_of(drafted) == tokens_of(plain)

    def test_logits_that_are_not_numbers(
        self, load: Callable[..., LoadedPair], tiny_models: TinyModels, tmp_path_factory: pytest.TempPathFactory
    ):
        broken = write_tiny_model(tmp_path_factory.mktemp("broken") / "broken.gguf", broken=True)
        pair = load(tiny_models.target, broken)
        self.same_as_plain(pair, sampling=GREEDY, max_tokens=20)
        drafted = InProcessEngine(pair).run(raw(sampling=SamplingParams(seed=1), max_tokens=20))
        assert isinstance(end_of(drafted), Finished)
        # As the target it is refused in words.
        refused = end_of(InProcessEngine(load(broken)).run(raw(sampling=GREEDY)))
        assert isinstance(refused, Failed)
        assert "cannot be sampled" in str(refused.error)

    def test_another_end_of_reply_under_a_grammar(
        self, load: Callable[..., LoadedPair], tiny_models: TinyModels, tmp_path_factory: pytest.TempPathFactory
    ):
        ends_with_z = write_tiny_model(tmp_path_factory.mktemp("eot") / "eot.gguf", eot=ord("z"))
        pair = load(ends_with_z, tiny_models.draft)
        sampling = SamplingParams(temperature=0.0, grammar='root ::= "a"', logit_bias=((ord("z"), 50.0),))
        self.same_as_plain(pair, sampling=sampling, max_tokens=9)

    def test_nothing_left_for_the_draft(
        self, load: Callable[..., LoadedPair], tiny_models: TinyModels, tmp_path_factory: pytest.TempPathFactory
    ):
        padded = write_tiny_model(tmp_path_factory.mktemp("more") / "more.gguf", extra_tokens=60)
        pair = load(padded, tiny_models.draft)
        banned = tuple((token, -math.inf) for token in range(259))
        self.same_as_plain(pair, sampling=SamplingParams(temperature=0.0, logit_bias=banned), max_tokens=10)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(
    "sampling",
    [
        {"logit_bias": tuple((token, -math.inf) for token in range(259))},
        {"logit_bias": ((97, -math.inf),), "grammar": 'root ::= "a"+'},
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_a_request_that_forbids_everything_fails_in_words(
    engine: InProcessEngine, mode: Mode, sampling: dict, temperature: float
):
    end = end_of(engine.run(raw(mode=mode, sampling=SamplingParams(temperature=temperature, **sampling))))
    assert isinstance(end, Failed)
    assert "bias" in f"{end.error} {end.error.hint}"


def test_a_fault_while_a_request_starts_ends_that_request_only(
    engine: InProcessEngine, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        patch.setattr(engine.pair.encoder, "encode", lambda *_, **__: 1 / 0)
        end = end_of(engine.run(raw()))
    assert isinstance(end, Failed)
    assert "ZeroDivisionError" in str(end.error)
    assert isinstance(end_of(engine.run(raw(max_tokens=3))), Finished)


def test_a_tokenizer_that_closes_texts_does_not_close_the_prompt(
    load: Callable[..., LoadedPair], tiny_models: TinyModels, tmp_path_factory: pytest.TempPathFactory
):
    closing = write_tiny_model(tmp_path_factory.mktemp("closing") / "closing.gguf", add_eos=True)
    texts = {
        text_of(InProcessEngine(load(path)).run(raw(sampling=GREEDY, max_tokens=20)))
        for path in (closing, tiny_models.target)
    }
    assert len(texts) == 1


def test_a_damaged_unpacked_target_is_written_again(tiny_models: TinyModels, tmp_path: Path):
    spec = PairSpec("p", ModelSpec(tmp_path / "out.gguf", unpacked_from=tiny_models.target), n_ctx=64, n_threads=1)
    load_pair(spec, lambda _: True).close()
    whole = spec.target.path.read_bytes()
    for damaged in (b"", whole[:-100], b"nothing of the kind"):
        spec.target.path.write_bytes(damaged)
        load_pair(spec, lambda _: True).close()
        assert spec.target.path.read_bytes() == whole
