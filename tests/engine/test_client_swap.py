"""Exchanging the draft model through the process: its turn among requests, cancelling, and the death of the engine."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from localspec.engine.client import EngineClient
from localspec.engine.events import (
    Cancelled,
    Failed,
    Finished,
    Loaded,
    LoadFailed,
    Loading,
    Queued,
    StepDecoded,
    SwapFailed,
)
from localspec.engine.requests import Mode, ModelSpec, SamplingParams
from localspec.errors import EngineDiedError, EngineError, IncompatiblePairError, LoadCancelledError, ModelFileError
from tests.engine.conftest import pair_spec, raw, text_of
from tests.native_fixtures import TinyModels
from tests.tiny_models import write_tiny_model

pytestmark = pytest.mark.native

ENDLESS = SamplingParams(logit_bias=((257, -100.0),), seed=1)
GREEDY = SamplingParams(temperature=0.0)
TIMEOUT_S = 60


class Journal:
    """Events of several requests and exchanges in the order in which they came, each with the name of its listener."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, object]] = []
        self._arrived: queue.SimpleQueue[tuple[str, object]] = queue.SimpleQueue()

    def of(self, name: str) -> Callable[[object], None]:
        def note(event: object) -> None:
            self.entries.append((name, event))
            self._arrived.put((name, event))

        return note

    def wait_for(self, name: str, *kinds: type) -> object:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            arrived, event = self._arrived.get(timeout=max(0.0, deadline - time.monotonic()))
            if arrived == name and isinstance(event, kinds):
                return event

    def position(self, name: str, kind: type) -> int:
        return next(n for n, (by, event) in enumerate(self.entries) if by == name and isinstance(event, kind))


@pytest.fixture
def engine(tiny_models: TinyModels) -> Iterator[EngineClient]:
    with EngineClient() as client:
        client.load_and_wait(pair_spec(tiny_models.target, tiny_models.draft, n_ctx=8192))
        yield client


@pytest.fixture
def journal() -> Journal:
    return Journal()


def greedy(engine: EngineClient, **fields: object) -> list[object]:
    return list(engine.stream(raw(sampling=GREEDY, max_tokens=20, **fields)))


def start_endless(engine: EngineClient, journal: Journal, name: str = "first") -> str:
    request = raw(sampling=ENDLESS)
    engine.submit(request, journal.of(name))
    journal.wait_for(name, StepDecoded)
    return request.request_id


def kill(engine: EngineClient) -> None:
    assert engine.process_id is not None
    psutil.Process(engine.process_id).kill()


def test_the_target_stays_where_it_is(engine: EngineClient, tiny_models: TinyModels):
    before, process_id = greedy(engine), engine.process_id
    seen: list[object] = []
    loaded = engine.swap_draft_and_wait(ModelSpec(tiny_models.stranger), seen.append)
    assert (loaded.target_name, loaded.draft_name, loaded.n_ctx) == ("target", "stranger", 8192)
    assert loaded == seen[-1]
    assert {event.what for event in seen if isinstance(event, Loading)} == {"Loading the draft"}
    assert engine.process_id == process_id
    after = greedy(engine)
    assert text_of(after) == text_of(before)
    assert after[-1].metrics.n_cached_tokens == after[-1].metrics.n_prompt_tokens - 1 > 0


def test_to_none_and_back(engine: EngineClient, tiny_models: TinyModels):
    text = text_of(greedy(engine))
    assert engine.swap_draft_and_wait(None).draft_name is None
    events = greedy(engine)
    assert isinstance(events[0], Queued)
    assert events[0].mode is Mode.LOOKUP
    assert text_of(events) == text
    assert engine.swap_draft_and_wait(ModelSpec(tiny_models.draft)).draft_name == "draft"
    events = greedy(engine)
    assert isinstance(events[0], Queued)
    assert events[0].mode is Mode.DRAFT
    assert text_of(events) == text


