"""`localspec plan`: output, exit codes and refusals, for cards that are not here."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from localspec.cli.main import GlobalOptions
from localspec.cli.plan import plan
from localspec.cli.plan_screen import write_plan
from localspec.errors import IncompatiblePairError, LocalspecError, ModelFileError, UnsupportedModelError, UsageError
from localspec.memory import devices
from localspec.memory.devices import Machine, MemoryDevice
from localspec.memory.plan import plan as make_plan
from localspec.models.gguf import read_header
from tests.memory.shape_models import dense
from tests.memory.shapes import Shape, write_shape

GIB = 1 << 30
VOCABULARY = Path(__file__).parents[1] / "data" / "vocab" / "ggml-vocab-llama-spm.gguf"
SHORT = ["--ctx", "4096"]

app = typer.Typer()
app.command()(plan)


def big() -> Shape:
    """2.1 GiB as F16."""
    return dense("llama", 24, 2560, 20, 4, 128, 8192, 300, 32768)


def small() -> Shape:
    """0.2 GiB."""
    return dense("llama", 12, 1024, 8, 2, 128, 2048, 300, 32768)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shape(tmp_path_factory.mktemp("models") / "big.gguf", big(), tokens=True)


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shape(tmp_path_factory.mktemp("models") / "small.gguf", small(), tokens=True)


@pytest.fixture(autouse=True)
def without_a_card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    host = MemoryDevice("system memory", 16 * GIB, 8 * GIB)
    monkeypatch.setattr(devices, "machine", lambda: Machine(host, (), False, ""))


def run(*args: object) -> Result:
    given = GlobalOptions(config=None, verbosity=0)
    return CliRunner().invoke(app, list(map(str, args)), env={"COLUMNS": "160", "NO_COLOR": "1"}, obj=given)


def as_json(*args: object, code: int = 0) -> dict[str, Any]:
    done = run(*args, "--json")
    assert done.exit_code == code, done.output
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_pair_on_a_card_that_is_not_here(target: Path, draft: Path) -> None:
    answer = as_json("--target", target, "--draft", draft, *SHORT, "--gpu-memory", 8)
    assert answer["fits"] is True
    assert answer["choice"]["whole_on_gpu"] is True
    assert answer["choice"]["kv_type"] == "f16"
    assert answer["choice"]["draft"] == str(draft)
    assert answer["choice"]["n_ctx"] == 4096
    host, card = answer["target"]["devices"]
    assert (host["name"], card["name"]) == ("system memory", "a card of 8 GiB")
    assert card["weights_bytes"] > 2 * GIB > host["weights_bytes"] > 0
    assert card["kv_bytes"] == 24 * 4 * 256 * 2 * 4096
    assert host["kv_bytes"] == 0
    assert card["compute_bytes"] > 0


def test_the_sums_agree(target: Path, draft: Path) -> None:
    answer = as_json("--target", target, "--draft", draft, *SHORT, "--gpu-memory", 4, "--gpu-memory", 4)
    models = [answer["target"], answer["draft"]]
    for model in models:
        for part in ("weights_bytes", "kv_bytes", "compute_bytes", "total_bytes"):
            assert model[part] == sum(device[part] for device in model["devices"])
        assert model["total_bytes"] == model["weights_bytes"] + model["kv_bytes"] + model["compute_bytes"]
    assert answer["total_bytes"] == sum(model["total_bytes"] for model in models)
    for i, device in enumerate(answer["devices"]):
        assert device["used_bytes"] == sum(model["devices"][i]["total_bytes"] for model in models)
    assert [device["name"] for device in answer["devices"][1:]] == ["a card of 4 GiB (0)", "a card of 4 GiB (1)"]


def test_system_memory_alone(target: Path) -> None:
    answer = as_json("--target", target, *SHORT)
    assert answer["fits"] is True
    assert answer["choice"]["gpu_layers"] == 0
    assert answer["choice"]["whole_on_gpu"] is False
    assert answer["draft"] is None
    assert [device["name"] for device in answer["devices"]] == ["system memory"]
    assert answer == as_json("--target", target, *SHORT, "--gpu-memory", 0)


def test_the_context_by_default_is_the_models_own_or_8192(target: Path, tmp_path: Path) -> None:
    assert as_json("--target", target)["choice"]["n_ctx"] == 8192
    short = write_shape(tmp_path / "short.gguf", dense("llama", 2, 256, 4, 2, 64, 512, 300, 2048), tokens=True)
    assert as_json("--target", short)["choice"]["n_ctx"] == 2048


def test_what_does_not_fit_ends_with_4_and_says_what_would(target: Path) -> None:
    answer = as_json("--target", target, "--ctx", 500_000, code=4)
    assert answer["fits"] is False
    assert answer["missing_bytes"] > 0
    assert answer["choice"]["n_ctx"] == 500_000
    smaller = [each for each in answer["alternatives"] if each["change"] == "smaller context"]
    assert [each["fits"] for each in smaller] == [True]
    assert smaller[0]["choice"]["n_ctx"] < 500_000
    done = run("--target", target, "--ctx", 500_000)
    assert done.exit_code == 4
    assert "Does not fit" in done.stdout
    assert "a context of" in done.stdout


def test_types_and_layers_as_asked_for(target: Path, draft: Path) -> None:
    given = ["--kv-type", "q8_0", "--draft-kv-type", "q8_0", "--gpu-layers", 10]
    answer = as_json("--target", target, "--draft", draft, *SHORT, *given, "--gpu-memory", 8)
    assert answer["choice"]["kv_type"] == answer["choice"]["draft_kv_type"] == "q8_0"
    assert answer["choice"]["gpu_layers"] == 10
    assert answer["choice"]["n_layers"] == 25


def test_for_a_person(target: Path, draft: Path) -> None:
    done = run("--target", target, "--draft", draft, *SHORT, "--gpu-memory", 8)
    assert done.exit_code == 0
    assert done.stdout.startswith(
        "Fits: big.gguf, draft small.gguf, context 4,096, f16 cache, 25 of 25 layers on the GPU"
    )
    for word in ("weights", "KV cache", "compute", "system memory", "a card of 8 GiB", "Or:", "without a draft model"):
        assert word in done.stdout
    assert "█" in done.stdout


def test_names_cannot_steer_the_terminal(target: Path) -> None:
    header = replace(read_header(target), path=PurePosixPath("owner/repo/evil\x1b[2J\nname.gguf"))
    written = io.StringIO()
    write_plan(make_plan(header, header, devices.machine(), n_ctx=4096), written)
    assert "\x1b" not in written.getvalue()
    assert "evil\N{SYMBOL FOR ESCAPE}[2J name.gguf" in written.getvalue()


def test_an_unknown_architecture_is_called_an_estimate(tmp_path: Path) -> None:
    path = write_shape(tmp_path / "new.gguf", dense("llama9", 2, 256, 4, 2, 64, 512, 300, 2048), tokens=True)
    assert as_json("--target", path)["target"]["is_exact"] is False
    assert "estimates" in run("--target", path).stdout


# --- naming the target ------------------------------------------------------------------------------------------------


def test_the_target_comes_first_or_as_an_option(target: Path, draft: Path) -> None:
    given = ["--draft", draft, *SHORT, "--gpu-memory", 8]
    assert as_json(target, *given) == as_json("--target", target, *given) == as_json("-m", target, *given)
    error = refusal(target, "--target", target)
    assert isinstance(error, UsageError)
    assert "both name the target" in error.message


@pytest.fixture
def saved(target: Path, draft: Path, tmp_path: Path) -> Path:
    file = tmp_path / "home" / "config" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(
        f"""
