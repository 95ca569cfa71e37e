"""Loading llama.cpp itself: once per process, with its log taken over first."""

from __future__ import annotations

import functools
import os

# A failed assertion in llama.cpp would otherwise start a debugger on the process, which can hang for minutes.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

import llama_cpp

from localspec.llama import log


@functools.cache
def ensure_ready() -> None:
    """Initialise llama.cpp's backends. Repeated calls do nothing."""
    log.install()
    llama_cpp.llama_backend_init()


def version() -> str:
    """The versions that decide what is computed: the bindings' and llama.cpp's own."""
    return f"llama-cpp-python {llama_cpp.__version__}"


def supports_gpu() -> bool:
    """True when this build can offload layers to a device that is present."""
    ensure_ready()
    return bool(llama_cpp.llama_supports_gpu_offload())


def system_info() -> str:
    """Instruction sets and backends of this build, as llama.cpp words it."""
    ensure_ready()
    return str(llama_cpp.llama_print_system_info(), "utf-8", "replace")
