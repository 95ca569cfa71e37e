"""The real pair: SmolLM2-135M as Q4_1 drafts for the same weights as F32. Greedy equality, acceptance, self-draft."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.bench.workloads import read_workloads
from localspec.engine.loader import LoadedPair, load_pair
from localspec.engine.requests import GenerateRequest, Mode, ModelSpec, PairSpec, SamplingParams
from localspec.models.demo import DemoFiles, demo_files
from tests.cli.conftest import run_localspec
from tests.dropped_layers import write_without_layers
from tests.engine.conftest import InProcessEngine, end_of, text_of, tokens_of
from tests.terminal import Terminal

pytestmark = [pytest.mark.model, pytest.mark.slow]

WORKLOADS = {workload.name: workload for workload in read_workloads()}
# Two logits closer than this may change places between a batch and a single decode.
TIE = 0.02


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Holds the demo target, half a gigabyte: gone after the tests."""
    folder = tmp_path_factory.mktemp("home")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def files(home: Path) -> Iterator[DemoFiles]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALSPEC_HOME", str(home))
        yield demo_files()


@pytest.fixture(scope="module")
def pair(files: DemoFiles) -> Iterator[LoadedPair]:
    target = ModelSpec(files.target, unpacked_from=files.draft)
    loaded = load_pair(PairSpec("demo", target, ModelSpec(files.draft), n_ctx=2048), lambda _: True)
    yield loaded
    loaded.close()


def ask(pair: LoadedPair, workload: str, mode: Mode, temperature: float, n: int = 5) -> list:
    """The reply in a mode; every draft has `n` tokens, in all modes but auto."""
    request = GenerateRequest(
        WORKLOADS[workload].chat,
        sampling=SamplingParams(temperature=temperature, seed=1),
        mode=mode,
        num_speculative_tokens=n,
        fixed_length=mode is not Mode.AUTO,
        max_tokens=96,
    )
    return InProcessEngine(pair).run(request)


def top_two_gap(pair: LoadedPair, workload: str, reply: list[int]) -> float:
    """How far apart the target's two best logits are after a reply."""
    context = pair.target.context
    tokens = [*pair.encoder.encode(WORKLOADS[workload].chat), *reply]
    context.clear_all()
    for start in range(0, len(tokens), context.n_batch):
        chunk = tokens[start : start + context.n_batch]
        context.add(chunk, position=start, n_outputs=1)
        context.decode()
    best = sorted(context.logits(len(chunk) - 1))[-2:]
    return float(best[1] - best[0])


@pytest.mark.parametrize("workload", ["seasons", "lru", "rename", "invoice"])
@pytest.mark.parametrize(("mode", "n_draft"), [(Mode.DRAFT, 3), (Mode.DRAFT, 8), (Mode.LOOKUP, 5), (Mode.AUTO, 16)])
def test_greedy_replies_equal_plain_decoding_up_to_ties(pair: LoadedPair, workload: str, mode: Mode, n_draft: int):
    plain = tokens_of(ask(pair, workload, Mode.PLAIN, 0.0))
    drafted = tokens_of(ask(pair, workload, mode, 0.0, n_draft))
    differing = next((i for i, (a, b) in enumerate(zip(plain, drafted, strict=False)) if a != b), None)
    if differing is None:
        assert plain == drafted
    else:
        assert top_two_gap(pair, workload, plain[:differing]) < TIE


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_most_drafts_are_accepted(pair: LoadedPair, temperature: float):
    drafted = accepted = 0
    for workload in ("seasons", "trains", "csv", "manual"):
        metrics = end_of(ask(pair, workload, Mode.DRAFT, temperature)).metrics
        drafted, accepted = drafted + metrics.n_drafted, accepted + metrics.n_accepted
    assert accepted / drafted > 0.85


@pytest.mark.parametrize("temperature", [0.0, 0.8, 1.2])
def test_a_target_that_drafts_for_itself_is_not_rejected(pair: LoadedPair, files: DemoFiles, temperature: float):
    """Every rejection is a bug, but for ties in the last bits between a batch and a single decode."""
    spec = PairSpec("self", ModelSpec(files.target), ModelSpec(files.target), n_ctx=1024)
    itself = load_pair(spec, lambda _: True)
    try:
        metrics = end_of(ask(itself, "bread", Mode.DRAFT, temperature)).metrics
    finally:
        itself.close()
    assert metrics.draft_acceptance_rate > 0.985


def test_auto_steps_aside_where_the_draft_model_is_bad(files: DemoFiles, pair: LoadedPair, tmp_path: Path):
    """Without two of every ten layers it is accepted rarely. What is drafted after a first reply are probes."""
    del pair  # its target is written by now
    bad = tmp_path / "bad.gguf"
    write_without_layers(files.draft, bad, set(range(4, 30, 5)))
    spec = PairSpec("bad", ModelSpec(files.target), ModelSpec(bad), n_ctx=1024)
    loaded = load_pair(spec, lambda _: True)
    try:
        fixed = end_of(ask(loaded, "seasons", Mode.DRAFT, 0.8, 4)).metrics
        assert fixed.draft_acceptance_rate < 0.4
        engine = InProcessEngine(loaded)
        request = GenerateRequest(WORKLOADS["seasons"].chat, sampling=SamplingParams(seed=1), max_tokens=128)
        engine.run(request)
        metrics = end_of(engine.run(replace(request, request_id="second"))).metrics
        assert metrics.n_drafted - metrics.n_lookup_drafted < 0.25 * metrics.n_tokens
    finally:
        loaded.close()


def test_a_second_turn_reuses_the_first(pair: LoadedPair):
    from localspec.engine.requests import ChatPrompt, Message

    engine = InProcessEngine(pair)
    first = ChatPrompt((Message("user", "Name three rivers."),))
    sampling = SamplingParams(temperature=0.0)
    reply = text_of(engine.run(GenerateRequest(first, sampling=sampling, max_tokens=64)))
    second = ChatPrompt((*first.messages, Message("assistant", reply), Message("user", "Which is the longest?")))
    metrics = end_of(engine.run(GenerateRequest(second, sampling=sampling, max_tokens=8))).metrics
    assert metrics.n_cached_tokens > len(pair.encoder.encode(first))


def test_the_command_line_uses_it_when_nothing_is_configured(pair: LoadedPair, home: Path, tmp_path: Path):
    del pair  # its target is written by now
    done = run_localspec(
        ["generate", "--temperature", "0", "-n", "24", "--json", "What is the capital of France?"], home, tmp_path
    )
    assert done.returncode == 0, done.stderr.decode()
    assert "demo pair" in done.stderr.decode()
    answer = json.loads(done.stdout)
    assert "Paris" in answer["text"]
    assert answer["metrics"]["n_accepted"] > 0


def test_the_chat_answers_in_a_real_terminal(pair: LoadedPair, home: Path, tmux: str):
    del pair
    terminal = Terminal(tmux, "localspec chat --demo --temperature 0 --max-tokens 40", f"LOCALSPEC_HOME={home}")
    try:
        terminal.until(terminal.screen, "SmolLM2-135M-Instruct.F32", "^q Quit")
        terminal.run("send-keys", "What is the capital of France?", "Enter")
        screen = terminal.until(terminal.screen, "Paris", "auto mode ·")
        assert re.search(r"\d+\.\d tokens/s", screen)
        terminal.run("set-option", "remain-on-exit", "on")
        terminal.run("send-keys", "C-q")
        terminal.until(terminal.exit_status, "status 0")
    finally:
        terminal.close()