ctx = 1024
kv_type = "bf16"
[pairs.mine]
target = "{target}"
draft = "{draft}"
ctx = 2048
kv_type = "q8_0"
gpu_layers = 7
[pairs.alone]
target = "{target}"
""",
        encoding="utf-8",
    )
    return file


def test_a_saved_pair_is_planned_as_it_would_be_loaded(target: Path, draft: Path, saved: Path) -> None:
    choice = as_json("mine", "--gpu-memory", 8)["choice"]
    assert (choice["n_ctx"], choice["kv_type"], choice["gpu_layers"]) == (2048, "q8_0", 7)
    assert (choice["draft"], choice["draft_kv_type"]) == (str(draft), "f16")
    alone = as_json("--target", "alone", "--gpu-memory", 8)["choice"]
    assert (alone["n_ctx"], alone["kv_type"], alone["draft"], alone["whole_on_gpu"]) == (1024, "bf16", None, True)


def test_flags_go_before_a_saved_pair(target: Path, draft: Path, saved: Path) -> None:
    flags = ["--ctx", 512, "--kv-type", "f16", "--gpu-layers", -1, "--draft-kv-type", "q8_0"]
    choice = as_json("mine", *flags, "--gpu-memory", 8)["choice"]
    assert (choice["n_ctx"], choice["kv_type"], choice["draft_kv_type"]) == (512, "f16", "q8_0")
    assert choice["whole_on_gpu"] is True
    assert as_json("mine", "--draft", target, "--gpu-memory", 32)["choice"]["draft"] == str(target)


def test_a_file_goes_before_a_pair_of_its_name(
    target: Path, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").symlink_to(target)
    monkeypatch.chdir(tmp_path)
    assert as_json("mine", *SHORT)["choice"]["draft"] is None


# --- refusals ---------------------------------------------------------------------------------------------------------


def refusal(*args: object) -> LocalspecError:
    error = run(*args).exception
    assert isinstance(error, LocalspecError), error
    return error


def test_a_vocabulary_is_no_model(target: Path) -> None:
    for args in (["--target", VOCABULARY], ["--target", target, "--draft", VOCABULARY]):
        error = refusal(*args)
        assert isinstance(error, UnsupportedModelError)
        assert "vocabulary only" in error.message
        assert error.exit_code == 3


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert isinstance(refusal("--target", tmp_path / "no.gguf"), ModelFileError)


def test_a_pair_that_cannot_run(target: Path, tmp_path: Path) -> None:
    stranger = write_shape(tmp_path / "other.gguf", dense("llama", 2, 256, 4, 2, 64, 512, 900, 2048), tokens=True)
    error = refusal("--target", target, "--draft", stranger)
    assert isinstance(error, IncompatiblePairError)
    assert error.rule == "vocabulary size"


def test_a_model_without_a_tokenizer_can_be_planned(tmp_path: Path) -> None:
    path = write_shape(tmp_path / "x.gguf", dense("llama", 2, 256, 4, 2, 64, 512, 300, 2048))
    assert as_json("--target", path)["fits"] is True


def test_a_cache_type_that_the_model_cannot_have(tmp_path: Path) -> None:
    path = write_shape(tmp_path / "x.gguf", dense("llama", 2, 400, 5, 5, 80, 512, 300, 2048), tokens=True)
    error = refusal("--target", path, "--kv-type", "q4_0")
    assert isinstance(error, UsageError)
    assert "blocks of 32" in error.message


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--target", "x.gguf", "--ctx", "1"],
        ["--target", "x.gguf", "--gpu-memory", "-1"],
        ["--target", "x.gguf", "--gpu-memory", "nan"],
        ["--target", "x.gguf", "--gpu-memory", "inf"],
        ["--target", "x.gguf", "--kv-type", "q3"],
        ["--target", "x.gguf", "--gpu-layers", "-2"],
    ],
)
def test_usage(args: list[str], target: Path) -> None:
    args = [str(target) if each == "x.gguf" else each for each in args]
    done = run(*args)
    assert done.exit_code == 2 or (isinstance(done.exception, LocalspecError) and done.exception.exit_code == 2)


def test_too_many_cards(target: Path) -> None:
    assert isinstance(refusal("--target", target, *["--gpu-memory", "1"] * 16), UsageError)