class TestRefusals:
    def test_an_incompatible_one_leaves_the_old_one_in_place(
        self, engine: EngineClient, journal: Journal, tmp_path: Path
    ):
        before = greedy(engine)
        other = write_tiny_model(tmp_path / "other.gguf", extra_tokens=300)
        engine.swap_draft(ModelSpec(other), journal.of("swap"))
        failed = journal.wait_for("swap", Loaded, SwapFailed)
        assert isinstance(failed, SwapFailed)
        assert isinstance(failed.error, IncompatiblePairError)
        assert failed.loaded is not None
        assert failed.loaded.draft_name == "draft"
        after = greedy(engine)
        assert after[-1].metrics.n_accepted == before[-1].metrics.n_accepted > 0
        assert after[-1].metrics.n_cached_tokens > 0

    def test_a_missing_one_is_named(self, engine: EngineClient, tmp_path: Path):
        with pytest.raises(ModelFileError, match=r"none\.gguf"):
            engine.swap_draft_and_wait(ModelSpec(tmp_path / "none.gguf"))
        assert isinstance(greedy(engine)[-1], Finished)

    def test_before_any_load(self, tiny_models: TinyModels):
        with EngineClient() as client, pytest.raises(EngineError, match="No model"):
            client.swap_draft(ModelSpec(tiny_models.draft), lambda _: None)

    def test_after_a_load_that_failed_its_reason_is_told(self, tiny_models: TinyModels, tmp_path: Path):
        with EngineClient() as client:
            with pytest.raises(ModelFileError):
                client.load_and_wait(pair_spec(tmp_path / "none.gguf"))
            with pytest.raises(ModelFileError):
                client.swap_draft_and_wait(ModelSpec(tiny_models.draft))

    def test_after_the_end(self, engine: EngineClient, tiny_models: TinyModels):
        engine.close()
        with pytest.raises(EngineError):
            engine.swap_draft(ModelSpec(tiny_models.draft), lambda _: None)


class TestItsTurn:
    def test_replies_before_it_end_with_the_old_one_and_those_after_it_have_the_new_one(
        self, engine: EngineClient, tiny_models: TinyModels, journal: Journal
    ):
        first = start_endless(engine, journal)
        engine.swap_draft(None, journal.of("swap"))
        engine.submit(raw(sampling=GREEDY, max_tokens=5), journal.of("second"))
        journal.wait_for("first", StepDecoded)
        journal.wait_for("first", StepDecoded)
        assert {name for name, _ in journal.entries} == {"first"}
        engine.cancel(first)
        queued = journal.wait_for("second", Queued)
        assert isinstance(queued, Queued)
        assert queued.mode is Mode.LOOKUP  # there is no draft model any more
        journal.wait_for("second", Finished)
        ends = [journal.position(*each) for each in [("first", Cancelled), ("swap", Loaded), ("second", Queued)]]
        assert ends == sorted(ends)

    def test_a_request_behind_it_is_cancelled_at_once(self, engine: EngineClient, journal: Journal):
        first = start_endless(engine, journal)
        engine.swap_draft(None, journal.of("swap"))
        waiting = raw(max_tokens=5)
        engine.submit(waiting, journal.of("second"))
        engine.cancel(waiting.request_id)
        journal.wait_for("second", Cancelled)
        assert "swap" not in {name for name, _ in journal.entries}
        engine.cancel(first)
        journal.wait_for("swap", Loaded)
        assert [type(event) for name, event in journal.entries if name == "second"] == [Cancelled]

    def test_it_can_be_cancelled_while_it_waits(self, engine: EngineClient, tiny_models: TinyModels, journal: Journal):
        first = start_endless(engine, journal)
        engine.swap_draft(ModelSpec(tiny_models.stranger), journal.of("swap"))
        engine.submit(raw(sampling=GREEDY, max_tokens=5), journal.of("second"))
        engine.cancel_swap()
        failed = journal.wait_for("swap", SwapFailed)
        assert isinstance(failed, SwapFailed)
        assert isinstance(failed.error, LoadCancelledError)
        assert failed.loaded is not None
        assert failed.loaded.draft_name == "draft"
        journal.wait_for("second", Queued)
        engine.cancel(first)
        journal.wait_for("second", Finished)
        engine.cancel_swap()  # there is none: nothing happens
        assert isinstance(greedy(engine)[-1], Finished)

    def test_a_later_choice_replaces_an_earlier_one(
        self, engine: EngineClient, tiny_models: TinyModels, journal: Journal
    ):
        first = start_endless(engine, journal)
        engine.swap_draft(None, journal.of("early"))
        engine.swap_draft(ModelSpec(tiny_models.stranger), journal.of("late"))
        failed = journal.wait_for("early", SwapFailed)
        assert isinstance(failed, SwapFailed)
        assert isinstance(failed.error, LoadCancelledError)
        engine.cancel(first)
        loaded = journal.wait_for("late", Loaded)
        assert isinstance(loaded, Loaded)
        assert loaded.draft_name == "stranger"

    def test_another_pair_ends_it_and_what_waits_behind_it(
        self, engine: EngineClient, tiny_models: TinyModels, journal: Journal
    ):
        start_endless(engine, journal)
        engine.swap_draft(None, journal.of("swap"))
        engine.submit(raw(max_tokens=5), journal.of("second"))
        loaded = engine.load_and_wait(pair_spec(tiny_models.stranger))
        assert loaded.target_name == "stranger"
        failed = journal.wait_for("swap", SwapFailed)
        assert isinstance(failed, SwapFailed)
        assert failed.loaded is None
        ends = [type(event) for name, event in journal.entries if name in {"first", "second"}]
        assert ends.count(Failed) == 2

    def test_right_behind_a_load_it_waits_for_that(self, tiny_models: TinyModels, journal: Journal):
        with EngineClient() as client:
            client.load(pair_spec(tiny_models.target, tiny_models.draft), journal.of("load"))
            client.swap_draft(ModelSpec(tiny_models.stranger), journal.of("swap"))
            loaded = journal.wait_for("swap", Loaded, SwapFailed)
            assert isinstance(loaded, Loaded)
            assert loaded.draft_name == "stranger"
            assert journal.position("load", Loaded) < journal.position("swap", Loaded)

    def test_the_end_of_the_engine_ends_it(self, engine: EngineClient, tiny_models: TinyModels, journal: Journal):
        start_endless(engine, journal)
        engine.swap_draft(ModelSpec(tiny_models.stranger), journal.of("swap"))
        engine.close()
        assert isinstance(journal.entries[journal.position("swap", SwapFailed)][1], SwapFailed)
        assert isinstance(journal.entries[journal.position("first", Failed)][1], Failed)


