"""The claims of this release, measured: plain against llama-cpp-python's own `Llama`, draft against plain.

Everything runs in one session, interleaved: for each prompt and repetition every contender once, in turning order, so
that a machine that drifts drifts for all. A speed is decode speed: tokens after the first, by the time after the first.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import llama_cpp

from localspec.bench.workloads import STANDARD, Workload, read_workloads
from localspec.engine.client import EngineClient
from localspec.engine.events import Finished, StepDecoded
from localspec.engine.prompts import PromptEncoder
from localspec.engine.requests import (
    GenerateRequest,
    Mode,
    ModelSpec,
    PairSpec,
    SamplingParams,
)
from localspec.llama.context import default_threads
from localspec.llama.library import version
from localspec.llama.model import Model
from localspec.models.demo import DEMO_NUM_SPECULATIVE_TOKENS, demo_files

N_CTX = 2048


CONTENDERS = ("Llama", "plain", "draft")
# The values that localspec uses too; `Llama` has others as defaults.
PEER_SAMPLING = {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1.0}


@dataclass(frozen=True)
class Run:
    """One reply of one contender. What `Llama` does not tell is 0."""

    contender: str
    temperature: float
    workload: str
    kind: str
    n_tokens: int
    tokens_per_second: float
    n_drafted: int = 0
    n_accepted: int = 0
    acceptance: float | None = None
    mean_acceptance_length: float | None = None
    overhead_share: float | None = None
    overhead_s: float = 0.0
    step_s: float = 0.0


class Peer:
    """llama-cpp-python's high-level class on the same file, with the same settings."""

    def __init__(self, path: Path) -> None:
        threads = default_threads()
        self._llama = llama_cpp.Llama(
            str(path), n_ctx=N_CTX, n_threads=threads, n_threads_batch=threads, n_gpu_layers=-1, verbose=False
        )
        self._model = Model(path)
        self._encoder = PromptEncoder(self._model)

    def run(self, workload: Workload, temperature: float, seed: int, max_tokens: int) -> Run:
        tokens = self._encoder.encode(workload.chat)
        self._llama.reset()
        times = [
            time.perf_counter()
            for _ in self._llama.create_completion(
                tokens, max_tokens=max_tokens, temperature=temperature, seed=seed, stream=True, **PEER_SAMPLING
            )
        ]
        times = times[:-1]  # the last chunk only says why it ended
        speed = (len(times) - 1) / (times[-1] - times[0])
        return Run("Llama", temperature, workload.name, workload.kind, len(times), speed)


def ours(
    engine: EngineClient, workload: Workload, temperature: float, seed: int, args: argparse.Namespace, mode: Mode
) -> Run:
    request = GenerateRequest(
        workload.chat,
        sampling=SamplingParams(temperature=temperature, seed=seed),
        mode=mode,
        num_speculative_tokens=args.num_speculative_tokens,
        max_tokens=min(workload.max_tokens, args.max_tokens),
    )
    metrics = None
    for event in engine.stream(request):
        if isinstance(event, StepDecoded | Finished):
            metrics = event.metrics
    assert metrics is not None
    return Run(
        mode.value,
        temperature,
        workload.name,
        workload.kind,
        metrics.n_tokens,
        metrics.tokens_per_second or 0.0,
        metrics.n_drafted,
        metrics.n_accepted,
        metrics.draft_acceptance_rate,
        metrics.mean_acceptance_length,
        metrics.overhead_share,
        metrics.overhead_s,
        metrics.step_s,
    )


