"""What `localspec doctor` looks at in llama.cpp: whether it loads, is complete, and uses what the machine has."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Final

from localspec.cli.doctor_findings import Finding, ok, problem, warning
from localspec.errors import EngineError
from localspec.llama.inspection import Build, inspect_build
from localspec.memory.apple import has_apple_silicon
from localspec.memory.devices import machine
from localspec.memory.processors import cpu_flags
from localspec.quantities import memory_size

_REQUIREMENT: Final = "'llama-cpp-python>=0.3.36,<0.4'"
_REINSTALL: Final = f"pip install --force-reinstall --no-cache-dir {_REQUIREMENT}"
_WHEELS: Final = "https://abetlen.github.io/llama-cpp-python/whl"
# llama.cpp's names for what a CPU can do, and Linux's.
_INSTRUCTIONS: Final = {"AVX": "avx", "AVX2": "avx2", "F16C": "f16c", "FMA": "fma", "AVX512": "avx512f"}


@functools.cache
def _inspected() -> Build | EngineError:
    """Asked once: loading llama.cpp takes a second, on a GPU more."""
    try:
        return inspect_build()
    except EngineError as error:
        return error


def library() -> Iterator[Finding]:
    """Whether it loads, and has what is called."""
    build = _inspected()
    if isinstance(build, EngineError):
        yield problem("llama.cpp", build.message, _advice_for_loading(build.message))
        return
    yield ok("llama.cpp", f"{build.version}, ggml {build.ggml_version or 'of an unknown version'}")
    if build.missing_calls:
        names = ", ".join(build.missing_calls[:5]) + (" ..." if len(build.missing_calls) > 5 else "")
        yield problem("llama.cpp's calls", f"{len(build.missing_calls)} are missing: {names}", f"Run: {_REINSTALL}")
    else:
        yield ok("llama.cpp's calls", "all that localspec needs are there")


def backend() -> Iterator[Finding]:
    """Whether it computes on the card, where there is one. A CPU build beside a card is what goes wrong most."""
    build = _inspected()
    if isinstance(build, EngineError):
        return
    cards = [gpu.name for gpu in machine().gpus]
    backends = [name for name in build.features if name != "CPU"]
    devices = build.devices or ()
    shown = "; ".join(
        f"{device.name}: {device.description}"
        + (
            f", {memory_size(device.free_bytes)} of {memory_size(device.total_bytes)} free"
            if device.kind in {"gpu", "igpu"}
            else ""
        )
        for device in devices
    )
    built_for = f"built for {', '.join(build.features) or 'what it does not tell'}"
    if build.supports_gpu:
        yield ok("backend", f"{built_for}; {shown or 'it finds a card'}")
    elif cards and backends:
        yield problem(
            "backend",
            f"built for {', '.join(backends)}, but it finds no card, while the driver shows {cards[0]}",
            "Check CUDA_VISIBLE_DEVICES, and that the driver is new enough for the CUDA that it was built with.",
        )
    elif cards:
        yield problem("backend", f"built for the CPU only: {cards[0]} is not used", _advice_for_card())
    else:
        yield ok("backend", f"{built_for}; {shown or 'it computes on the CPU'}")


def instructions() -> Iterator[Finding]:
    """What of the CPU's instructions the build uses."""
    build = _inspected()
    if isinstance(build, EngineError):
        return
    features = build.features.get("CPU", {})
    used = ", ".join(name if value == "1" else f"{name} {value}" for name, value in features.items())
    unused = _unused(features, cpu_flags())
    if unused:
        yield warning(
            "CPU instructions",
            f"{used or 'none'}; this processor also has {', '.join(unused)}",
            f"Build for this processor: CMAKE_ARGS=-DGGML_NATIVE=on {_REINSTALL} --no-binary llama-cpp-python",
        )
    elif features.get("AMX_INT8") == "1":
        yield warning(
            "CPU instructions",
            f"{used}; AMX is left alone, since it crashes in builds by GCC, and with it weights that are laid out anew",
            "Build without AMX: CFLAGS='-mno-amx-tile -mno-amx-int8' CXXFLAGS='-mno-amx-tile -mno-amx-int8' "
            f"{_REINSTALL} --no-binary llama-cpp-python",
        )
    else:
        yield ok("CPU instructions", used or "none that it names")


def _unused(features: Mapping[str, str], flags: frozenset[str]) -> list[str]:
    """A build that chooses its code when it starts (several CPU variants) lists what it has chosen."""
    return [name for name, flag in _INSTRUCTIONS.items() if flag in flags and features.get(name, "0") == "0"]


def _advice_for_card() -> str:
    if has_apple_silicon():
        return f"Run: CMAKE_ARGS=-DGGML_METAL=on {_REINSTALL}, or take a wheel from {_WHEELS}/metal"
    return (
        f"With the CUDA toolkit: CMAKE_ARGS=-DGGML_CUDA=on {_REINSTALL} --no-binary llama-cpp-python; "
        f"without: {_REINSTALL} --prefer-binary --extra-index-url {_WHEELS}/cu124"
    )


def _advice_for_loading(message: str) -> str:
    if "libcud" in message or "libcublas" in message:
        return "The build needs the CUDA runtime: install the CUDA toolkit of that version, or set LD_LIBRARY_PATH."
    if "signal 4" in message:
        return f"It was built for another processor. Run: {_REINSTALL} --no-binary llama-cpp-python"
    return f"Run: {_REINSTALL}"
