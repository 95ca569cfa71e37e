"""`localspec doctor`: what each line says of machines and installations that lack something, and that none is lost."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from localspec.cli import doctor as doctor_module
from localspec.cli import doctor_llama, doctor_machine, doctor_surroundings
from localspec.cli.doctor import doctor
from localspec.cli.doctor_findings import Finding, State, ok, run_check
from localspec.errors import EngineError, UsageError
from localspec.llama.inspection import Build, Device
from localspec.memory import nvidia
from localspec.memory.devices import Machine, MemoryDevice

GIB = 2**30
HOST = MemoryDevice("system memory", 32 * GIB, 16 * GIB)
CARD = MemoryDevice("NVIDIA GeForce RTX 4090", 24 * GIB, 23 * GIB)
CPU = Device("CPU", "Some CPU", "cpu", 16 * GIB, 32 * GIB)
CUDA = Device("CUDA0", CARD.name, "gpu", 23 * GIB, 24 * GIB)
CPU_BUILD = Build("llama-cpp-python 0.3.36", "0.25.3", False, {"CPU": {"AVX2": "1", "FMA": "1"}}, (CPU,), ())
CUDA_BUILD = Build(
    "llama-cpp-python 0.3.36", "0.25.3", True, {"CUDA": {"ARCHS": "890"}, "CPU": {"AVX2": "1"}}, (CUDA, CPU), ()
)


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_ENDPOINT", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "home"


def run(*args: str, config: Path | None = None, columns: int = 300) -> Any:
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.callback()
    def _global(context: typer.Context) -> None:
        context.obj = SimpleNamespace(config=config, verbosity=0)

    app.command()(doctor)
    return CliRunner().invoke(app, ["doctor", *args], env={"COLUMNS": str(columns)})


def one(findings: Iterator[Finding] | list[Finding], name: str) -> Finding:
    (found,) = [finding for finding in findings if finding.name == name]
    return found


class TestCommand:
    @pytest.fixture(autouse=True)
    def quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(doctor_machine, "measured_host_bandwidth", lambda: 20e9)
        monkeypatch.setattr(doctor_llama, "_inspected", lambda: CPU_BUILD)
        monkeypatch.setattr(doctor_machine, "machine", lambda: Machine(HOST, (), unified=False, note=""))
        monkeypatch.setattr(doctor_llama, "machine", lambda: Machine(HOST, (), unified=False, note=""))
        monkeypatch.setattr(nvidia, "_started", lambda: (None, "There is no NVIDIA driver."))
        monkeypatch.setattr(doctor_machine, "_has_nvidia_card", lambda: False)

    def test_a_sound_machine_ends_with_0(self):
        done = run("--offline")
        assert done.exit_code == 0, done.output
        assert "problem " not in done.stdout
        assert "Problems: 0" in done.stdout
        for name in ("Python", "processor", "memory bandwidth", "llama.cpp", "backend", "cache folder", "Hub cache"):
            assert name in done.stdout

    def test_json_is_a_list_with_the_same_keys_in_every_object(self):
        done = run("--json", "--offline")
        findings = json.loads(done.stdout)
        assert len(findings) > 15
        assert {tuple(each) for each in findings} == {("name", "state", "value", "advice")}
        assert {each["state"] for each in findings} <= {"ok", "warning", "problem"}
        assert all(each["advice"] for each in findings if each["state"] != "ok")
        assert len({each["name"] for each in findings}) == len(findings)

    def test_a_problem_ends_with_1(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(doctor_llama, "_inspected", lambda: EngineError("llama.cpp cannot be loaded: no"))
        done = run("--json", "--offline")
        assert done.exit_code == 1
        finding = next(each for each in json.loads(done.stdout) if each["name"] == "llama.cpp")
        assert finding["state"] == "problem"
        assert "pip install" in finding["advice"]

    @pytest.mark.parametrize("index", range(16))
    def test_a_check_that_fails_is_a_line_and_costs_no_other(self, monkeypatch: pytest.MonkeyPatch, index: int):
        checks = doctor_module._checks(None, offline=True)
        assert len(checks) == 16
        whole = run("--json", "--offline")

        def fail() -> list[Finding]:
            raise ZeroDivisionError("a bug\x1b[2J")

        broken = [(name, fail if n == index else check) for n, (name, check) in enumerate(checks)]
        monkeypatch.setattr(doctor_module, "_checks", lambda *_, **__: broken)
        done = run("--json", "--offline")
        assert done.exit_code == 0
        findings = json.loads(done.stdout)
        name = checks[index][0]
        line = next(each for each in findings if "ZeroDivisionError" in each["value"])
        assert line["name"] == name
        assert line["state"] == "warning"
        assert "\x1b" not in line["value"]
        kept = [each["name"] for each in findings if each is not line]
        assert set(kept) < {each["name"] for each in json.loads(whole.stdout)} | {name}

    @pytest.mark.parametrize("columns", [24, 80])
    def test_a_narrow_terminal_loses_nothing(self, columns: int):
        wide, narrow = run("--offline"), run("--offline", columns=columns)
        assert narrow.exit_code == 0
        assert sorted("".join(narrow.stdout.split())) == sorted("".join(wide.stdout.split()))


class TestIsolation:
    def test_what_was_found_before_a_failure_stays(self):
        def check() -> Iterator[Finding]:
            yield ok("first", "fine")
            raise UsageError("No.", hint="Do this.")

        assert run_check("second", check) == [
            Finding("first", State.OK, "fine"),
            Finding("second", State.PROBLEM, "No.", "Do this."),
        ]

    def test_lines_are_single_and_harmless(self):
        (finding,) = run_check("x", lambda: [ok("x", "two\nlines\x1b]0;title\x07", "a\r\nb")])
        assert finding.value == "two lines␛]0;title␇"
        assert finding.advice == "a b"


class TestBackend:
    def backend(
        self, monkeypatch: pytest.MonkeyPatch, build: Build, *cards: MemoryDevice, apple: bool = False
    ) -> Finding:
        monkeypatch.setattr(doctor_llama, "_inspected", lambda: build)
        monkeypatch.setattr(doctor_llama, "machine", lambda: Machine(HOST, cards, unified=apple, note=""))
        monkeypatch.setattr(doctor_llama, "has_apple_silicon", lambda: apple)
        return one(run_check("backend", doctor_llama.backend), "backend")

    def test_a_cpu_build_beside_a_card_is_a_problem_with_two_ways_out(self, monkeypatch: pytest.MonkeyPatch):
        finding = self.backend(monkeypatch, CPU_BUILD, CARD)
        assert finding.state is State.PROBLEM
        assert CARD.name in finding.value
        assert "-DGGML_CUDA=on" in finding.advice
        assert "--extra-index-url" in finding.advice

    def test_on_apple_silicon_the_way_out_is_metal(self, monkeypatch: pytest.MonkeyPatch):
        finding = self.backend(monkeypatch, CPU_BUILD, MemoryDevice("Apple M3", GIB, GIB), apple=True)
        assert finding.state is State.PROBLEM
        assert "-DGGML_METAL=on" in finding.advice
        assert "CUDA" not in finding.advice

    def test_a_cuda_build_that_finds_no_card_is_another_problem(self, monkeypatch: pytest.MonkeyPatch):
        build = Build("", "", False, CUDA_BUILD.features, (CPU,), ())
        finding = self.backend(monkeypatch, build, CARD)
        assert finding.state is State.PROBLEM
        assert "CUDA_VISIBLE_DEVICES" in finding.advice

    @pytest.mark.parametrize(("build", "cards"), [(CUDA_BUILD, (CARD,)), (CPU_BUILD, ()), (CUDA_BUILD, ())])
    def test_a_build_that_uses_what_there_is_is_fine(
        self, monkeypatch: pytest.MonkeyPatch, build: Build, cards: tuple[MemoryDevice, ...]
    ):
        finding = self.backend(monkeypatch, build, *cards)
        assert finding.state is State.OK
        assert all(device.description in finding.value for device in build.devices or ())


class TestLibrary:
    def test_missing_calls_are_named(self, monkeypatch: pytest.MonkeyPatch):
        build = Build("0.3.1", "", False, {}, None, tuple(f"llama_call_{n}" for n in range(9)))
        monkeypatch.setattr(doctor_llama, "_inspected", lambda: build)
        finding = one(run_check("llama.cpp", doctor_llama.library), "llama.cpp's calls")
        assert finding.state is State.PROBLEM
        assert "9 are missing: llama_call_0" in finding.value

    @pytest.mark.parametrize(
        ("message", "word"),
        [
            ("(exit code 1): libcudart.so.12: cannot open", "CUDA runtime"),
            ("(signal 4): it says nothing", "another processor"),
            ("(exit code 1): No module named 'llama_cpp'", "pip install"),
        ],
    )
    def test_a_library_that_does_not_load_is_one_line(self, monkeypatch: pytest.MonkeyPatch, message: str, word: str):
        monkeypatch.setattr(doctor_llama, "_inspected", lambda: EngineError(message))
        (finding,) = run_check("llama.cpp", doctor_llama.library)
        assert finding.state is State.PROBLEM
        assert word in finding.advice
        assert run_check("backend", doctor_llama.backend) == []
        assert run_check("CPU instructions", doctor_llama.instructions) == []

    @pytest.mark.parametrize(
        ("features", "flags", "missing"),
        [
            ({"AVX2": "1", "FMA": "1"}, {"avx2", "fma"}, []),
            ({"AVX2": "1"}, {"avx2", "avx512f", "fma"}, ["FMA", "AVX512"]),
            ({}, {"avx2"}, ["AVX2"]),
            ({"AVX512": "1"}, {"avx512f", "amx_int8"}, []),
            ({"NEON": "1", "SVE_CNT": "16"}, set(), []),
        ],
    )
    def test_instructions_that_lie_idle(
        self, monkeypatch: pytest.MonkeyPatch, features: dict[str, str], flags: set[str], missing: list[str]
    ):
        build = Build("", "", False, {"CPU": features}, None, ())
        monkeypatch.setattr(doctor_llama, "_inspected", lambda: build)
        monkeypatch.setattr(doctor_llama, "cpu_flags", lambda: frozenset(flags))
        (finding,) = run_check("", doctor_llama.instructions)
        assert finding.state is (State.WARNING if missing else State.OK)
        assert all(name in finding.value for name in (*features, *missing))
        assert ("GGML_NATIVE" in finding.advice) == bool(missing)

    def test_amx_is_left_alone(self, monkeypatch: pytest.MonkeyPatch):
        build = Build("", "", False, {"CPU": {"AVX512": "1", "AMX_INT8": "1"}}, None, ())
        monkeypatch.setattr(doctor_llama, "_inspected", lambda: build)
        monkeypatch.setattr(doctor_llama, "cpu_flags", lambda: frozenset({"avx512f", "amx_int8"}))
        (finding,) = run_check("", doctor_llama.instructions)
        assert finding.state is State.WARNING
        assert "-mno-amx-tile" in finding.advice


class TestMachine:
    @pytest.fixture
    def on(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Finding]]:
        def graphics(
            *cards: MemoryDevice,
            note: str = "",
            lack: str = "",
            versions: tuple[str, str] | None = None,
            on_bus: bool = False,
        ) -> list[Finding]:
            monkeypatch.setattr(doctor_machine, "machine", lambda: Machine(HOST, cards, unified=False, note=note))
            monkeypatch.setattr(doctor_machine, "lack", lambda: lack)
            monkeypatch.setattr(doctor_machine, "nvml", lambda: None if lack else object())
            monkeypatch.setattr(doctor_machine, "driver_versions", lambda: versions)
            monkeypatch.setattr(doctor_machine, "gpu_bandwidths", lambda: (1008e9,) * len(cards))
            monkeypatch.setattr(doctor_machine, "_has_nvidia_card", lambda: on_bus)
            return run_check("graphics cards", doctor_machine.graphics)

        return graphics

    def test_cards_are_listed_with_memory_and_bandwidth(self, on: Callable[..., list[Finding]]):
        findings = on(CARD, CARD, versions=("580.95.05", "13.0"))
        assert [finding.state for finding in findings] == [State.OK] * 3
        assert "580.95.05" in one(findings, "NVIDIA driver").value
        assert "23.0 GiB of 24.0 GiB free" in one(findings, "card 1").value
        assert "1008 GB/s" in one(findings, "card 1").value

    def test_no_card_and_no_driver_is_fine(self, on: Callable[..., list[Finding]]):
        (finding,) = on(lack="There is no NVIDIA driver.")
        assert finding.state is State.OK

    @pytest.mark.parametrize(
        ("lack", "on_bus", "word"),
        [
            ("There is no NVIDIA driver.", True, "--gpus all"),
            ("The NVIDIA driver cannot be used: Driver/library version mismatch.", False, "restart the machine"),
            ("The NVIDIA driver cannot be used: Unknown Error.", True, "nvidia-smi"),
        ],
    )
    def test_a_card_without_a_driver_that_works_is_a_problem(
        self, on: Callable[..., list[Finding]], lack: str, on_bus: bool, word: str
    ):
        (finding,) = on(lack=lack, on_bus=on_bus)
        assert finding.state is State.PROBLEM
        assert finding.value == lack
        assert word in finding.advice

    def test_a_card_that_is_lost_is_a_warning_beside_the_others(self, on: Callable[..., list[Finding]]):
        note = "NVIDIA card 1 cannot be used: GPU is lost."
        findings = on(CARD, note=note, versions=("580", "13.0"))
        assert one(findings, "card 0").state is State.OK
        assert one(findings, "cards").state is State.WARNING
        assert one(findings, "cards").value == note

    def test_cards_on_the_bus(self, tmp_path: Path):
        def device(name: str, vendor: str, kind: str) -> None:
            (tmp_path / name).mkdir()
            (tmp_path / name / "vendor").write_text(f"{vendor}\n")
            (tmp_path / name / "class").write_text(f"{kind}\n")

        device("0", "0x8086", "0x030000")
        device("1", "0x10de", "0x040300")  # its sound
        (tmp_path / "2").mkdir()
        assert not doctor_machine._has_nvidia_card(tmp_path)
        device("3", "0x10de", "0x030200")
        assert doctor_machine._has_nvidia_card(tmp_path)

    def test_little_memory_is_a_warning(self, monkeypatch: pytest.MonkeyPatch):
        little = MemoryDevice("system memory", 4 * GIB, 1 * GIB)
        monkeypatch.setattr(doctor_machine, "machine", lambda: Machine(little, (), unified=False, note=""))
        (finding,) = run_check("memory", doctor_machine.memory)
        assert finding.state is State.WARNING

    def test_bandwidth_says_what_it_means(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(doctor_machine, "measured_host_bandwidth", lambda: 49e9)
        (finding,) = run_check("", doctor_machine.memory_bandwidth)
        assert "49 GB/s" in finding.value
        assert "10.0 tokens/s" in finding.value

    @pytest.mark.parametrize(
        ("release", "versions", "state"),
        [("12.4", ("550", "12.4"), State.OK), ("13.0", ("550", "12.4"), State.WARNING), ("12.8", None, State.OK)],
    )
    def test_a_compiler_that_is_newer_than_the_driver_is_a_warning(
        self,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
        release: str,
        versions: tuple[str, str] | None,
        state: State,
    ):
        (tmp_path / "bin").mkdir()
        nvcc = tmp_path / "bin" / "nvcc"
        nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.131'\n")
        nvcc.chmod(0o755)
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        monkeypatch.setenv("CUDA_HOME", str(tmp_path))
        monkeypatch.setattr(doctor_machine, "driver_versions", lambda: versions)
        (finding,) = run_check("", doctor_machine.cuda_toolkit)
        assert finding.state is state
        assert release in finding.value

    def test_a_compiler_that_cannot_be_run_does_not_stop_the_check(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ):
        def hang(*_: object, **__: object) -> None:
            raise subprocess.TimeoutExpired("nvcc", 10)

        monkeypatch.setattr(doctor_machine.subprocess, "run", hang)
        monkeypatch.setattr(doctor_machine.shutil, "which", lambda *_, **__: "/usr/bin/nvcc")
        (finding,) = run_check("", doctor_machine.cuda_toolkit)
        assert finding.state is State.OK


class TestSurroundings:
    def test_folders_need_not_exist(self, home: Path):
        findings = run_check("folders", doctor_surroundings.folders)
        assert [finding.name for finding in findings][:4] == [
            "configuration folder",
            "data folder",
            "cache folder",
            "log folder",
        ]
        assert not home.exists()
        assert all(finding.state is not State.PROBLEM for finding in findings)

    def test_a_file_in_the_place_of_a_folder(self, home: Path):
        home.write_text("a file")
        findings = run_check("folders", doctor_surroundings.folders)
        assert one(findings, "cache folder").state is State.PROBLEM
        assert one(findings, "log folder").state is State.WARNING
        assert "not a folder" in one(findings, "cache folder").value

    def test_a_folder_that_cannot_be_written(self, monkeypatch: pytest.MonkeyPatch, home: Path):
        monkeypatch.setattr(doctor_surroundings.os, "access", lambda *_: False)
        findings = run_check("folders", doctor_surroundings.folders)
        assert one(findings, "data folder").state is State.PROBLEM
        assert "LOCALSPEC_HOME" in one(findings, "data folder").advice

    def test_a_disk_that_is_nearly_full(self, monkeypatch: pytest.MonkeyPatch):
        usage = SimpleNamespace(total=100 * GIB, used=99 * GIB, free=GIB)
        monkeypatch.setattr(doctor_surroundings.shutil, "disk_usage", lambda _: usage)
        findings = run_check("folders", doctor_surroundings.folders)
        assert one(findings, "cache folder").state is State.OK
        assert one(findings, "Hub cache").state is State.WARNING

    def test_the_configuration_is_read_and_its_error_told(self, home: Path, tmp_path: Path):
        (finding,) = run_check("configuration", lambda: doctor_surroundings.configuration(None))
        assert finding.state is State.OK
        assert "does not exist" in finding.value
        (home / "config").mkdir(parents=True)
        (home / "config" / "config.toml").write_text("ctx = 'large'\n")
        (finding,) = run_check("configuration", lambda: doctor_surroundings.configuration(None))
        assert finding.state is State.PROBLEM
        assert "ctx" in finding.value
        other = tmp_path / "other.toml"
        other.write_text("ctx = 4096\n")
        (finding,) = run_check("configuration", lambda: doctor_surroundings.configuration(other))
        assert (finding.state, finding.value) == (State.OK, str(other))
        (finding,) = run_check("configuration", lambda: doctor_surroundings.configuration(tmp_path / "none.toml"))
        assert finding.state is State.PROBLEM

    def test_a_broken_list_of_models_is_told(self, home: Path):
        (finding,) = run_check("registry", doctor_surroundings.registry)
        assert finding.state is State.OK
        (home / "config").mkdir(parents=True)
        (home / "config" / "models.toml").write_text("[models\n")
        (finding,) = run_check("registry", doctor_surroundings.registry)
        assert (finding.name, finding.state) == ("registry", State.PROBLEM)
        assert "models.toml" in finding.value

    def test_the_demo_pair_may_be_missing(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("localspec.models.demo._PACKAGE", "no_such_package")
        (finding,) = run_check("demo pair", doctor_surroundings.demo_pair)
        assert finding.state is State.OK
        assert "localspec[demo]" in finding.advice

    @pytest.mark.parametrize(("reason", "state"), [(None, State.OK), ("no route to host", State.WARNING)])
    def test_the_hub_that_the_environment_names_is_asked(
        self, monkeypatch: pytest.MonkeyPatch, reason: str | None, state: State
    ):
        asked: list[str | None] = []

        def reachable(endpoint: str | None, timeout_s: float) -> str | None:
            assert timeout_s <= 10
            asked.append(endpoint)
            return reason

        monkeypatch.setattr("localspec.hub.reachability.reachable", reachable)
        monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example")
        (finding,) = run_check("Hub", lambda: doctor_surroundings.hub(offline=False))
        assert finding.state is state
        assert "mirror.example" in finding.value
        assert asked == ["https://mirror.example"]

    @pytest.mark.parametrize(("offline", "variable"), [(True, ""), (False, "1")])
    def test_offline_nobody_is_asked(self, monkeypatch: pytest.MonkeyPatch, offline: bool, variable: str):
        monkeypatch.setattr("localspec.hub.reachability.reachable", lambda *_: 1 / 0)
        monkeypatch.setenv("HF_HUB_OFFLINE", variable)
        (finding,) = run_check("Hub", lambda: doctor_surroundings.hub(offline=offline))
        assert finding.state is State.OK
        assert "not asked" in finding.value

    @pytest.mark.parametrize(
        ("encoding", "colours", "width", "state"),
        [
            ("utf-8", "truecolor", 120, State.OK),
            ("iso-8859-1", "truecolor", 120, State.WARNING),
            ("utf-8", None, 120, State.WARNING),
            ("utf-8", "256", 40, State.WARNING),
        ],
    )
    def test_terminals(
        self, monkeypatch: pytest.MonkeyPatch, encoding: str, colours: str | None, width: int, state: State
    ):
        screen = SimpleNamespace(isatty=lambda: True, encoding=encoding)
        monkeypatch.setattr(doctor_surroundings.sys, "stdout", screen)
        console = SimpleNamespace(size=SimpleNamespace(width=width, height=50), color_system=colours)
        monkeypatch.setattr("rich.console.Console", lambda **_: console)
        (finding,) = run_check("terminal", doctor_surroundings.terminal)
        assert finding.state is state
        assert encoding in finding.value


@pytest.mark.native
@pytest.mark.slow
def test_this_machine_and_what_is_installed_here():
    """Everything for real, but for the network."""
    doctor_llama._inspected.cache_clear()
    done = run("--json", "--offline")
    findings = {each["name"]: each for each in json.loads(done.stdout)}
    assert findings["llama.cpp"]["state"] == "ok"
    assert findings["llama.cpp's calls"]["state"] == "ok"
    assert findings["memory bandwidth"]["state"] == "ok"
    assert not [each for each in findings.values() if "could not be looked at" in each["value"]]
    assert done.exit_code == int(any(each["state"] == "problem" for each in findings.values()))
