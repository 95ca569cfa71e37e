"""Unified memory of Apple silicon: how much of it Metal lets the graphics processor use.

Metal's recommended working-set size, without asking Metal: two thirds of the memory up to 32 GiB, three quarters above.
As llama.cpp prints it: 10922.67 MB of 16 GiB (https://github.com/abetlen/llama-cpp-python/issues/687), 21845.34 of 32
(https://github.com/ollama/ollama/issues/434), 49152 of 64 (https://github.com/ggml-org/llama.cpp/issues/1870). Recent
systems allow more, such as 11.84 GiB of 16 (https://github.com/AlexsJones/llmfit/pull/754): this is the careful figure.
A limit that the user has set goes before it, and Metal reports just that one (same source).
"""

from __future__ import annotations

import platform
import subprocess
import sys
from contextlib import suppress
from typing import Final

GIB: Final = 2**30
_MOST_FOR_TWO_THIRDS: Final = 32 * GIB
# macOS 14 and later, and 13; in MiB, 0 where nobody has set it.
_LIMITS: Final = ("iogpu.wired_limit_mb", "debug.iogpu.wired_limit_mb")


def has_apple_silicon() -> bool:
    """True on a Mac whose processors share one memory."""
    return sys.platform == "darwin" and platform.machine() == "arm64"


def metal_bytes(total_bytes: int) -> int:
    """How much of a memory of `total_bytes` Metal recommends to use at most."""
    for name in _LIMITS:
        text = sysctl(name)
        if text.isdecimal() and int(text) > 0:
            return min(total_bytes, int(text) * 2**20)
    return total_bytes * 2 // 3 if total_bytes <= _MOST_FOR_TWO_THIRDS else total_bytes * 3 // 4


def sysctl(name: str) -> str:
    """A value of the system; "" where it does not tell."""
    with suppress(OSError, subprocess.SubprocessError):
        asked = ["/usr/sbin/sysctl", "-n", name]
        return subprocess.run(asked, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    return ""
