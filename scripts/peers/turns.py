"""Who answers what, and when: contenders take turns, so a machine that drifts drifts for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import psutil

from localspec.bench.paired import in_turn
from localspec.bench.workloads import Workload
from scripts.peers.contenders import Contender, Task, checked

_N_WARM_UP_TOKENS: Final = 24


@dataclass(frozen=True, slots=True)
class Run:
    """One reply of one contender. `tokens_per_second` is None for a reply too short to have a speed."""

    contender: str
    temperature: float
    workload: str  # kind/name
    repetition: int
    n_prompt_tokens: int
    n_tokens: int
    tokens_per_second: float | None
    own_tokens_per_second: float | None
    n_drafted: int
    n_accepted: int


def tasks_of(
    workloads: Sequence[tuple[Workload, tuple[int, ...]]],
    temperatures: Sequence[float],
    n_repetitions: int,
    max_tokens: int,
) -> list[Task]:
    """Everything to ask, whole repetitions one after the other: an interrupted run has seen every workload."""
    return [
        Task(workload, tokens, temperature, repetition, min(workload.max_tokens, max_tokens))
        for repetition in range(n_repetitions)
        for workload, tokens in workloads
        for temperature in temperatures
    ]


def turns(tasks: Sequence[Task], contenders: Sequence[Contender]) -> Iterator[tuple[Task, Contender]]:
    """Every contender once per task; each task begins with the next of them, and each repetition of it, too."""
    n_per_repetition = sum(task.repetition == tasks[0].repetition for task in tasks)
    for number, task in enumerate(tasks):
        for contender in in_turn(contenders, task.repetition + number % n_per_repetition):
            yield task, contender


def warm_up(contenders: Sequence[Contender], task: Task) -> None:
    """A short reply of each, not measured: pages, caches and first-call work are behind them then."""
    short = Task(task.workload, task.tokens, 0.0, 0, min(_N_WARM_UP_TOKENS, task.max_tokens))
    for contender in contenders:
        checked(contender.reply(short), short, contender)


def measure(
    tasks: Sequence[Task],
    contenders: Sequence[Contender],
    runs: list[Run],
    progress: Callable[[int, int], None],
) -> None:
    """Ask everything and append to `runs`, which keeps what there is when this is interrupted.

    `progress` is told the number of replies so far, and of all.
    """
    n_turns = len(tasks) * len(contenders)
    for task, contender in turns(tasks, contenders):
        reply = checked(contender.reply(task), task, contender)
        runs.append(
            Run(
                contender=contender.name,
                temperature=task.temperature,
                workload=str(task.workload),
                repetition=task.repetition,
                n_prompt_tokens=reply.n_prompt_tokens,
                n_tokens=reply.n_tokens,
                tokens_per_second=reply.tokens_per_second,
                own_tokens_per_second=reply.own_tokens_per_second,
                n_drafted=reply.n_drafted,
                n_accepted=reply.n_accepted,
            )
        )
        progress(len(runs), n_turns)


def idle_load(process_ids: Mapping[str, int], seconds: float = 1.0) -> tuple[float, dict[str, float]]:
    """How busy the machine is while nobody asks anything (1.0: all cores), and each process (1.0: one core)."""
    before = {name: _cpu_s(process_id) for name, process_id in process_ids.items()}
    machine = psutil.cpu_percent(seconds) / 100
    return machine, {name: (_cpu_s(process_id) - before[name]) / seconds for name, process_id in process_ids.items()}


def _cpu_s(process_id: int) -> float:
    times = psutil.Process(process_id).cpu_times()
    return float(times.user + times.system)