def measure(args: argparse.Namespace) -> list[Run]:
    """Every contender on every workload and temperature, interleaved; a short round before warms everything up."""
    files = demo_files()
    pair = PairSpec("demo", ModelSpec(files.target, unpacked_from=files.draft), ModelSpec(files.draft), n_ctx=N_CTX)
    workloads = [each for each in read_workloads(args.workload) if not args.only or each.name in args.only]
    with EngineClient() as engine:
        engine.load_and_wait(pair)
        peer = Peer(files.target)

        def run(contender: str, workload: Workload, temperature: float, seed: int) -> Run:
            if contender == "Llama":
                return peer.run(workload, temperature, seed, min(workload.max_tokens, args.max_tokens))
            return ours(engine, workload, temperature, seed, args, Mode(contender))

        for contender in CONTENDERS:
            run(contender, workloads[0], 0.0, seed=1)
        rounds = [
            (workload, temperature, repetition)
            for repetition in range(args.repetitions)
            for workload in workloads
            for temperature in args.temperatures
        ]
        runs: list[Run] = []
        for number, (workload, temperature, repetition) in enumerate(rounds):
            for turn in range(len(CONTENDERS)):
                contender = CONTENDERS[(turn + number) % len(CONTENDERS)]
                runs.append(run(contender, workload, temperature, seed=1_000 + repetition))
            print(f"\rround {number + 1} of {len(rounds)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return runs


def table(runs: list[Run]) -> str:
    """Medians over the repetitions per workload and temperature, then geometric means of the ratios."""

    def median(contender: str, cell: tuple[float, str], value: str) -> float:
        return statistics.median(
            getattr(run, value) or 0.0
            for run in runs
            if run.contender == contender and (run.temperature, run.workload) == cell
        )

    cells = sorted({(run.temperature, run.workload) for run in runs})
    kinds = {run.workload: run.kind for run in runs}
    lines = [
        "| temperature | workload | Llama tok/s | plain tok/s | draft tok/s | plain / Llama | draft / plain "
        "| acceptance | tokens/step | overhead plain | overhead draft |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    ratios: dict[float, list[tuple[float, float]]] = {}
    for cell in cells:
        speeds = {name: median(name, cell, "tokens_per_second") for name in CONTENDERS}
        ratio = speeds["plain"] / speeds["Llama"], speeds["draft"] / speeds["plain"]
        ratios.setdefault(cell[0], []).append(ratio)
        lines.append(
            f"| {cell[0]:g} | {kinds[cell[1]]}/{cell[1]} | {speeds['Llama']:.1f} | {speeds['plain']:.1f} "
            f"| {speeds['draft']:.1f} | {ratio[0]:.3f} | {ratio[1]:.3f} | {median('draft', cell, 'acceptance'):.3f} "
            f"| {median('draft', cell, 'mean_acceptance_length'):.2f} | {median('plain', cell, 'overhead_share'):.3f} "
            f"| {median('draft', cell, 'overhead_share'):.3f} |"
        )
    lines += ["", "| temperature | plain / Llama | draft / plain | acceptance | overhead plain | overhead draft |"]
    lines.append("|---|---|---|---|---|---|")
    for temperature, pairs in ratios.items():
        of = [run for run in runs if run.temperature == temperature]
        figures = [spread([pair[i] for pair in pairs]) for i in (0, 1)]
        drafted = sum(run.n_drafted for run in of)
        acceptance = sum(run.n_accepted for run in of) / drafted if drafted else 0.0
        overheads = [
            sum(run.overhead_s for run in of if run.contender == name)
            / sum(run.step_s for run in of if run.contender == name)
            for name in ("plain", "draft")
        ]
        lines.append(
            f"| {temperature:g} | {figures[0]} | {figures[1]} | {acceptance:.3f} "
            f"| {overheads[0]:.1%} | {overheads[1]:.1%} |"
        )
    return "\n".join(lines)


def spread(ratios: list[float]) -> str:
    """Geometric mean, with the extremes."""
    return f"{statistics.geometric_mean(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--workload", type=Path, default=STANDARD, help="JSON Lines file of prompts")
    parser.add_argument("--only", action="append", help="name of one workload; may be given several times")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.8])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=192)
    parser.add_argument("--num-speculative-tokens", type=int, default=DEMO_NUM_SPECULATIVE_TOKENS)
    parser.add_argument("--json", type=Path, help="write every run to this file")
    args = parser.parse_args()
    started = time.perf_counter()
    runs = measure(args)
    if args.json:
        args.json.write_text(json.dumps([asdict(run) for run in runs], indent=1))
    threads = default_threads()
    print(f"{datetime.date.today()}, {platform.system()} {platform.machine()}, {threads} threads, {version()}")
    print(
        f"demo pair, {args.num_speculative_tokens} drafted tokens, medians of {args.repetitions}, "
        f"{time.perf_counter() - started:.0f} s in all\n"
    )
    print(table(runs))


if __name__ == "__main__":
    main()
