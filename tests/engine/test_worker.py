"""The engine's loop in this process, command by command: what it does between two steps."""

from __future__ import annotations

import pickle
import queue
from collections.abc import Callable
from dataclasses import replace

import pytest

from localspec.engine.events import Cancelled, Loaded, LoadFailed, Prefilling, Queued, RequestEvent, StepDecoded
from localspec.engine.protocol import AnswerReport, Cancel, Close, Command, Load, LoadReport, Report, Submit
from localspec.engine.requests import GenerateRequest, SamplingParams
from localspec.engine.worker import Worker
from tests.engine.conftest import pair_spec, raw
from tests.native_fixtures import TinyModels

pytestmark = pytest.mark.native

ENDLESS = SamplingParams(logit_bias=((257, -100.0),), seed=1)


class Play:
    """A worker whose reports are read as it makes them: what an event is answered with is there before the next step.

    Another reply runs beside the request under test; the worker is closed when that has gone on for five steps more.
    """

    def __init__(
        self, tiny_models: TinyModels, request: GenerateRequest, moment: Callable[[RequestEvent], bool]
    ) -> None:
        self.request, self._moment = request, moment
        self.other = raw("Another one", sampling=ENDLESS)
        self.after: list[RequestEvent] = []  # what came after the moment, and the command to cancel
        self._is_over = False
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        spec = replace(pair_spec(tiny_models.target, tiny_models.draft, n_ctx=8192), n_slots=2)
        self._commands.put(Load(1, spec))
        Worker(self._commands, self).run()  # type: ignore[arg-type]

    def write(self, data: bytes) -> int:
        report: Report = pickle.loads(data)
        if isinstance(report, LoadReport):
            assert not isinstance(report.event, LoadFailed)
            if isinstance(report.event, Loaded):
                self._commands.put(Submit(self.other))
                self._commands.put(Submit(self.request))
        elif not isinstance(report, AnswerReport):
            self._on_event(report)
        return len(data)

    def flush(self) -> None:
        pass

    def _on_event(self, event: RequestEvent) -> None:
        is_of_request = event.request_id == self.request.request_id
        if self._is_over:
            self.after.append(event)
            if sum(isinstance(each, StepDecoded) for each in self.after) == 5:
                self._commands.put(Close())
        elif is_of_request and self._moment(event):
            self._is_over = True
            self._commands.put(Cancel(self.request.request_id))


def is_waiting(event: RequestEvent) -> bool:
    return isinstance(event, Queued)


def reads_its_prompt(event: RequestEvent) -> bool:
    return isinstance(event, Prefilling) and 0 < event.n_done < event.n_total - 1


def replies(event: RequestEvent) -> bool:
    return isinstance(event, StepDecoded)


@pytest.mark.parametrize(
    ("moment", "prompt"), [(is_waiting, "Once"), (reads_its_prompt, "abcdefgh" * 500), (replies, "Once")]
)
def test_a_cancelled_request_takes_part_in_no_further_step(
    tiny_models: TinyModels, moment: Callable[[RequestEvent], bool], prompt: str
) -> None:
    play = Play(tiny_models, raw(prompt, sampling=ENDLESS), moment)
    ended = next(i for i, event in enumerate(play.after) if event.request_id == play.request.request_id)
    assert isinstance(play.after[ended], Cancelled)
    # The other may have been in the same pass as the moment; it goes on afterwards.
    assert ended <= 1
    others = [event for event in play.after if event.request_id == play.other.request_id]
    assert sum(isinstance(event, StepDecoded) for event in others) == 5
    assert len(others) + 1 == len(play.after)
