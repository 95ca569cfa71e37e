"""Events from the engine's thread reach the screen in order, once, and as few updates as it can draw."""

from __future__ import annotations

import threading
from dataclasses import replace

from localspec.engine.events import Finished, FinishReason, Loaded, Loading, Prefilling, Queued, StepDecoded
from localspec.engine.requests import Mode
from localspec.speculative.drafter import DraftSource
from localspec.speculative.rejection import Origin
from localspec.tui.bridge import Decoded, EngineBridge, EngineEvent, merge
from localspec.tui.messages import EngineReported
from tests.tui.scripted_engine import LOADED, metrics, reply_events

TEXT = "Speculative decoding drafts a few tokens and verifies them at once."


def steps(request_id: str, text: str = TEXT) -> list[StepDecoded]:
    return [replace(event, request_id=request_id) for event in reply_events(text)]


def test_steps_of_a_request_are_merged() -> None:
    events = steps("r1")
    (merged,) = merge(events)
    assert isinstance(merged, Decoded)
    assert "".join(span.text for span in merged.spans) == TEXT
    assert merged.steps == tuple(event.step for event in events)
    assert merged.metrics is events[-1].metrics


def test_one_step_is_merged_with_nothing() -> None:
    event = steps("r1")[0]
    assert merge([event]) == [Decoded("r1", event.spans, (event.step,), event.metrics)]


def test_merged_steps_keep_what_was_copied_apart_from_what_was_drafted() -> None:
    sources = [DraftSource.LOOKUP, DraftSource.MODEL]
    events = reply_events("a b c d e f", accepted=[2, 1, -1], sources=sources)
    (merged,) = merge(events)
    assert isinstance(merged, Decoded)
    copied, drafted, target = Origin.COPIED, Origin.DRAFT, Origin.TARGET
    assert [span.origin for span in merged.spans[:6]] == [
        *(copied, copied, Origin.RESIDUAL),
        *(drafted, Origin.RESIDUAL),
        target,
    ]


def test_steps_of_two_requests_are_kept_apart() -> None:
    first, second = steps("r1"), steps("r2")
    assert [type(report) for report in merge([*first, *second])] == [Decoded, Decoded]
    assert [report.request_id for report in merge([*first, *second]) if isinstance(report, Decoded)] == ["r1", "r2"]


def test_the_last_of_a_run_of_progress_is_kept() -> None:
    events: list[EngineEvent] = [
        Loading("Loading the target", 0.1),
        Loading("Loading the target", 1.0),
        Loading("Loading the draft", 0.5),
        LOADED,
        Queued("r1", 7, Mode.DRAFT),
        Prefilling("r1", 1, 9, 0),
        Prefilling("r1", 9, 9, 0),
        Prefilling("r2", 1, 2, 0),
    ]
    assert merge(events) == [
        Loading("Loading the draft", 0.5),
        LOADED,
        Queued("r1", 7, Mode.DRAFT),
        Prefilling("r1", 9, 9, 0),
        Prefilling("r2", 1, 2, 0),
    ]


def test_what_ends_a_reply_is_never_merged_away() -> None:
    done = Finished("r1", (), FinishReason.STOP, metrics())
    assert merge([*steps("r1"), done, *steps("r2")])[1] is done


def test_one_message_announces_many_events() -> None:
    posted: list[EngineReported] = []
    bridge = EngineBridge(posted.append)
    for event in steps("r1"):
        bridge.deliver(event)
    assert len(posted) == 1
    assert len(bridge.drain()) == 1
    assert bridge.drain() == []
    bridge.deliver(LOADED)
    assert len(posted) == 2
    assert [type(report) for report in bridge.drain()] == [Loaded]


def test_nothing_is_lost_or_reordered_between_threads() -> None:
    """Whenever an event waits, a message is on its way: the drawing thread never misses the last ones."""
    announced = threading.Semaphore(0)
    bridge = EngineBridge(lambda _: announced.release())
    events = steps("r1", TEXT * 20)

    def deliver_all() -> None:
        for event in events:
            bridge.deliver(event)

    thread = threading.Thread(target=deliver_all)
    thread.start()
    text = ""
    while len(text) < 20 * len(TEXT):
        assert announced.acquire(timeout=10)
        for report in bridge.drain():
            assert isinstance(report, Decoded)
            text += "".join(span.text for span in report.spans)
    thread.join()
    assert text == TEXT * 20


def test_an_event_after_the_end_of_the_program_is_dropped() -> None:
    def post(message: EngineReported) -> None:
        raise RuntimeError("Event loop is closed")

    EngineBridge(post).deliver(LOADED)
