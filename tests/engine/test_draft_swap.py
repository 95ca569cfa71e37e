"""Another draft model under a loaded target, without a process around it: what stays, what is forgotten, what fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.engine import loader
from localspec.engine.draft_swap import swap_draft
from localspec.engine.events import Finished, Loading, Queued
from localspec.engine.loader import LoadedPair, load_pair
from localspec.engine.requests import GenerateRequest, Mode, ModelSpec, SamplingParams
from localspec.errors import (
    DoesNotFitError,
    EngineError,
    IncompatiblePairError,
    LoadCancelledError,
    LocalspecError,
    ModelFileError,
    UnsupportedModelError,
)
from localspec.llama.context import Context
from localspec.llama.model import Model
from tests.engine.conftest import InProcessEngine, end_of, pair_spec, raw, text_of, tokens_of
from tests.engine.test_law import PROMPT, chi_square_deviations, exact_law
from tests.native_fixtures import TinyModels
from tests.tiny_models import write_tiny_model

pytestmark = pytest.mark.native

GREEDY = SamplingParams(temperature=0.0)


class SwappingEngine(InProcessEngine):
    """Exchanges its draft model, as the worker does."""

    def swap(self, draft: Path | None, on_loading: Callable[[Loading], bool] = lambda _: True) -> LocalspecError | None:
        spec = ModelSpec(draft) if draft else None
        self.pair, error = swap_draft(self.pair, spec, on_loading)
        self.scheduler.use(self.pair)
        return error

    def greedy(self, text: str = "The quick brown fox", **fields: object) -> Finished:
        end = end_of(self.run(raw(text, sampling=GREEDY, max_tokens=30, **fields)))
        assert isinstance(end, Finished)
        return end


@pytest.fixture
def engine(tiny_models: TinyModels) -> Iterator[SwappingEngine]:
    engine = SwappingEngine(load_pair(pair_spec(tiny_models.target, tiny_models.draft), lambda _: True))
    yield engine
    engine.pair.close()


@pytest.fixture
def open_models(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many models are open, by name: nothing may be loaded twice or stay behind."""
    opened: Counter[str] = Counter()
    plain_init, plain_close = Model.__init__, Model.close

    def init(self: Model, path: Path, **options: object) -> None:
        plain_init(self, path, **options)  # type: ignore[arg-type]
        opened[path.stem] += 1

    def close(self: Model) -> None:
        opened[self.path.stem] -= self._handle is not None
        plain_close(self)

    monkeypatch.setattr(Model, "__init__", init)
    monkeypatch.setattr(Model, "close", close)
    return opened


class TestWhatIsKept:
    def test_the_target_and_what_its_cache_holds(self, engine: SwappingEngine, tiny_models: TinyModels):
        before = engine.greedy()
        target, n_past = engine.pair.target, engine.pair.target.context.n_past()
        seen: list[Loading] = []
        assert engine.swap(tiny_models.stranger, lambda event: seen.append(event) is None) is None
        assert engine.pair.target is target
        assert target.context.n_past() == n_past > 20
        assert {event.what for event in seen} == {"Loading the draft"}
        after = engine.greedy()
        assert after.metrics.n_cached_tokens == before.metrics.n_prompt_tokens - 1

    def test_greedy_text_is_that_of_the_target_under_every_draft_model(
        self, engine: SwappingEngine, tiny_models: TinyModels
    ):
        def text() -> str:
            return text_of(engine.run(raw("abcabcabc", sampling=GREEDY, max_tokens=40)))

        texts = [text()]
        for draft in (tiny_models.stranger, None, tiny_models.target, tiny_models.draft):
            assert engine.swap(draft) is None
            texts.append(text())
        assert len(set(texts)) == 1
        assert texts[0]

    def test_the_new_model_is_the_one_that_drafts(self, engine: SwappingEngine, tiny_models: TinyModels):
        assert engine.swap(tiny_models.target) is None
        metrics = engine.greedy().metrics
        assert metrics.n_drafted > 15
        assert metrics.n_accepted >= metrics.n_drafted - 1
        assert engine.swap(tiny_models.stranger) is None
        metrics = engine.greedy().metrics
        assert metrics.n_accepted < metrics.n_drafted / 2

    def test_to_none_and_from_none(self, engine: SwappingEngine, tiny_models: TinyModels):
        assert engine.swap(None) is None
        assert engine.pair.describe().draft_name is None
        request = raw(sampling=GREEDY, max_tokens=10)
        queued = engine.run(request)[0]
        assert isinstance(queued, Queued)
        assert queued.mode is Mode.LOOKUP
        assert engine.swap(None) is None
        assert engine.swap(tiny_models.draft) is None
        assert engine.pair.describe().draft_name == "draft"
        assert engine.greedy().metrics.n_drafted > 0

    def test_every_slot_gets_the_new_draft_model(self, tiny_models: TinyModels):
        pair = load_pair(pair_spec(tiny_models.target), lambda _: True, n_seq_max=2)
        engine = SwappingEngine(pair, n_slots=2)
        try:
            assert engine.swap(tiny_models.target) is None
            requests = [raw(text, sampling=GREEDY, max_tokens=20) for text in ("one", "two")]
            for request in requests:
                engine.scheduler.submit(request)
            engine.finish()
            for request in requests:
                metrics = end_of(engine.of(request.request_id)).metrics
                assert metrics.n_accepted >= metrics.n_drafted - 1 > 0
        finally:
            engine.pair.close()

    def test_many_exchanges_leave_nothing_behind(
        self, open_models: Counter[str], tiny_models: TinyModels, engine: SwappingEngine
    ):
        for draft in (tiny_models.stranger, None, tiny_models.draft, tiny_models.stranger):
            assert engine.swap(draft) is None
            engine.greedy()
        assert +open_models == Counter(target=1, stranger=1)
        engine.pair.close()
        assert +open_models == Counter()


