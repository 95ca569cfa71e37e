"""What `localspec doctor` looks at in the machine: processor, memory, graphics cards and their driver."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from ctypes.util import find_library
from pathlib import Path
from typing import Final

from localspec.cli.doctor_findings import Finding, ok, problem, warning
from localspec.memory.bandwidth import gpu_bandwidths, measured_host_bandwidth, most_tokens_per_s
from localspec.memory.devices import machine
from localspec.memory.nvidia import driver_versions, lack, nvml
from localspec.memory.processors import processors
from localspec.quantities import memory_size

_LEAST_PYTHON: Final = (3, 11)
_LITTLE_MEMORY: Final = 2 * 2**30
# What an 8B model at Q4_K_M reads per token, near enough: bartowski/Meta-Llama-3.1-8B-Instruct-GGUF has 4.92 GB.
_USUAL_MODEL: Final = 4_900_000_000
_NVIDIA: Final = "0x10de"
_DISPLAY_CLASS: Final = "0x03"


def python() -> Iterator[Finding]:
    """The interpreter."""
    value = f"{platform.python_version()}, {platform.machine()}, {sys.executable}"
    if sys.version_info < _LEAST_PYTHON:
        yield problem("Python", value, f"Install Python {'.'.join(map(str, _LEAST_PYTHON))} or later.")
    elif sys.maxsize < 2**32:
        yield problem("Python", f"{value}, 32 bits", "Install a 64-bit Python: models do not fit in 4 GiB.")
    else:
        yield ok("Python", value)


def processor() -> Iterator[Finding]:
    """The CPU."""
    here = processors()
    counts = f"{_count(here.n_cores, 'core')}, {_count(here.n_threads, 'thread')} for this process"
    yield ok("processor", f"{here.cpu}: {counts}")


def memory() -> Iterator[Finding]:
    """The system's memory, as far as this process may use it."""
    host = machine().host
    value = f"{memory_size(host.free_bytes)} of {memory_size(host.total_bytes)} free"
    if host.free_bytes < _LITTLE_MEMORY:
        yield warning("memory", value, "Close other programs, or take small models: an 8B model at Q4_K_M needs 6 GiB.")
    else:
        yield ok("memory", value)


def memory_bandwidth() -> Iterator[Finding]:
    """How fast weights can be read from the system's memory: it bounds the speed of a model on the CPU."""
    measured = measured_host_bandwidth()
    speed = most_tokens_per_s(_USUAL_MODEL, measured)
    yield ok("memory bandwidth", f"{_gb_s(measured)} measured: at most {speed:.1f} tokens/s from an 8B model at Q4_K_M")


def graphics() -> Iterator[Finding]:
    """Cards that models can be put on, and the driver."""
    here = machine()
    versions = driver_versions()
    if versions is not None:
        yield ok("NVIDIA driver", f"{versions[0]}, for CUDA up to {versions[1]}")
    elif nvml() is None and (_has_nvidia_card() or "cannot be used" in lack()):
        yield problem("NVIDIA driver", lack(), _advice_for_driver())
    elif nvml() is None:
        yield ok("NVIDIA driver", "none, and no NVIDIA card")
    else:
        yield warning("NVIDIA driver", "it does not tell its version", "See what nvidia-smi says.")
    bandwidths = gpu_bandwidths() if versions is not None else ()
    for n, gpu in enumerate(here.gpus):
        bandwidth = bandwidths[n] if n < len(bandwidths) else None
        speed = f", {_gb_s(bandwidth)} nominal" if bandwidth is not None else ""
        shared = " (shared with the system)" if here.unified else ""
        yield ok(
            f"card {n}",
            f"{gpu.name}: {memory_size(gpu.free_bytes)} of {memory_size(gpu.total_bytes)} free{shared}{speed}",
        )
    if here.note and nvml() is not None:
        yield warning("cards", here.note, "See what nvidia-smi says; a card that is lost comes back with a restart.")


def cuda_toolkit() -> Iterator[Finding]:
    """What a build of llama.cpp for CUDA needs: the compiler to make it, the runtime library to start it."""
    name, compiler, runtime = "CUDA toolkit", _nvcc(), find_library("cudart")
    parts = [f"nvcc {compiler[1]} ({compiler[0]})"] if compiler else []
    parts += [f"runtime {runtime}"] if runtime else []
    versions = driver_versions()
    if compiler and versions is not None and _major(compiler[1]) > _major(versions[1]):
        yield warning(
            name,
            f"{parts[0]} is newer than what the driver runs, CUDA {versions[1]}",
            "Update the NVIDIA driver, or build with an older toolkit.",
        )
    elif parts:
        yield ok(name, ", ".join(parts))
    elif machine().gpus and versions is not None:
        yield ok(name, "none: needed to compile llama.cpp for CUDA, and not for a prebuilt wheel")
    else:
        yield ok(name, "none, and none needed")


def _nvcc() -> tuple[str, str] | None:
    """The compiler and its version."""
    folders = [Path(os.environ[name]) / "bin" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    places = os.pathsep.join([os.environ.get("PATH", ""), *map(str, folders), "/usr/local/cuda/bin"])
    path = shutil.which("nvcc", path=places)
    if path is None:
        return None
    with suppress(OSError, subprocess.SubprocessError):
        told = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
        version = re.search(r"release (\d+\.\d+)", told)
        return path, version[1] if version else "of an unknown version"
    return None


def _has_nvidia_card(devices: Path = Path("/sys/bus/pci/devices")) -> bool:
    """Whether the bus has a card, driver or not. Linux only; False elsewhere."""
    for device in devices.glob("*"):
        with suppress(OSError):
            vendor = (device / "vendor").read_text(encoding="ascii").strip()
            kind = (device / "class").read_text(encoding="ascii").strip()
            if vendor == _NVIDIA and kind.startswith(_DISPLAY_CLASS):
                return True
    return False


def _advice_for_driver() -> str:
    if "mismatch" in lack():
        return "The driver was updated while it ran: restart the machine."
    if "cannot be used" in lack():
        return "See what nvidia-smi says; restart the machine, or install the driver again."
    return "There is an NVIDIA card: install its driver. In a container: start that with --gpus all."


def _major(version: str) -> int:
    head = version.partition(".")[0]
    return int(head) if head.isdecimal() else 0


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _gb_s(bandwidth: float) -> str:
    return f"{bandwidth / 1e9:.0f} GB/s"
