"""Several requests at once: shared passes, shared cells, and who waits for whom."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from localspec.engine.events import Cancelled, Finished, FinishReason, Prefilling, RequestEvent, StepDecoded
from localspec.engine.loader import LoadedPair
from localspec.engine.requests import GenerateRequest, Mode, SamplingParams
from localspec.engine.sequence import ActiveSequence
from localspec.llama.context import Context
from tests.engine.conftest import InProcessEngine, end_of, raw, tokens_of
from tests.native_fixtures import TinyModels

pytestmark = pytest.mark.native

GREEDY = SamplingParams(temperature=0.0)
PROMPTS = ["abcabcabc", "The quick brown fox " * 8, "Once upon a time", "xyz " * 30, "one two three", "A", "B " * 50]
N_CTX = 1024


# Rows of other sequences in a pass, or another order of cells, move logits in their last bits; on an f16 cache by more.
NEAR_TIE = 0.01


def requests_of(mode: Mode, *, max_tokens: int = 40) -> list[GenerateRequest]:
    return [raw(prompt, sampling=GREEDY, max_tokens=max_tokens, mode=mode, n_logprobs=2) for prompt in PROMPTS]


def alone(pair: LoadedPair, requests: list[GenerateRequest]) -> list[list[RequestEvent]]:
    runs = [InProcessEngine(pair).run(request) for request in requests]
    pair.target.context.clear_all()
    return runs


def assert_as_alone(events: list[RequestEvent], solo: list[RequestEvent]) -> None:
    """Token by token, up to where the solo run's best two were as good as equal."""
    assert isinstance(end_of(events), Finished)
    places = [place for event in solo if isinstance(event, StepDecoded) for place in event.logprobs]
    found, expected = tokens_of(events), tokens_of(solo)
    for i, (token, other) in enumerate(itertools.zip_longest(found, expected)):
        if token != other:
            best, second = places[i].likeliest
            assert best.logprob - second.logprob < NEAR_TIE, (i, found, expected)
            assert {token, other} == {best.token, second.token}
            return


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("steps_between", [0, 3])
def test_replies_are_those_of_a_solo_run(
    load: Callable[..., LoadedPair], tiny_models: TinyModels, mode: Mode, steps_between: int
):
    pair = load(tiny_models.target, tiny_models.draft, n_ctx=N_CTX, n_seq_max=4)
    solo = alone(pair, requests_of(mode))
    engine, requests = InProcessEngine(pair, n_slots=4), requests_of(mode)
    for request in requests:
        engine.scheduler.submit(request)
        for _ in range(steps_between):
            engine.scheduler.step()
    engine.finish()
    for request, expected in zip(requests, solo, strict=True):
        assert_as_alone(engine.of(request.request_id), expected)


@pytest.mark.parametrize("n_ctx", [256, 384])
@pytest.mark.parametrize("mode", [Mode.DRAFT, Mode.AUTO, Mode.PLAIN])
def test_where_cells_are_short_replies_pause_and_lose_nothing(
    load: Callable[..., LoadedPair], tiny_models: TinyModels, mode: Mode, n_ctx: int, monkeypatch: pytest.MonkeyPatch
):
    """Four replies of up to 240 tokens share the cells."""
    paused = []
    pause = ActiveSequence.pause
    monkeypatch.setattr(ActiveSequence, "pause", lambda self: (paused.append(self), pause(self)))
    pair = load(tiny_models.target, tiny_models.draft, n_ctx=n_ctx, n_seq_max=4)
    solo = alone(pair, requests_of(mode, max_tokens=100))
    engine, requests = InProcessEngine(pair, n_slots=4), requests_of(mode, max_tokens=100)
    for request in requests:
        engine.scheduler.submit(request)
    engine.finish()
    for request, expected in zip(requests, solo, strict=True):
        assert_as_alone(engine.of(request.request_id), expected)
    assert paused


