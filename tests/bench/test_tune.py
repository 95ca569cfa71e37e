"""Tuning from the first load to the profile, on a scripted engine whose best settings are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.bench.profile import find_profile, profile_file
from localspec.bench.records import write_record
from localspec.bench.tune import Tuned, TuneOptions, profile_files, profile_of, tune
from localspec.bench.tune_space import Choices, present_point
from localspec.bench.workloads import Workload
from localspec.config import Settings
from localspec.engine.requests import GenerateRequest, Mode, ModelSpec, PairSpec, SamplingParams
from localspec.errors import DoesNotFitError, EngineError, UsageError
from tests.bench.tune_engine import ScriptedEngine

SPEEDS = {Mode.PLAIN: 1.0, Mode.LOOKUP: 1.1, Mode.AUTO: 1.3, Mode.DRAFT: 1.2}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    paths = {name: tmp_path / f"{name}.gguf" for name in ("target", "draft", "other")}
    for name, path in paths.items():
        path.write_bytes(name.encode() * 1_000)
    return paths


def token_s(pair: PairSpec, request: GenerateRequest) -> float:
    """Best: auto, three threads, a ceiling of 8, n-grams of 3 to 6; fixed lengths and q4 caches are slow."""
    speed = SPEEDS[request.mode]
    speed *= {None: 1.0, 3: 1.2, 1: 0.5}[pair.n_threads]
    if request.mode is not Mode.PLAIN:
        speed *= {8: 1.05}.get(request.num_speculative_tokens, 1.0)
        speed *= 0.8 if request.fixed_length else 1.0
        speed *= 1.04 if (pair.lookup_min_ngram, pair.lookup_max_ngram) == (3, 6) else 1.0
        speed *= 1.5 if pair.draft is not None and pair.draft.path.stem == "other" else 1.0
    return 0.01 / speed


def options(
    files: dict[str, Path], *, draft: str | None = "draft", given: tuple[str, ...] = (), **changes: object
) -> TuneOptions:
    path = files[draft] if draft else None
    base = TuneOptions(
        pair=PairSpec("pair", ModelSpec(files["target"]), ModelSpec(path) if path else None),
        present=present_point(Settings(), path),
        given=given,
        draft_gpu_layers=-1,
        sampling=SamplingParams(),
        temperatures=(0.0, 0.8),
        workloads=tuple(Workload("x" * 50, name=str(i)) for i in range(4)),
        choices=Choices(threads=(1, 3)),
        budget_s=100_000.0,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def run(engine: ScriptedEngine, settings: TuneOptions) -> Tuned:
    return tune(engine, settings, now=engine.now)


def test_it_finds_the_best_settings_and_says_why(files: dict[str, Path]):
    engine = ScriptedEngine(token_s, load_s=3.0)
    tuned = run(engine, options(files))
    best = tuned.outcome.best
    assert (best.mode, best.threads, best.num_speculative_tokens, best.fixed_length) == (Mode.AUTO, 3, 8, False)
    assert (best.lookup_min_ngram, best.lookup_max_ngram) == (3, 6)
    assert tuned.outcome.is_complete
    assert not tuned.interrupted
    profile = profile_of(tuned)
    assert profile.settings == best.settings
    assert profile.findings.temperatures == (0.0, 0.8)
    assert profile.findings.workloads == ("own/0", "own/1", "own/2", "own/3")
    assert profile.findings.seconds == pytest.approx(engine.time - 3.0)
    assert profile.findings.reason == (
        "auto mode: 1.30 x (1.30 to 1.30); 3 threads: 1.20 x (1.20 to 1.20); ceiling 8: 1.05 x (1.05 to 1.05); "
        "n-grams of 3 to 6: 1.04 x (1.04 to 1.04)"
    )
    one_thread = next(each for each in profile.findings.comparisons if each.change == "1 thread")
    assert (one_thread.verdict, one_thread.ratio, one_thread.low) == ("not faster", pytest.approx(0.5), None)


def test_the_profile_is_found_by_the_pair_that_was_tuned(files: dict[str, Path]):
    tuned = run(ScriptedEngine(token_s), options(files))
    (file,) = profile_files(tuned)
    write_record(profile_of(tuned), file)
    found = find_profile(files["target"], files["draft"], gpu_layers=-1, draft_gpu_layers=-1)
    assert found.profile == profile_of(tuned).model_copy(update={"findings": found.profile.findings})  # type: ignore[union-attr]
    assert find_profile(files["target"], None, gpu_layers=-1, draft_gpu_layers=-1).profile is None


def test_where_nothing_beats_plain_the_profile_says_plain_and_why(files: dict[str, Path]):
    tuned = run(ScriptedEngine(lambda pair, request: 0.01 if request.mode is Mode.PLAIN else 0.0102), options(files))
    profile = profile_of(tuned)
    assert profile.settings.mode == "plain"
    assert profile.findings.reason.startswith("no drafts were clearly faster than plain decoding (nearest: ")
    assert "0.98 x" in profile.findings.reason


def test_a_draft_that_was_found_comes_along_where_none_was_named(files: dict[str, Path]):
    tuned = run(
        ScriptedEngine(token_s),
        options(files, draft=None, choices=Choices(drafts=(files["draft"], files["other"]))),
    )
    assert tuned.outcome.best.draft == files["other"]
    assert set(profile_files(tuned)) == {
        profile_file(files["target"], None),
        profile_file(files["target"], files["other"]),
    }
    for file in profile_files(tuned):
        write_record(profile_of(tuned), file)
    found = find_profile(files["target"], None, gpu_layers=-1, draft_gpu_layers=-1)
    assert found.profile is not None
    assert found.profile.basis.draft_path == files["other"]


def test_a_draft_that_beats_the_named_one_gets_the_profile_of_its_own_pair(files: dict[str, Path]):
    tuned = run(ScriptedEngine(token_s), options(files, choices=Choices(drafts=(files["other"],))))
    assert tuned.outcome.best.draft == files["other"]
    assert profile_files(tuned) == [profile_file(files["target"], files["other"])]


def test_a_draft_that_cannot_be_loaded_is_told_and_the_search_goes_on(files: dict[str, Path]):
    engine = ScriptedEngine(token_s, unloadable=lambda pair: pair.draft is not None and pair.draft.path.stem == "other")
    tuned = run(engine, options(files, choices=Choices(drafts=(files["other"],), threads=(3,))))
    assert tuned.outcome.best.draft == files["draft"]
    assert tuned.outcome.best.threads == 3
    (refused,) = {each.note for each in profile_of(tuned).findings.comparisons if each.verdict == "cannot be used"}
    assert refused == "It does not fit."


def test_what_the_user_has_set_is_neither_varied_nor_compared_with_plain(files: dict[str, Path]):
    engine = ScriptedEngine(token_s)
    present = replace(options(files).present, threads=1)
    tuned = run(engine, options(files, given=("mode", "threads"), present=present))
    assert {request.mode for request in engine.requests} == {Mode.AUTO}
    assert {pair.n_threads for pair in engine.loads} == {1}
    best = tuned.outcome.best
    assert (best.lookup_min_ngram, best.lookup_max_ngram) == (3, 6)
    # With the mode set, a tuned ceiling would not be used.
    assert {request.num_speculative_tokens for request in engine.requests} == {None}


@pytest.mark.parametrize("budget_s", [40.0, 100.0, 400.0, 2_000.0])
@pytest.mark.parametrize("load_s", [0.0, 4.0])
def test_the_budget_is_kept_and_what_it_allowed_is_kept_too(files: dict[str, Path], budget_s: float, load_s: float):
    engine = ScriptedEngine(token_s, load_s=load_s, read_s=0.1)
    tuned = run(engine, options(files, budget_s=budget_s))
    # A load cannot be cut short, nor a step.
    assert tuned.seconds <= budget_s + load_s + 0.2
    assert tuned.outcome.is_confirmed
    assert tuned.outcome.best.mode is Mode.AUTO


def test_a_budget_that_allows_nothing_is_refused(files: dict[str, Path]):
    for budget_s in (0.05, 5.0):
        with pytest.raises(UsageError, match="budget") as caught:
            run(ScriptedEngine(lambda pair, request: 0.1), options(files, budget_s=budget_s))
        assert "--budget" in caught.value.hint


def test_a_pair_that_cannot_be_loaded_or_run_as_it_is_set_is_an_error(files: dict[str, Path]):
    with pytest.raises(DoesNotFitError):
        run(ScriptedEngine(token_s, unloadable=lambda _: True), options(files))
    with pytest.raises(EngineError):
        run(ScriptedEngine(token_s, unrunnable=lambda _: True), options(files))


def test_an_error_keeps_what_was_decided(files: dict[str, Path]):
    """The best settings so far fail, as when a driver resets: there is nothing left to compare with."""
    engine = ScriptedEngine(token_s)
    engine.unrunnable = lambda request: len(engine.requests) > 40
    tuned = run(engine, options(files))
    assert isinstance(tuned.error, EngineError)
    assert not tuned.outcome.is_complete
    assert tuned.outcome.best.mode is Mode.AUTO
    assert profile_files(tuned) == [profile_file(files["target"], files["draft"])]
    assert profile_of(tuned).findings.comparisons[0].verdict == "kept"


def interrupt_after(n: int) -> Callable[[object], None]:
    heard = []

    def listen(event: object) -> None:
        heard.append(event)
        if len(heard) == n:
            raise KeyboardInterrupt

    return listen


def test_ctrl_c_keeps_what_was_decided_and_nothing_else(files: dict[str, Path]):
    engine = ScriptedEngine(token_s)
    # Begin, pass, verdict of the first comparison; then the second begins.
    early = tune(engine, options(files), on_trial=interrupt_after(2), now=engine.now)
    assert early.interrupted
    assert profile_files(early) == []
    engine = ScriptedEngine(token_s)
    later = tune(engine, options(files), on_trial=interrupt_after(4), now=engine.now)
    assert later.interrupted
    assert later.outcome.best.mode is Mode.AUTO
    assert profile_files(later) == [profile_file(files["target"], files["draft"])]
    with pytest.raises(KeyboardInterrupt):
        run(ScriptedEngine(interrupt), options(files))


def interrupt(pair: PairSpec, request: GenerateRequest) -> float:
    raise KeyboardInterrupt
