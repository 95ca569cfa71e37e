"""Compares localspec with llama-server; `scripts/bench_peers --help` says how."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from localspec.bench.conditions import Conditions
from localspec.cli.console import INTERRUPTED, LoadProgress, say, say_error
from localspec.engine.client import EngineClient
from localspec.engine.prompts import PromptEncoder
from localspec.engine.requests import SamplingParams
from localspec.errors import DoesNotFitError, LocalspecError, UsageError
from localspec.llama.model import Model
from localspec.memory.devices import host_memory
from scripts.peers.binary import server_uses_gpu
from scripts.peers.contenders import BindingsContender, Contender, LocalspecContender, ServerContender, Task
from scripts.peers.options import Arrangement, arrange, parse
from scripts.peers.report import Circumstances, Report
from scripts.peers.server import ServerSettings
from scripts.peers.turns import Run, idle_load, measure, tasks_of, warm_up

_MAX_IDLE_CORES: Final = 0.02
_MAX_IDLE_SHARE: Final = 0.05
_ROOM_BYTES: Final = 512 << 20  # caches, compute buffers and all else of one more server
_TERMINATED = 143


class Terminated(BaseException):
    """SIGTERM or SIGHUP came: unwinds everything, so that every server ends."""


@dataclass(slots=True)
class Outcome:
    """What there is so far, however it ends."""

    runs: list[Run] = field(default_factory=list)
    conditions: Conditions | None = None
    other_load: float = 0.0  # share of the processor that others took before anything was asked


def contend(arrangement: Arrangement, outcome: Outcome) -> None:
    """Load and start everything, measure, and end everything.

    Raises:
        LocalspecError: something did not load, start or reply.
    """
    with ExitStack() as stack:
        engine = stack.enter_context(EngineClient())
        loaded = engine.load_and_wait(arrangement.pair, LoadProgress())
        outcome.conditions = Conditions.now(arrangement.pair, loaded)
        binary = arrangement.servers.binary
        if loaded.gpu_offload != server_uses_gpu(binary):
            ours, theirs = ("a GPU", "none") if loaded.gpu_offload else ("no GPU", "one")
            raise UsageError(
                f"localspec computes on {ours} and {binary} on {theirs}; that is no comparison.",
                hint="Name a llama-server built for the same device with --llama-server FILE.",
            )
        tasks = _tasks(arrangement)
        contenders: list[Contender] = [LocalspecContender(engine, mode) for mode in arrangement.our_modes]
        for mode in arrangement.server_modes:
            server = ServerContender(mode, arrangement.servers, keep=arrangement.keep_servers)
            _require_memory(arrangement.servers)
            stack.callback(server.stop)
            server.start()
            contenders.append(server)
        if arrangement.with_bindings:
            settings = arrangement.servers
            contenders.append(BindingsContender(settings.target, settings.n_ctx, settings.n_threads))
        say(f"{len(tasks) * len(contenders)} replies of {len(contenders)} contenders; first a short one of each.")
        warm_up(contenders, tasks[0])
        outcome.other_load = _other_load(contenders)
        measure(tasks, contenders, outcome.runs, Progress())


def _tasks(arrangement: Arrangement) -> list[Task]:
    with Model(arrangement.pair.target.path, n_gpu_layers=0) as model:
        encoder = PromptEncoder(model)
        prompts = [(each, tuple(encoder.encode(each.chat))) for each in arrangement.workloads]
    tasks = tasks_of(prompts, arrangement.temperatures, arrangement.n_repetitions, arrangement.max_tokens)
    n_ctx = arrangement.servers.n_ctx
    for task in tasks:
        if len(task.tokens) + task.max_tokens > n_ctx:
            raise UsageError(
                f"{task.workload} has {len(task.tokens)} prompt tokens; with {task.max_tokens} of the reply "
                f"that is more than the context of {n_ctx}.",
                hint="Give a larger context with --ctx, or shorter replies with --max-tokens.",
            )
    return tasks


def _require_memory(settings: ServerSettings) -> None:
    """Weights are mapped from the file, so what is available counts the pages that another server has read already."""
    needed = settings.target.stat().st_size + _ROOM_BYTES
    available = host_memory().free_bytes
    if available < needed:
        raise DoesNotFitError(
            f"One more llama-server may need {needed >> 20} MiB of memory; {available >> 20} MiB are available.",
            hint="Run the servers --one-at-a-time, or fewer --modes.",
        )


def _other_load(contenders: Sequence[Contender]) -> float:
    """How busy the machine is while nobody is asked; says so where that is more than a little."""
    process_ids = {each.name: each.process_id for each in contenders if each.process_id is not None}
    machine, cores = idle_load(process_ids)
    for name, load in cores.items():
        if load > _MAX_IDLE_CORES:
            say(f"Note: {name} takes {load:.2f} of a core while it should idle; the others are measured beside it.")
    if machine > _MAX_IDLE_SHARE:
        say(f"Note: {machine:.0%} of the processor is taken before anything is asked; speeds will suffer from that.")
    return machine


class Progress:
    """Replies so far and time left on stderr: one line that is rewritten on a terminal, a line a minute elsewhere."""

    def __init__(self) -> None:
        self._started = self._shown = time.monotonic()

    def __call__(self, n_done: int, n_all: int) -> None:
        """Show it."""
        now = time.monotonic()
        left_s = (now - self._started) / n_done * (n_all - n_done)
        text = f"{n_done} of {n_all} replies, about {left_s / 60:.0f} min left"
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{text}" if n_done < n_all else "\r\x1b[K")
            sys.stderr.flush()
        elif now - self._shown >= 60:
            self._shown = now
            say(text)


def circumstances_of(arrangement: Arrangement, conditions: Conditions, other_load: float) -> Circumstances:
    """For the reader who wants to repeat it."""
    sampling = SamplingParams()
    ours = {LocalspecContender.name_of(mode): f"--mode {mode}" for mode in arrangement.our_modes}
    theirs = {ServerContender.name_of(mode): " ".join(mode.flags) for mode in arrangement.server_modes}
    bindings = {BindingsContender.name: BindingsContender.how} if arrangement.with_bindings else {}
    return Circumstances(
        conditions=conditions,
        settings={
            "llama-server": arrangement.server_version,
            "flags of all its modes": " ".join(arrangement.servers.common_flags),
            "servers": "idle between their turns" if arrangement.keep_servers else "a fresh one for each reply",
            "sampling": f"top-k {sampling.top_k}, top-p {sampling.top_p:g}, min-p {sampling.min_p:g}, no penalties",
            "processor taken by others before": f"{other_load:.0%}",
            "repetitions": f"{arrangement.n_repetitions}, replies of at most {arrangement.max_tokens} tokens",
        },
        contenders={**ours, **theirs, **bindings},
    )


def publish(report: Report, circumstances: Circumstances, args: argparse.Namespace) -> None:
    """Show the tables and write the files."""
    print(report.tables())
    if args.markdown:
        args.markdown.write_text(f"{report.markdown(circumstances)}\n", encoding="utf-8")
    if args.json:
        args.json.write_text(f"{json.dumps(report.as_dict(circumstances), indent=1)}\n", encoding="utf-8")


def _terminate(*_: object) -> None:
    raise Terminated


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report; the exit code. What was measured is reported however it ends."""
    args = parse(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _terminate)
    outcome = Outcome()
    code = 0
    try:
        arrangement = arrange(args)
        contend(arrangement, outcome)
    except LocalspecError as error:
        say_error(error)
        code = error.exit_code
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Terminated:
        code = _TERMINATED
    if not outcome.runs or outcome.conditions is None:
        return code
    if code:
        say(f"\nThis ended early; {len(outcome.runs)} replies were measured.")
    report = Report(outcome.runs, LocalspecContender.name_of(arrangement.our_modes[0]))
    try:
        publish(report, circumstances_of(arrangement, outcome.conditions, outcome.other_load), args)
    except OSError as error:
        say(f"localspec: the results cannot be written: {error}")
        return code or 1
    return code


if __name__ == "__main__":
    sys.exit(main())