class TestWhatIsForgotten:
    def test_the_agreement_is_that_of_a_fresh_load(
        self, engine: SwappingEngine, tiny_models: TinyModels, load: Callable[..., LoadedPair]
    ):
        engine.greedy()
        old = engine.pair.agreement
        for draft in (tiny_models.stranger, tiny_models.target):
            assert engine.swap(draft) is None
            fresh = load(tiny_models.target, draft).agreement
            assert engine.pair.agreement is not None
            assert fresh is not None
            assert engine.pair.agreement.greedy == fresh.greedy
            assert engine.pair.agreement.sampled == pytest.approx(fresh.sampled, abs=1e-3)
            assert engine.pair.agreement != old
        assert engine.swap(None) is None
        assert engine.pair.agreement is None

    def test_where_there_is_no_room_to_compare_nothing_is_known(
        self, engine: SwappingEngine, tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
    ):
        plain_init = Context.__init__

        def init(self: Context, model: Model, *, n_ctx: int, **options: object) -> None:
            if n_ctx == 64:
                raise DoesNotFitError("no room")
            plain_init(self, model, n_ctx=n_ctx, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(Context, "__init__", init)
        assert engine.swap(tiny_models.stranger) is None
        assert engine.pair.agreement is None
        assert engine.greedy().metrics.n_drafted > 0

    def test_a_draft_model_that_had_given_up_does_not_hinder_the_next(
        self, engine: SwappingEngine, tiny_models: TinyModels
    ):
        """Adaptive drafting has learned that the stranger never pays."""

        def drafted() -> int:
            request = GenerateRequest(raw().prompt, sampling=GREEDY, mode=Mode.DRAFT, max_tokens=60)
            metrics = end_of(engine.run(request)).metrics
            return int(metrics.n_drafted)

        assert engine.swap(tiny_models.stranger) is None
        for _ in range(6):
            drafted()
        evidence = engine.scheduler._evidence
        assert engine.swap(tiny_models.draft) is None
        assert engine.scheduler._evidence is not evidence
        assert engine.scheduler._evidence.target_times is evidence.target_times
        assert engine.scheduler._evidence.regime(greedy=True).model.at_place(1) > 0.5


class TestRefusals:
    def refuse(self, engine: SwappingEngine, draft: Path) -> LocalspecError:
        pair, before = engine.pair, engine.greedy().metrics
        error = engine.swap(draft)
        assert error is not None
        assert engine.pair is pair
        after = engine.greedy().metrics
        assert (after.n_drafted, after.n_accepted) == (before.n_drafted, before.n_accepted)
        assert after.n_cached_tokens == after.n_prompt_tokens - 1
        return error

    def test_an_incompatible_one(self, engine: SwappingEngine, tmp_path: Path):
        error = self.refuse(engine, write_tiny_model(tmp_path / "other.gguf", extra_tokens=300))
        assert isinstance(error, IncompatiblePairError)
        assert error.hint

    def test_a_missing_one(self, engine: SwappingEngine, tmp_path: Path):
        assert isinstance(self.refuse(engine, tmp_path / "none.gguf"), ModelFileError)

    def test_one_that_is_cut_short(self, engine: SwappingEngine, tiny_models: TinyModels, tmp_path: Path):
        (tmp_path / "cut.gguf").write_bytes(tiny_models.draft.read_bytes()[:-50_000])
        assert isinstance(self.refuse(engine, tmp_path / "cut.gguf"), ModelFileError)

    def test_one_that_cannot_take_back_tokens(
        self, engine: SwappingEngine, tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(Context, "probe_rollback", lambda _: 0)
        assert isinstance(self.refuse(engine, tiny_models.stranger), UnsupportedModelError)

    def test_one_that_is_cancelled_while_it_loads(self, engine: SwappingEngine, tiny_models: TinyModels):
        pair = engine.pair
        assert isinstance(engine.swap(tiny_models.stranger, lambda _: False), LoadCancelledError)
        assert engine.pair is pair
        assert engine.greedy().metrics.n_drafted > 0

    def test_a_fault_of_ours_is_told_as_one(
        self, engine: SwappingEngine, tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr("localspec.engine.draft_swap.measure_agreement", lambda *_: 1 / 0)
        error = self.refuse(engine, tiny_models.stranger)
        assert isinstance(error, EngineError)
        assert "ZeroDivisionError" in error.message

    def test_a_target_that_cannot_take_back_tokens_gets_none(
        self, tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
    ):
        with monkeypatch.context() as patch:
            patch.setattr(Context, "probe_rollback", lambda _: 0)
            pair = load_pair(pair_spec(tiny_models.target, tiny_models.draft), lambda _: True)
        engine = SwappingEngine(pair)
        try:
            error = engine.swap(tiny_models.draft)
            assert isinstance(error, UnsupportedModelError)
            assert "cannot take back tokens" in error.message
            assert engine.swap(None) is None
            assert "cannot take back tokens" in engine.pair.describe().speculation_note
        finally:
            engine.pair.close()


class TestMemory:
    """Memory that holds one draft model at a time, or none."""

    def limit(self, monkeypatch: pytest.MonkeyPatch, fits: Callable[[ModelSpec], bool]) -> None:
        def refuse(spec: ModelSpec, *_: object) -> None:
            if not fits(spec):
                raise DoesNotFitError(f"{spec.path.name} does not fit.")

        monkeypatch.setattr(loader, "_refuse_impossible_cache", refuse)

    def test_the_old_one_makes_room_for_the_new_one(
        self,
        open_models: Counter[str],
        engine: SwappingEngine,
        tiny_models: TinyModels,
        monkeypatch: pytest.MonkeyPatch,
    ):
        self.limit(monkeypatch, lambda _: sum(open_models.values()) <= 2)
        assert engine.swap(tiny_models.stranger) is None
        assert +open_models == Counter(target=1, stranger=1)
        assert engine.greedy().metrics.n_drafted > 0

    def test_the_old_one_comes_back_when_there_is_not_enough_room(
        self,
        open_models: Counter[str],
        engine: SwappingEngine,
        tiny_models: TinyModels,
        monkeypatch: pytest.MonkeyPatch,
    ):
        before, agreement = engine.greedy().metrics, engine.pair.agreement
        self.limit(monkeypatch, lambda spec: spec.path != tiny_models.stranger)
        error = engine.swap(tiny_models.stranger)
        assert isinstance(error, DoesNotFitError)
        assert +open_models == Counter(target=1, draft=1)
        assert engine.pair.describe().draft_name == "draft"
        assert engine.pair.agreement == agreement
        after = engine.greedy().metrics
        assert (after.n_drafted, after.n_accepted) == (before.n_drafted, before.n_accepted)
        assert after.n_cached_tokens == after.n_prompt_tokens - 1

    def test_the_target_goes_on_alone_when_not_even_that_works(
        self,
        open_models: Counter[str],
        engine: SwappingEngine,
        tiny_models: TinyModels,
        monkeypatch: pytest.MonkeyPatch,
    ):
        self.limit(monkeypatch, lambda _: False)
        error = engine.swap(tiny_models.stranger)
        assert isinstance(error, DoesNotFitError)
        assert "stranger" in error.message
        assert +open_models == Counter(target=1)
        assert engine.pair.describe().draft_name is None
        assert engine.greedy().metrics.n_tokens > 0


@pytest.mark.slow
def test_replies_follow_the_targets_law_after_an_exchange(engine: SwappingEngine, tiny_models: TinyModels):
    sampling = SamplingParams(temperature=1.6, top_k=4, min_p=0.0)
    law = exact_law(engine.pair, sampling)
    engine.scheduler.use(engine.pair)
    counts: Counter[tuple[int, ...]] = Counter()
    n_replies = 1_200
    for seed in range(n_replies):
        if seed % 300 == 0:
            assert engine.swap((tiny_models.stranger, None, tiny_models.draft)[seed // 300 % 3]) is None
        request = raw(PROMPT, sampling=replace(sampling, seed=seed), max_tokens=3, num_speculative_tokens=2)
        counts[tuple(tokens_of(engine.run(request)))] += 1
        engine.events.clear()
    assert chi_square_deviations(counts, law, n_replies) < 4.0