@pytest.mark.parametrize("seed", range(4))
def test_whenever_requests_come_no_pass_needs_more_cells_than_there_are(
    load: Callable[..., LoadedPair], tiny_models: TinyModels, seed: int
):
    """Prompts are read in chunks while replies grow into the room that there was for them."""
    pair = load(tiny_models.target, tiny_models.draft, n_ctx=512, n_seq_max=4)
    engine, chance = InProcessEngine(pair, n_slots=4), random.Random(seed)
    requests = []
    for _ in range(25):
        sampling = SamplingParams(logit_bias=((257, -100.0),), seed=1)
        prompt = chance.choice("abcdefg") + "x" * chance.choice([1, 40, 150, 300])
        requests.append(raw(prompt, sampling=sampling, mode=Mode.PLAIN, max_tokens=chance.choice([1, 30, 100, 200])))
        engine.scheduler.submit(requests[-1])
        for _ in range(chance.choice([0, 1, 5, 20])):
            engine.scheduler.step()
    engine.finish()
    for request in requests:
        end = end_of(engine.of(request.request_id))
        assert isinstance(end, Finished), end


def test_paused_replies_pass_every_fate(load: Callable[..., LoadedPair], tiny_models: TinyModels):
    """Cancelling whoever, whenever, leaves the others as they would be alone."""
    pair = load(tiny_models.target, tiny_models.draft, n_ctx=256, n_seq_max=4)
    solo = alone(pair, requests_of(Mode.DRAFT, max_tokens=90))
    for n_steps, victim in itertools.product((2, 9, 15), range(4)):
        engine, requests = InProcessEngine(pair, n_slots=4), requests_of(Mode.DRAFT, max_tokens=90)
        for request in requests:
            engine.scheduler.submit(request)
        for _ in range(n_steps):
            engine.scheduler.step()
        engine.scheduler.cancel(requests[victim].request_id)
        engine.finish()
        for i, request in enumerate(requests):
            events = engine.of(request.request_id)
            if isinstance(end_of(events), Cancelled):
                assert i == victim
            else:
                assert_as_alone(events, solo[i])
        usage = engine.scheduler.usage()
        assert all(slot.request_id is None for slot in usage.slots)
        assert sum(slot.n_cells for slot in usage.slots) <= 256


def test_drafts_share_the_passes_of_the_draft_model(
    load: Callable[..., LoadedPair], tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
):
    pair = load(tiny_models.target, tiny_models.draft, n_ctx=N_CTX, n_seq_max=4)
    assert pair.draft is not None
    n_passes = {id(pair.draft.context): 0, id(pair.target.context): 0}
    decode = Context.decode

    def counting(context: Context) -> None:
        n_passes[id(context)] += 1
        decode(context)

    engine = InProcessEngine(pair, n_slots=4)
    requests = [raw(f"Number {i}", sampling=GREEDY, max_tokens=60) for i in range(4)]
    for request in requests:
        engine.scheduler.submit(request)
    while not all(any(isinstance(e, StepDecoded) for e in engine.of(each.request_id)) for each in requests):
        engine.scheduler.step()
    monkeypatch.setattr(Context, "decode", counting)
    for _ in range(5):
        engine.scheduler.step()
    # Drafts of five tokens, four at a time: one pass of the target and five of the draft model for all of them.
    assert n_passes == {id(pair.target.context): 5, id(pair.draft.context): 25}
    engine.scheduler.fail_all(Exception("over"))  # type: ignore[arg-type]


def test_a_short_prompt_does_not_wait_for_a_long_one(load: Callable[..., LoadedPair], tiny_models: TinyModels):
    pair = load(tiny_models.target, tiny_models.draft, n_ctx=4096, n_seq_max=3)
    engine = InProcessEngine(pair, n_slots=3)
    running = raw("Once", sampling=GREEDY, max_tokens=500, mode=Mode.PLAIN, ignores_end=True)
    long = raw("word " * 600, sampling=GREEDY, max_tokens=3, mode=Mode.PLAIN)
    short = raw("abc", sampling=GREEDY, max_tokens=3, mode=Mode.PLAIN)
    engine.scheduler.submit(running)
    for _ in range(3):
        engine.scheduler.step()
    engine.scheduler.submit(long)
    engine.scheduler.step()
    engine.scheduler.submit(short)
    engine.finish()
    ends = [event.request_id for event in engine.events if isinstance(event, Finished)]
    assert ends.index(short.request_id) < ends.index(long.request_id)


