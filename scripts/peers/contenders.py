"""Everything that can be asked for a reply: localspec's modes, llama-server's modes, llama-cpp-python's own class."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from localspec.bench.workloads import Workload
from localspec.engine.client import EngineClient
from localspec.engine.events import Finished, StepDecoded
from localspec.engine.requests import GenerateRequest, MixedPrompt, Mode, SamplingParams
from localspec.errors import EngineError
from scripts.peers.completion import complete, request_body
from scripts.peers.modes import ServerMode
from scripts.peers.reply import Reply
from scripts.peers.server import ServerProcess, ServerSettings

OURS: Final = "localspec"
THEIRS: Final = "llama-server"
BINDINGS: Final = "llama-cpp-python"


@dataclass(frozen=True, slots=True)
class Task:
    """A reply to ask for. `tokens` is the workload's prompt, rendered and tokenized once for all contenders."""

    workload: Workload
    tokens: tuple[int, ...]
    temperature: float
    repetition: int
    max_tokens: int

    @property
    def sampling(self) -> SamplingParams:
        """The sampling of every contender; each repetition has a seed of its own."""
        return SamplingParams(temperature=self.temperature, seed=1_000 + self.repetition)


class Contender(Protocol):
    """Something that replies. Its `name` is the program and its mode."""

    @property
    def name(self) -> str: ...

    @property
    def process_id(self) -> int | None:
        """The process that computes, while it runs and is not this one."""

    def reply(self, task: Task) -> Reply:
        """Compute a reply."""


class LocalspecContender:
    """One of localspec's modes, all on one engine process. Speaks to it as the chat and the commands do."""

    def __init__(self, engine: EngineClient, mode: Mode) -> None:
        self.name = self.name_of(mode)
        self._engine = engine
        self._mode = mode

    @staticmethod
    def name_of(mode: Mode) -> str:
        """The name of the contender in this mode."""
        return f"{OURS} {mode}"

    @property
    def process_id(self) -> int | None:
        """The engine."""
        return self._engine.process_id

    def reply(self, task: Task) -> Reply:
        """Compute a reply."""
        request = GenerateRequest(
            MixedPrompt(task.tokens),
            sampling=task.sampling,
            mode=self._mode,
            max_tokens=task.max_tokens,
            reuses_cache=False,
        )
        arrivals: list[tuple[float, int]] = []
        n_tokens = 0
        metrics = None
        for event in self._engine.stream(request):
            if isinstance(event, StepDecoded):
                n_tokens += len(event.step.tokens)
                arrivals.append((time.perf_counter(), n_tokens))
            elif isinstance(event, Finished):
                metrics = event.metrics
        assert metrics is not None, "nobody cancels"
        return Reply(
            arrivals=tuple(arrivals),
            n_prompt_tokens=metrics.n_prompt_tokens,
            n_drafted=metrics.n_drafted,
            n_accepted=metrics.n_accepted,
            own_tokens_per_second=metrics.tokens_per_second,
        )


class ServerContender:
    """One of llama-server's modes. With `keep` its process runs from `start` on and idles while the others work."""

    def __init__(self, mode: ServerMode, settings: ServerSettings, *, keep: bool) -> None:
        self.name = self.name_of(mode)
        self._keep = keep and not mode.remembers
        self._server = ServerProcess(self.name, settings.command(mode))

    @staticmethod
    def name_of(mode: ServerMode) -> str:
        """The name of the contender in this mode."""
        return f"{THEIRS} {mode.name}"

    @property
    def process_id(self) -> int | None:
        """The server."""
        return self._server.process_id

    def start(self) -> None:
        """Start the process, if it is one to keep."""
        if self._keep:
            self._server.start()

    def stop(self) -> None:
        """End it."""
        self._server.stop()

    def reply(self, task: Task) -> Reply:
        """Compute a reply; on a fresh server after a few other tokens, which warm it up."""
        body = request_body(task.tokens, task.sampling, task.max_tokens)
        if self._keep:
            return complete(self._server.port, body)
        with self._server:
            complete(self._server.port, request_body(task.tokens[:4], task.sampling, 4))
            return complete(self._server.port, body)


class BindingsContender:
    """The class `Llama` of llama-cpp-python, in this process: what plain decoding costs without an engine around it."""

    name = f"{BINDINGS} Llama"
    how = "Llama(...).create_completion(...)"
    process_id: int | None = None

    def __init__(self, target: Path, n_ctx: int, n_threads: int) -> None:
        import llama_cpp

        self._llama = llama_cpp.Llama(
            str(target), n_ctx=n_ctx, n_threads=n_threads, n_threads_batch=n_threads, n_gpu_layers=-1, verbose=False
        )

    def reply(self, task: Task) -> Reply:
        """Compute a reply, its prompt anew."""
        sampling = task.sampling
        self._llama.reset()
        chunks = self._llama.create_completion(
            list(task.tokens),
            max_tokens=task.max_tokens,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            repeat_penalty=sampling.repeat_penalty,
            seed=sampling.seed,
            stream=True,
        )
        times = [time.perf_counter() for _ in chunks][:-1]  # the last chunk only says why it ended
        return Reply(tuple((at, n) for n, at in enumerate(times, start=1)), n_prompt_tokens=len(task.tokens))


def checked(reply: Reply, task: Task, contender: Contender) -> Reply:
    """The reply, if it answers the prompt that was meant.

    Raises:
        EngineError: it was made from another number of tokens, or holds more than were asked for.
    """
    if reply.n_prompt_tokens != len(task.tokens):
        raise EngineError(
            f"{contender.name} read {reply.n_prompt_tokens} prompt tokens of {task.workload}, "
            f"which has {len(task.tokens)}; the comparison would not be one."
        )
    if not 0 < reply.n_tokens <= task.max_tokens:
        raise EngineError(
            f"{contender.name} replied to {task.workload} with {reply.n_tokens} tokens; "
            f"1 to {task.max_tokens} were asked for."
        )
    return reply
