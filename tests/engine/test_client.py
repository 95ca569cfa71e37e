"""The engine as a process: loading, streaming, cancelling, and what its death does to those who wait."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from localspec.engine.client import EngineClient
from localspec.engine.events import (
    Cancelled,
    Failed,
    Finished,
    Loaded,
    LoadEvent,
    LoadFailed,
    Loading,
    RequestEvent,
    StepDecoded,
)
from localspec.engine.requests import SamplingParams
from localspec.errors import EngineDiedError, EngineError, IncompatiblePairError, ModelFileError, UsageError
from tests.engine.conftest import end_of, pair_spec, raw, text_of
from tests.native_fixtures import TinyModels
from tests.tiny_models import write_tiny_model

pytestmark = pytest.mark.native

# Never ends by itself before the context does.
ENDLESS = SamplingParams(logit_bias=((257, -100.0),), seed=1)
TIMEOUT_S = 60


@pytest.fixture
def engine(tiny_models: TinyModels) -> Iterator[EngineClient]:
    with EngineClient() as client:
        client.load_and_wait(pair_spec(tiny_models.target, tiny_models.draft, n_ctx=8192))
        yield client


class Listener:
    """Collects events; `wait_for` returns the first of a kind."""

    def __init__(self) -> None:
        self.events: list[RequestEvent] = []
        self._arrived: queue.SimpleQueue[RequestEvent] = queue.SimpleQueue()

    def __call__(self, event: RequestEvent) -> None:
        self.events.append(event)
        self._arrived.put(event)

    def wait_for(self, *kinds: type) -> RequestEvent:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            event = self._arrived.get(timeout=max(0.0, deadline - time.monotonic()))
            if isinstance(event, kinds):
                return event


def test_loading_tells_its_progress_and_what_was_loaded(tiny_models: TinyModels):
    seen: list[LoadEvent] = []
    with EngineClient() as client:
        loaded = client.load_and_wait(pair_spec(tiny_models.target, tiny_models.draft), seen.append)
        assert client.process_id is not None
        assert client.process_id != os.getpid()
    assert client.process_id is None
    assert loaded == seen[-1]
    assert (loaded.target_name, loaded.draft_name, loaded.n_ctx) == ("target", "draft", 256)
    assert loaded.weights_bytes > 200_000
    fractions = [event.fraction for event in seen if isinstance(event, Loading) and "target" in event.what]
    assert fractions == sorted(fractions)
    assert fractions[-1] == pytest.approx(1.0)


def test_the_folder_of_the_user_is_not_a_place_for_imports(
    tiny_models: TinyModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "psutil.py").write_text(f"open({str(tmp_path / 'was-run')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    with EngineClient() as client:
        client.load_and_wait(pair_spec(tiny_models.target))
    assert not (tmp_path / "was-run").exists()


def test_events_of_a_reply_arrive_in_order_and_once(engine: EngineClient):
    events = list(engine.stream(raw(max_tokens=25, sampling=ENDLESS)))
    end = end_of(events)
    assert isinstance(end, Finished)
    assert end.metrics.n_tokens == 25
    assert text_of(events)


def test_requests_of_several_threads_all_end(engine: EngineClient):
    results: list[RequestEvent] = []

    def ask() -> None:
        results.append(list(engine.stream(raw(max_tokens=10, sampling=ENDLESS)))[-1])

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert [type(result) for result in results] == [Finished] * 6


def test_cancel_stops_within_one_step(engine: EngineClient):
    listener, request = Listener(), raw(sampling=ENDLESS)
    engine.submit(request, listener)
    listener.wait_for(StepDecoded)
    engine.cancel(request.request_id)
    assert isinstance(listener.wait_for(Cancelled, Finished, Failed), Cancelled)
    assert isinstance(end_of(listener.events), Cancelled)


def test_leaving_a_stream_early_cancels_it(engine: EngineClient):
    for event in engine.stream(raw(sampling=ENDLESS)):
        if isinstance(event, StepDecoded):
            break
    # The only slot is free again: this one would wait for ever otherwise.
    assert isinstance(list(engine.stream(raw(max_tokens=3)))[-1], Finished)


class TestDeath:
    def kill(self, engine: EngineClient) -> None:
        assert engine.process_id is not None
        os.kill(engine.process_id, signal.SIGKILL)

    def test_a_killed_engine_ends_the_reply_with_an_error_and_the_next_request_reloads(self, engine: EngineClient):
        first = Listener()
        engine.submit(raw(sampling=ENDLESS), first)
        first.wait_for(StepDecoded)
        old = engine.process_id
        self.kill(engine)
        failed = first.wait_for(Failed)
        assert isinstance(failed, Failed)
        assert isinstance(failed.error, EngineDiedError)
        assert "signal 9" in str(failed.error)
        assert failed.error.hint
        end_of(first.events)
        assert isinstance(list(engine.stream(raw(max_tokens=5)))[-1], Finished)
        assert engine.process_id not in {None, old}

    def test_every_waiting_request_is_told_once(self, engine: EngineClient):
        listeners = [Listener() for _ in range(4)]
        for listener in listeners:
            engine.submit(raw(sampling=ENDLESS), listener)
        listeners[0].wait_for(StepDecoded)
        self.kill(engine)
        for listener in listeners:
            listener.wait_for(Failed)
            assert isinstance(end_of(listener.events), Failed)

    def test_an_engine_that_died_while_idle_is_replaced_by_the_next_request(self, engine: EngineClient):
        self.kill(engine)
        deadline = time.monotonic() + TIMEOUT_S
        while engine.process_id is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert isinstance(list(engine.stream(raw(max_tokens=5)))[-1], Finished)

    def test_a_native_abort_is_only_an_engine_death(self, engine: EngineClient):
        """GGML_ASSERT calls abort(); the program lives."""
        listener = Listener()
        engine.submit(raw(sampling=ENDLESS), listener)
        listener.wait_for(StepDecoded)
        assert engine.process_id is not None
        os.kill(engine.process_id, signal.SIGABRT)
        failed = listener.wait_for(Failed)
        assert isinstance(failed, Failed)
        assert isinstance(failed.error, EngineDiedError)

    def test_the_engine_does_not_outlive_its_front_end(self, tiny_models: TinyModels):
        script = textwrap.dedent(f"""
            import os, sys
            from pathlib import Path
            from localspec.engine.client import EngineClient
            from localspec.engine.requests import ModelSpec, PairSpec
            engine = EngineClient()
            engine.load_and_wait(PairSpec("tiny", ModelSpec(Path({str(tiny_models.target)!r})), n_ctx=256))
            print(engine.process_id, flush=True)
            os.kill(os.getpid(), 9)
        """)
        done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, timeout=TIMEOUT_S, check=False)
        pid = int(done.stdout)
        deadline = time.monotonic() + TIMEOUT_S
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, "the engine is still there"
            time.sleep(0.05)


class TestRefusedLoads:
    def fail(self, *paths: Path) -> Exception:
        with EngineClient() as client, pytest.raises(Exception) as caught:
            client.load_and_wait(pair_spec(*paths))
        return caught.value

    def test_a_missing_file(self, tmp_path: Path):
        error = self.fail(tmp_path / "none.gguf")
        assert isinstance(error, ModelFileError)
        assert "none.gguf" in str(error)

    def test_an_incompatible_draft_keeps_its_rule_and_values_across_the_process(
        self, tiny_models: TinyModels, tmp_path: Path
    ):
        other = write_tiny_model(tmp_path / "other.gguf", extra_tokens=300)
        error = self.fail(tiny_models.target, other)
        assert isinstance(error, IncompatiblePairError)
        assert error.rule
        assert "259" in error.target_value
        assert "559" in error.draft_value

    def test_requests_that_were_sent_meanwhile_get_the_reason(self, tmp_path: Path):
        with EngineClient() as client:
            loads: queue.SimpleQueue[LoadEvent] = queue.SimpleQueue()
            listener = Listener()
            client.load(pair_spec(tmp_path / "none.gguf"), loads.put)
            client.submit(raw(), listener)
            assert isinstance(loads.get(timeout=TIMEOUT_S), LoadFailed)
            failed = listener.wait_for(Failed)
            assert isinstance(failed, Failed)
            assert isinstance(failed.error, ModelFileError)

    def test_the_next_request_tries_again(self, tiny_models: TinyModels, tmp_path: Path):
        path = tmp_path / "late.gguf"
        with EngineClient() as client:
            with pytest.raises(ModelFileError):
                client.load_and_wait(pair_spec(path))
            process_id = client.process_id
            with pytest.raises(ModelFileError):
                list(client.stream(raw(max_tokens=3)))
            shutil.copy(tiny_models.target, path)
            assert isinstance(list(client.stream(raw(max_tokens=3)))[-1], Finished)
            assert client.process_id == process_id

    def test_an_engine_that_finds_no_model_after_its_death_does_so_when_it_is_back(
        self, tiny_models: TinyModels, tmp_path: Path
    ):
        path = tmp_path / "there.gguf"
        shutil.copy(tiny_models.target, path)
        with EngineClient() as client:
            client.load_and_wait(pair_spec(path))
            path.rename(tmp_path / "away.gguf")
            assert client.process_id is not None
            psutil.Process(client.process_id).kill()
            while client.process_id is not None:
                time.sleep(0.01)
            with pytest.raises(ModelFileError):
                list(client.stream(raw(max_tokens=3)))
            (tmp_path / "away.gguf").rename(path)
            assert isinstance(list(client.stream(raw(max_tokens=3)))[-1], Finished)

    def test_another_pair_can_be_loaded_after_it(self, tiny_models: TinyModels, tmp_path: Path):
        with EngineClient() as client:
            with pytest.raises(ModelFileError):
                client.load_and_wait(pair_spec(tmp_path / "none.gguf"))
            client.load_and_wait(pair_spec(tiny_models.target))
            assert isinstance(list(client.stream(raw(max_tokens=3)))[-1], Finished)


def test_a_later_load_replaces_an_earlier_one(tiny_models: TinyModels):
    with EngineClient() as client:
        first: queue.SimpleQueue[LoadEvent] = queue.SimpleQueue()
        client.load(pair_spec(tiny_models.target), first.put)
        loaded = client.load_and_wait(pair_spec(tiny_models.stranger))
        assert loaded.target_name == "stranger"
        ends = []
        while not ends:
            event = first.get(timeout=TIMEOUT_S)
            ends = [event] if isinstance(event, Loaded | LoadFailed) else []


def test_a_request_before_any_load_is_refused():
    with EngineClient() as client, pytest.raises(EngineError, match="No model"):
        client.submit(raw(), lambda _: None)


def test_closing_ends_open_requests_and_may_be_repeated(engine: EngineClient):
    listener = Listener()
    engine.submit(raw(sampling=ENDLESS), listener)
    listener.wait_for(StepDecoded)
    engine.close()
    engine.close()
    assert isinstance(end_of(listener.events), Failed)
    with pytest.raises(EngineError):
        engine.submit(raw(), listener)


def test_one_request_cannot_run_twice_at_once(engine: EngineClient):
    request, listener = raw(sampling=ENDLESS), Listener()
    engine.submit(request, listener)
    with pytest.raises(UsageError, match=request.request_id):
        engine.submit(request, lambda _: None)
    engine.cancel(request.request_id)
    listener.wait_for(Cancelled)
    engine.submit(request, listener)  # again, afterwards, is fine
    engine.cancel(request.request_id)


def test_a_listener_that_fails_does_not_stop_the_others(engine: EngineClient):
    def broken(_: RequestEvent) -> None:
        raise RuntimeError("a front end's bug")

    engine.submit(raw(max_tokens=5), broken)
    assert isinstance(list(engine.stream(raw(max_tokens=5)))[-1], Finished)


@pytest.mark.slow
def test_memory_does_not_grow_over_many_replies(engine: EngineClient):
    def rss() -> int:
        assert engine.process_id is not None
        return psutil.Process(engine.process_id).memory_info().rss

    def reply(i: int) -> None:
        sampling = SamplingParams(seed=i, repeat_penalty=1.1, grammar="root ::= .+" if i % 2 else None)
        list(engine.stream(raw(f"prompt number {i} ", max_tokens=30, sampling=sampling)))

    for i in range(50):
        reply(i)
    before = rss()
    for i in range(200):
        reply(i)
    assert rss() - before < 4_000_000


def test_an_interrupted_close_still_ends_the_engine(tiny_models: TinyModels):
    """Ctrl-C while the client waits for an engine that does not answer."""
    client = EngineClient()
    client.load_and_wait(pair_spec(tiny_models.target))
    assert client.process_id is not None
    engine = psutil.Process(client.process_id)
    engine.suspend()
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        client.close()
    timer.join()
    engine.wait(10)