class TestDeath:
    def test_an_engine_that_dies_during_it_comes_back_with_the_old_one(
        self, engine: EngineClient, tiny_models: TinyModels, journal: Journal
    ):
        before = greedy(engine)
        assert engine.process_id is not None
        psutil.Process(engine.process_id).suspend()
        engine.swap_draft(ModelSpec(tiny_models.stranger), journal.of("swap"))
        kill(engine)
        failed = journal.wait_for("swap", Loaded, SwapFailed)
        assert isinstance(failed, SwapFailed)
        assert isinstance(failed.error, EngineDiedError)
        assert failed.loaded is None
        events = greedy(engine)
        assert isinstance(events[0], Queued)
        assert events[0].mode is Mode.DRAFT
        assert events[-1].metrics.n_accepted == before[-1].metrics.n_accepted > 0
        assert text_of(events) == text_of(before)

    def test_a_new_process_loads_the_draft_model_that_was_chosen_last(self, tiny_models: TinyModels, journal: Journal):
        with EngineClient() as client:
            client.load(pair_spec(tiny_models.target, tiny_models.draft), journal.of("load"))
            journal.wait_for("load", Loaded)
            client.swap_draft_and_wait(ModelSpec(tiny_models.stranger))
            with pytest.raises(ModelFileError):
                client.swap_draft_and_wait(ModelSpec(Path("none.gguf")))
            kill(client)
            while client.process_id is not None:
                time.sleep(0.01)
            greedy(client)
            loaded = journal.wait_for("load", Loaded, LoadFailed)
            assert isinstance(loaded, Loaded)
            assert loaded.draft_name == "stranger"

    def test_asked_of_a_dead_engine_it_loads_the_pair_first(self, engine: EngineClient, tiny_models: TinyModels):
        kill(engine)
        while engine.process_id is not None:
            time.sleep(0.01)
        loaded = engine.swap_draft_and_wait(ModelSpec(tiny_models.stranger))
        assert (loaded.target_name, loaded.draft_name) == ("target", "stranger")
        assert isinstance(greedy(engine)[-1], Finished)

    def test_another_pair_is_not_given_the_draft_of_the_one_before(self, tiny_models: TinyModels, journal: Journal):
        """The news of an exchange may come after the next load was asked for."""
        with EngineClient() as client:
            client.load_and_wait(pair_spec(tiny_models.target, tiny_models.draft))
            client.swap_draft(ModelSpec(tiny_models.stranger), journal.of("swap"))
            client.load(pair_spec(tiny_models.stranger), journal.of("load"))
            journal.wait_for("load", Loaded)
            kill(client)
            while client.process_id is not None:
                time.sleep(0.01)
            greedy(client, mode=Mode.LOOKUP)
            loaded = journal.wait_for("load", Loaded, LoadFailed)
            assert isinstance(loaded, Loaded)
            assert (loaded.target_name, loaded.draft_name) == ("stranger", None)