def test_replies_keep_moving_while_a_prompt_is_read(load: Callable[..., LoadedPair], tiny_models: TinyModels):
    pair = load(tiny_models.target, tiny_models.draft, n_ctx=4096, n_seq_max=2)
    engine = InProcessEngine(pair, n_slots=2)
    running = raw("Once", sampling=GREEDY, max_tokens=500, mode=Mode.PLAIN, ignores_end=True)
    long = raw("word " * 600, sampling=GREEDY, max_tokens=3, mode=Mode.PLAIN)
    engine.scheduler.submit(running)
    for _ in range(3):
        engine.scheduler.step()
    # As if a row took a millisecond: a prompt may hold the others up for a tenth of a second.
    times = engine.scheduler._evidence.target_times
    times.seconds = lambda n_rows, n_cells=0: 0.001 * n_rows  # type: ignore[method-assign]
    engine.scheduler._learn_prompt_speed(0.001)
    engine.scheduler._learn_prompt_speed = lambda token_s: None  # type: ignore[method-assign]
    engine.scheduler.submit(long)
    n_between = 0
    while not any(isinstance(event, StepDecoded) for event in engine.of(long.request_id)):
        before = len(engine.of(running.request_id))
        engine.scheduler.step()
        assert len(engine.of(running.request_id)) == before + 1
        n_between += 1
    progress = [event.n_done for event in engine.of(long.request_id) if isinstance(event, Prefilling)]
    assert max(b - a for a, b in itertools.pairwise(progress)) <= 100
    assert n_between >= 6
    del times.seconds
    engine.finish()


class TestReuse:
    """Which slot a prompt gets: the one whose text it goes on with, else the one unused for longest."""

    def run(self, engine: InProcessEngine, prompt: str, **fields: object) -> int:
        """Tokens that were in the cache."""
        events = engine.run(raw(prompt, sampling=GREEDY, max_tokens=4, mode=Mode.PLAIN, **fields))
        end = end_of(events)
        assert isinstance(end, Finished)
        return end.metrics.n_cached_tokens

    def test_the_slot_that_knows_the_text(self, load: Callable[..., LoadedPair], tiny_models: TinyModels):
        engine = InProcessEngine(load(tiny_models.target, n_ctx=N_CTX, n_seq_max=3), n_slots=3)
        for prompt in ("first chat " * 5, "second talk " * 5, "third one " * 5):
            assert self.run(engine, prompt) == 0
        for prompt in ("second talk " * 5, "first chat " * 5, "third one " * 5):
            assert self.run(engine, prompt + "and more") >= len(prompt) - 5

    def test_a_stranger_gets_what_was_unused_for_longest(
        self, load: Callable[..., LoadedPair], tiny_models: TinyModels
    ):
        engine = InProcessEngine(load(tiny_models.target, n_ctx=N_CTX, n_seq_max=2), n_slots=2)
        self.run(engine, "first chat " * 5)
        self.run(engine, "second talk " * 5)
        self.run(engine, "first chat " * 5 + "on")
        self.run(engine, "xyz")
        assert self.run(engine, "first chat " * 5 + "on") > 50
        assert self.run(engine, "second talk " * 5) == 0

    def test_unless_it_is_not_wanted(self, load: Callable[..., LoadedPair], tiny_models: TinyModels):
        engine = InProcessEngine(load(tiny_models.target, n_ctx=N_CTX, n_seq_max=2), n_slots=2)
        self.run(engine, "first chat " * 5)
        assert self.run(engine, "first chat " * 5, reuses_cache=False) == 0

    def test_caches_of_nobody_make_room(self, load: Callable[..., LoadedPair], tiny_models: TinyModels):
        engine = InProcessEngine(load(tiny_models.target, n_ctx=256, n_seq_max=3), n_slots=3)
        for letter in "abcdef":
            assert self.run(engine, letter * 150) == 0
        assert sum(slot.n_cells for slot in engine.scheduler.usage().slots) <= 256


def test_a_prompt_waits_until_there_is_room_for_it(load: Callable[..., LoadedPair], tiny_models: TinyModels):
    engine = InProcessEngine(load(tiny_models.target, n_ctx=256, n_seq_max=3), n_slots=3)
    first = raw("a" * 120, sampling=GREEDY, max_tokens=20, mode=Mode.PLAIN, ignores_end=True)
    second = raw("b" * 180, sampling=GREEDY, max_tokens=5, mode=Mode.PLAIN)
    engine.scheduler.submit(first)
    engine.scheduler.submit(second)
    engine.finish()
    ends = [event for event in engine.events if isinstance(event, Finished)]
    assert [end.request_id for end in ends] == [first.request_id, second.request_id]
    assert ends[0].reason is FinishReason.LENGTH
    assert len(tokens_of(engine.of(first.request_id))) == 20
