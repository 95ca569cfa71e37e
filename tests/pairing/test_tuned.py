"""What was tuned for a pair reaches the chat's pair screen as it reaches the command line, and below what was said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.cli.options import PairOptions, SamplingOptions
from localspec.cli.selection import select
from localspec.config import TunedSettings, left_to, load_settings
from localspec.engine.requests import KvType, ModelSpec, PairSpec
from localspec.memory.devices import Machine, MemoryDevice
from localspec.memory.plan import plan
from localspec.models.gguf import read_header
from localspec.pairing.chosen import ChosenPair, ReadyPair, Target, ready_pair
from localspec.pairing.drafts import Conditions, judge
from localspec.pairing.resolve import ResolvedModel
from localspec.pairing.tuned import tuned
from tests.cli.conftest import stored
from tests.memory.shape_models import dense
from tests.memory.shapes import write_shape

GIB = 1 << 30
CPU = Machine(MemoryDevice("system memory", 64 * GIB, 64 * GIB), (), unified=False, note="")
TUNED = {
    "mode": "draft",
    "num_speculative_tokens": 7,
    "fixed_length": True,
    "lookup_min_ngram": 3,
    "lookup_max_ngram": 6,
    "kv_type": "q8_0",
    "draft_kv_type": "bf16",
    "threads": 3,
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("localspec.memory.devices.machine", lambda: CPU)
    return tmp_path / "home"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    return (
        write_shape(folder / "big.gguf", dense("llama", 4, 512, 8, 2, 64, 1024, 3000, 32768), "q8_0", tokens=True),
        write_shape(folder / "small.gguf", dense("llama", 2, 256, 4, 2, 64, 512, 3000, 32768), "q8_0", tokens=True),
    )


def chosen_of(files: tuple[Path, Path], here: Machine = CPU, *, loaded: PairSpec | None = None) -> ChosenPair:
    target, draft = (ResolvedModel(str(path), read_header(path), path) for path in files)
    conditions = Conditions(here, 4096)
    made = plan(target.header, None, here, n_ctx=4096)
    return ChosenPair(Target(target, conditions, made, loaded), judge(target, draft, conditions))


def said(ready: ReadyPair) -> tuple[Any, ...]:
    spec = ready.spec
    return (
        ready.mode.value,
        ready.num_speculative_tokens,
        ready.fixed_length,
        spec.lookup_min_ngram,
        spec.lookup_max_ngram,
        spec.target.kv_type.value,
        spec.draft.kv_type.value if spec.draft else None,
        spec.n_threads,
    )


@pytest.mark.parametrize(
    "flags",
    [{}, {"mode": "lookup"}, {"num_speculative_tokens": 2}, {"lookup_max_ngram": 4}, {"threads": 1, "kv_type": "f16"}],
)
def test_the_pair_screen_and_the_command_line_agree(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, home: Path, flags: dict[str, Any]
) -> None:
    stored(*files, monkeypatch, home, **TUNED)
    options = PairOptions(target=str(files[0]), draft=str(files[1]))
    selection = select(None, options, SamplingOptions(), flags, uses_profile=True)
    ready = ready_pair(chosen_of(files), load_settings(None, {}, flags), {})
    ours, spec = selection.settings, selection.pair
    assert spec.draft is not None
    assert said(ready) == (
        ours.mode,
        ours.num_speculative_tokens,
        ours.fixed_length,
        spec.lookup_min_ngram,
        spec.lookup_max_ngram,
        spec.target.kv_type.value,
        spec.draft.kv_type.value,
        spec.n_threads,
    )
    assert ready.notice
    assert selection.notice == ready.notice.removesuffix(".") + "; --no-profile ignores them."
    if not flags:
        assert said(ready) == tuple(TUNED.values())


@pytest.mark.parametrize(
    "flags", [{}, {"mode": "auto"}, {"fixed_length": False}, {"lookup_min_ngram": 2}, {"threads": 2}, {"ctx": 512}]
)
def test_tuned_settings_lie_where_the_configuration_has_them(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, home: Path, flags: dict[str, Any]
) -> None:
    stored(*files, monkeypatch, home, **TUNED)
    settings = load_settings(None, {}, flags)
    found = tuned(settings, *files)
    applied = left_to(TunedSettings(**TUNED), set(flags))  # type: ignore[arg-type]
    assert found.applied == applied
    assert found.settings.model_dump() == settings.model_dump() | applied
    assert found.settings.model_fields_set == set(flags) | set(applied)


def test_without_a_profile_or_with_none_wanted_all_is_as_set(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    untuned = ("auto", None, False, 2, 4, "f16", "f16", None)
    settings = load_settings(None, {}, {})
    assert said(ready_pair(chosen_of(files), settings, {})) == untuned
    file = stored(*files, monkeypatch, home, **TUNED)
    ready = ready_pair(chosen_of(files), settings, {}, uses_profile=False)
    assert (said(ready), ready.notice) == (untuned, "")
    file.write_text("{}")
    ready = ready_pair(chosen_of(files), settings, {})
    assert said(ready) == untuned
    assert "is damaged" in ready.notice


def test_who_wants_no_draft_gets_none_by_a_profile(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    stored(*files, monkeypatch, home, is_named=False, **TUNED)
    ready = ready_pair(replace(chosen_of(files), draft=None), load_settings(None, {}, {}), {})
    assert ready.spec.draft is None
    assert (ready.mode.value, ready.num_speculative_tokens, ready.notice) == ("auto", None, "")


def test_a_cache_that_the_plan_made_smaller_stays_so(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    stored(*files, monkeypatch, home, **(TUNED | {"kv_type": "f16"}))
    settings, roomy = load_settings(None, {}, {}), chosen_of(files)
    assert ready_pair(roomy, settings, {}).spec.target.kv_type is KvType.F16
    assert roomy.plan is not None
    used = roomy.plan.choice.total_bytes + roomy.plan.choice.margin.host_bytes
    tight = replace(CPU, host=replace(CPU.host, free_bytes=used - (256 << 10)))
    chosen = chosen_of(files, tight)
    assert chosen.plan is not None
    spec = ready_pair(chosen, settings, {}).spec
    if chosen.plan.choice.target.kv_type == "q8_0":
        assert spec.target.kv_type is KvType.Q8_0
    assert spec.n_threads == 3


def test_a_loaded_target_is_loaded_again_only_where_it_was_tuned_to_be_otherwise(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    settings = load_settings(None, {}, {})
    loaded = PairSpec("pair", ModelSpec(files[0]), None, n_ctx=4096)
    ready = ready_pair(chosen_of(files, loaded=loaded), settings, {})
    assert replace(ready.spec, draft=None, name="pair") == loaded
    stored(*files, monkeypatch, home, mode="draft", threads=None, draft_kv_type="q8_0")
    ready = ready_pair(chosen_of(files, loaded=loaded), settings, {})
    assert replace(ready.spec, draft=None, name="pair") == loaded
    assert ready.spec.draft == ModelSpec(files[1], kv_type=KvType.Q8_0)
    stored(*files, monkeypatch, home, **TUNED)
    assert ready_pair(chosen_of(files, loaded=loaded), settings, {}).spec.n_threads == 3
