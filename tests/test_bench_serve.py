"""The measurement of several clients at once, on a stand-in for a server."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.bench.workloads import Workload
from localspec.errors import EngineError
from scripts.bench_serve import Results, our_command
from scripts.peers.contenders import Task
from scripts.peers.modes import MODES
from scripts.peers.reply import Reply
from scripts.peers.server import ServerProcess, ServerSettings
from scripts.peers.volleys import Server, Volley, fire
from tests.stand_in_server import StandIn

TASK = Task(Workload("1", "chat", "one"), (1, 2, 3), 0.0, 0, max_tokens=4)


def settings(binary: Path) -> ServerSettings:
    return ServerSettings(binary, Path("target.gguf"), Path("draft.gguf"), n_ctx=512, n_threads=3, n_slots=4)


def volley(server: str, n_clients: int, repetition: int, speed: float) -> Volley:
    return Volley(server, n_clients, repetition, n_tokens=100, seconds=100 / speed, replies=())


@pytest.mark.parametrize("n_clients", [1, 3, 8])
def test_every_task_is_asked_once_and_its_reply_is_in_its_place(stand_in: StandIn, n_clients: int) -> None:
    tasks = [replace(TASK, max_tokens=n) for n in (4, 9, 2, 7, 5, 3)]
    with ServerProcess("stand-in", settings(stand_in.binary).command(MODES["plain"])) as process:
        done = fire(Server("stand-in", process.port, {"more": 1}), tasks, n_clients)
    assert [reply.n_tokens for reply in done.replies] == [4, 9, 2, 7, 5, 3]
    assert done.n_tokens == 30
    assert done.tokens_per_second <= n_clients * 200  # each client gets a token every 5 ms at best
    asked = stand_in.noted("request")
    assert sorted(body["n_predict"] for body in asked) == [2, 3, 4, 5, 7, 9]
    assert all(body["more"] == 1 for body in asked)


def test_a_server_that_dies_ends_the_volley(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_DIES", "3")
    with (
        ServerProcess("stand-in", settings(stand_in.binary).command(MODES["plain"])) as process,
        pytest.raises(EngineError, match=r"broke off|in the middle"),
    ):
        fire(Server("stand-in", process.port), [TASK] * 20, 4)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("client ")]


def test_all_servers_have_as_many_slots_and_as_much_context() -> None:
    theirs, ours = settings(Path("llama-server")).command(MODES["plain"]), our_command(settings(Path("llama-server")))
    for flag, value in (("--parallel", "4"), ("--ctx-size", "512"), ("--threads", "3")):
        assert theirs[theirs.index(flag) + 1] == value
        assert ours[ours.index(flag.removesuffix("-size")) + 1] == value
    assert "--kv-unified" in theirs  # cells are shared, as ours are


def test_ratios_are_taken_within_a_repetition() -> None:
    results = Results()
    for repetition, mood in enumerate((1.0, 2.0, 4.0)):  # the machine doubles its speed
        results.volleys += [
            volley("localspec auto", 1, repetition, 20 * mood),
            volley("llama-server plain", 1, repetition, 10 * mood),
            volley("localspec auto", 4, repetition, 50 * mood),
            volley("llama-server plain", 4, repetition, 40 * mood),
        ]
    results.overheads["localspec auto"] = [(1.02, 0.99), (1.00, 1.00), (1.01, 1.01)]
    gain = results.ratio(("localspec auto", 4), ("localspec auto", 1))
    assert gain is not None
    assert (gain.middle, gain.low, gain.high) == (2.5, 2.5, 2.5)
    tables = results.tables()
    assert "| localspec auto / llama-server plain | 2.00 (2.00 to 2.00) | 1.25 (1.25 to 1.25) |" in tables
    assert "| localspec auto | 1.01 (1.00 to 1.02)" in tables
    assert results.as_dict()["volleys"][0]["n_clients"] == 1  # type: ignore[index]


def test_what_ended_early_is_reported_as_far_as_it_went() -> None:
    results = Results()
    assert results.tables() == ""
    results.volleys += [volley("localspec auto", 1, 0, 20), volley("localspec auto", 4, 0, 30)]
    assert "30.0" in results.tables()
    assert Reply((), 3).n_tokens == 0
