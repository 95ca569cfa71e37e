"""Microseconds from a row of logits to a token, by vocabulary and sampling: the part of a step that is our own.

A row that is read again and again lies in a fast cache and flatters whoever reads it. Here every row is fresh:

- `rows`: many rows in turn, more than a second-level cache holds. The code is warm, as beside a GPU.
- `draft`: before each row a block larger than the last-level cache is written, then the row itself. On a CPU every
  forward pass does that: weights drive rows and code out of the caches. Ends with a token, as drafting does.
- `target`: the same before nine rows, which are judged one after the other, as in verification.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from localspec.engine.requests import SamplingParams
from localspec.llama.sampler import SamplerChain

Row = np.ndarray
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0.0),
    "greedy, confidence": SamplingParams(temperature=0.0),
    "defaults": SamplingParams(),
    "repeat penalty": SamplingParams(repeat_penalty=1.1),
    "min-p alone": SamplingParams(top_k=0, top_p=1.0),
}
N_VERIFIED = 9
N_FRESH_BYTES = 16_000_000
N_SWEPT_BYTES = 64_000_000


@dataclass(frozen=True)
class Vocabulary:
    """All that a chain without grammar and DRY asks of a model."""

    n_vocab: int
    name: str = "rows"


def make_rows(n: int, n_vocab: int) -> np.ndarray:
    """Rows as models write them: a broad bulk, and a few dozen tokens that stand out."""
    rng = np.random.default_rng(7)
    rows = rng.normal(0, 2.2, (n, n_vocab)).astype(np.float32)
    for row in rows:
        row[rng.integers(0, n_vocab, 30)] += np.abs(rng.normal(8, 4, 30))
    return rows


def timed(work: Callable[[Row], object], rows: Sequence[Row] | np.ndarray) -> float:
    """Seconds per row."""
    started = time.perf_counter()
    for row in rows:
        work(row)
    return (time.perf_counter() - started) / len(rows)


def measure(sampler: SamplerChain, rows: np.ndarray, *, with_confidence: bool, n_runs: int) -> dict[str, list[float]]:
    """Seconds per row in each of the three situations, one number per run."""
    rng = random.Random(3)
    memory, swept = np.empty_like(rows[:N_VERIFIED]), np.zeros(N_SWEPT_BYTES // 8)

    def draft(row: Row) -> None:
        sampler.distribution(row).sample(rng)
        if with_confidence:
            sampler.confidence(row)

    def judge(row: Row) -> None:
        sampler.distribution(row).probability(1)

    runs: dict[str, list[float]] = {"rows": [], "draft": [], "target": []}
    timed(draft, rows)
    for run in range(n_runs):
        runs["rows"].append(timed(draft, rows))
        for name, work, n in (("draft", draft, 1), ("target", judge, N_VERIFIED)):
            np.add(swept, 1.0, out=swept)
            first = run % (len(rows) - n)
            np.copyto(memory[:n], rows[first : first + n])
            runs[name].append(timed(work, memory[:n]))
    return runs


def main() -> None:
    """Print one line per vocabulary and sampling."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=int, nargs="+", default=[49_152, 151_936], help="sizes of the vocabulary")
    parser.add_argument("--runs", type=int, default=40, help="repetitions; the table shows median and 10th percentile")
    args = parser.parse_args()
    columns = ("rows", "draft", "target")
    print("us per row, median (10th percentile)".ljust(42) + "".join(name.rjust(18) for name in columns))
    for n_vocab in args.vocab:
        rows = make_rows(max(N_VERIFIED + 1, N_FRESH_BYTES // (4 * n_vocab)), n_vocab)
        for name, sampling in SAMPLINGS.items():
            with SamplerChain(Vocabulary(n_vocab), sampling, n_ctx=4096, seed=1) as sampler:  # type: ignore[arg-type]
                sampler.accept_prompt(range(100, 200))
                runs = measure(sampler, rows, with_confidence="confidence" in name, n_runs=args.runs)
            cells = [
                f"{statistics.median(runs[column]) * 1e6:.0f} ({np.percentile(runs[column], 10) * 1e6:.0f})".rjust(18)
                for column in columns
            ]
            print(f"{n_vocab:>8}  {name}".ljust(42) + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
