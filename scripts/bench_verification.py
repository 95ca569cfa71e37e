"""Mean acceptance length when a sampled draft is verified as a block, against token by token: same pair, same ceiling.

No times are measured, so the machine may be busy. Replies differ between the two, as their random numbers do: the mean
is over all steps of many replies, and its standard error is that of the replies' means.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from localspec.bench.workloads import read_workloads
from localspec.engine.events import Finished, RequestEvent
from localspec.engine.loader import LoadedPair, load_pair
from localspec.engine.requests import GenerateRequest, Mode, ModelSpec, PairSpec, SamplingParams
from localspec.engine.scheduler import Scheduler
from localspec.models.demo import demo_files


def replies(pair: LoadedPair, args: argparse.Namespace, *, jointly: bool) -> list[tuple[int, int]]:
    """Accepted tokens and steps of every reply."""
    events: list[RequestEvent] = []
    scheduler = Scheduler(pair, events.append, verifies_blocks=jointly)
    for workload in read_workloads():
        for seed in range(args.repetitions):
            sampling = SamplingParams(temperature=args.temperature, seed=seed, **args.truncation)
            scheduler.submit(
                GenerateRequest(
                    workload.chat,
                    sampling=sampling,
                    mode=Mode.DRAFT,
                    fixed_length=True,
                    num_speculative_tokens=args.ceiling,
                    max_tokens=args.max_tokens,
                )
            )
    while not scheduler.is_idle:
        scheduler.step()
    return [(e.metrics.n_accepted, e.metrics.n_steps) for e in events if isinstance(e, Finished)]


def mean_length(of: list[tuple[int, int]]) -> tuple[float, float]:
    """1 + accepted / steps over all replies, and the standard error of its estimate (replies as clusters)."""
    accepted, steps = (sum(each) for each in zip(*of, strict=True))
    ratio = accepted / steps
    residuals = [a - ratio * s for a, s in of]
    return 1 + ratio, statistics.stdev(residuals) * len(of) ** 0.5 / steps


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="scripts/bench_verification", description=__doc__)
    parser.add_argument("--draft", type=Path, help="another draft model than the demo pair's")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--ceiling", type=int, default=8)
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--whole-vocabulary", action="store_true", help="no top-k, top-p or min-p")
    args = parser.parse_args()
    args.truncation = {"top_k": 0, "top_p": 1.0, "min_p": 0.0} if args.whole_vocabulary else {}
    files = demo_files()
    target = ModelSpec(files.target, unpacked_from=files.draft)
    pair = load_pair(PairSpec("pair", target, ModelSpec(args.draft or files.draft), n_ctx=2048), lambda _: True)
    try:
        one_by_one, block = (mean_length(replies(pair, args, jointly=jointly)) for jointly in (False, True))
    finally:
        pair.close()
    print(
        f"temperature {args.temperature:g}, ceiling {args.ceiling}, "
        f"{'whole vocabulary' if args.whole_vocabulary else 'default truncation'}: "
        f"token by token {one_by_one[0]:.3f} +- {one_by_one[1]:.3f}, block {block[0]:.3f} +- {block[1]:.3f}, "
        f"ratio {block[0] / one_by_one[0]:.3f}"
    )


if __name__ == "__main__":
    main()
