"""An engine without a process around it: a scheduler over a tiny pair, driven to the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from localspec.engine.events import Cancelled, Failed, Finished, RequestEvent, StepDecoded
from localspec.engine.loader import LoadedPair, load_pair
from localspec.engine.requests import GenerateRequest, Mode, ModelSpec, PairSpec, RawPrompt
from localspec.engine.scheduler import Scheduler
from tests.native_fixtures import TinyModels


@dataclass
class InProcessEngine:
    """Collects every event; `run` returns those of one request."""

    pair: LoadedPair
    n_slots: int = 1
    events: list[RequestEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.pair, self.events.append, n_slots=self.n_slots)

    def run(self, request: GenerateRequest) -> list[RequestEvent]:
        self.scheduler.submit(request)
        self.finish()
        return self.of(request.request_id)

    def finish(self) -> None:
        for _ in range(10_000):
            if self.scheduler.is_idle:
                return
            self.scheduler.step()
        raise AssertionError("the scheduler does not come to an end")

    def of(self, request_id: str) -> list[RequestEvent]:
        return [event for event in self.events if event.request_id == request_id]


def text_of(events: list[RequestEvent]) -> str:
    return "".join(
        span.text for event in events if isinstance(event, StepDecoded | Finished | Cancelled) for span in event.spans
    )


def tokens_of(events: list[RequestEvent]) -> list[int]:
    return [token for event in events if isinstance(event, StepDecoded) for token in event.step.tokens]


def end_of(events: list[RequestEvent]) -> RequestEvent:
    ends = [event for event in events if isinstance(event, Finished | Cancelled | Failed)]
    assert len(ends) == 1, ends
    assert events[-1] is ends[0]
    return ends[0]


def pair_spec(target: Path, draft: Path | None = None, n_ctx: int = 256) -> PairSpec:
    # One thread: for models of this size a second one only waits for the first.
    return PairSpec("tiny", ModelSpec(target), ModelSpec(draft) if draft else None, n_ctx=n_ctx, n_threads=1)


@pytest.fixture(scope="session")
def load() -> Iterator[Callable[..., LoadedPair]]:
    """Loads pairs and closes them at the end of the session."""
    loaded: dict[tuple[object, ...], LoadedPair] = {}

    def load_once(target: Path, draft: Path | None = None, *, n_ctx: int = 256, n_seq_max: int = 1) -> LoadedPair:
        key = (target, draft, n_ctx, n_seq_max)
        if key not in loaded:
            loaded[key] = load_pair(pair_spec(target, draft, n_ctx), lambda _: True, n_seq_max=n_seq_max)
        return loaded[key]

    yield load_once
    for pair in loaded.values():
        pair.close()


@pytest.fixture(scope="session")
def pair(load: Callable[..., LoadedPair], tiny_models: TinyModels) -> LoadedPair:
    return load(tiny_models.target, tiny_models.draft)


@pytest.fixture
def engine(pair: LoadedPair) -> InProcessEngine:
    return InProcessEngine(pair)


def raw(text: str = "The quick brown fox", *, mode: Mode = Mode.DRAFT, **fields: object) -> GenerateRequest:
    """A request; every draft has five tokens unless something else is said, since tiny models would not draft else."""
    fixed = {} if mode is Mode.AUTO else {"fixed_length": True, "num_speculative_tokens": 5}
    return GenerateRequest(RawPrompt(text), mode=mode, **{**fixed, **fields})  # type: ignore[arg-type]
