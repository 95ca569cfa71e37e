"""What the installed build of llama.cpp can do, asked of a process of its own: a broken one ends whoever loads it.

python -m localspec.llama.inspection        the answer on stdout, as JSON
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from localspec.errors import EngineError
from localspec.printable import one_line

_TIMEOUT_S: Final = 60.0
_MOST_SHOWN: Final = 300


@dataclass(frozen=True, slots=True)
class Device:
    """What llama.cpp computes on. `kind`: "cpu", "gpu", "igpu" (it shares the system's memory), "accel" or "meta"."""

    name: str
    description: str
    kind: str
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Build:
    """The installed build. `features` by backend ("CPU", "CUDA"), each with its value; `devices` None: not known."""

    version: str
    ggml_version: str
    supports_gpu: bool
    features: Mapping[str, Mapping[str, str]]
    devices: tuple[Device, ...] | None
    missing_calls: tuple[str, ...]


def inspect_build(timeout_s: float = _TIMEOUT_S) -> Build:
    """Load llama.cpp in another process and ask it.

    Raises:
        EngineError: it does not load, crashes or hangs; the message has its last words.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "localspec.llama.inspection"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            env={"GGML_NO_BACKTRACE": "1"} | os.environ,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"llama.cpp was loaded, and did not answer within {timeout_s:g} s.") from error
    except OSError as error:
        raise EngineError(f"No process can be started: {error.strerror or error}.") from error
    try:
        return _build(json.loads(done.stdout))
    except (ValueError, KeyError, TypeError) as error:
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it says nothing"]
        raise EngineError(f"llama.cpp cannot be loaded ({how}): {one_line(lines[-1])[:_MOST_SHOWN]}") from error


def _build(told: Any) -> Build:
    devices = told["devices"]
    return Build(
        version=str(told["version"]),
        ggml_version=str(told["ggml_version"]),
        supports_gpu=bool(told["supports_gpu"]),
        features=parse_features(told["system_info"]),
        devices=None if devices is None else tuple(Device(**each) for each in devices),
        missing_calls=tuple(told["missing_calls"]),
    )


def parse_features(system_info: str) -> dict[str, dict[str, str]]:
    """llama.cpp's list ("CPU : AVX2 = 1 | FMA = 1 | CUDA : ARCHS = 890 | ") by backend and name."""
    features: dict[str, dict[str, str]] = {}
    backend = ""
    for part in system_info.split("|"):
        head, colon, rest = part.rpartition(" : ")
        if colon:
            backend = head.strip()
        name, _, value = rest.partition("=")
        if backend:
            found = features.setdefault(backend, {})
            if name.strip():
                found[name.strip()] = value.strip()
    return features


def _tell() -> None:
    # What native code prints must not get between the answer and its reader.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answer:
        os.dup2(2, 1)
        from localspec.llama import library

        devices = library.devices()
        told = {
            "version": library.version(),
            "ggml_version": library.ggml_version(),
            "supports_gpu": library.supports_gpu(),
            "system_info": library.system_info(),
            "devices": None if devices is None else [asdict(device) for device in devices],
            "missing_calls": library.missing_calls(),
        }
        json.dump(told, answer)


if __name__ == "__main__":
    _tell()
