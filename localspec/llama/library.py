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
    """The version of the bindings, which ship llama.cpp: it decides what is computed."""
    return f"llama-cpp-python {llama_cpp.__version__}"


def supports_gpu() -> bool:
    """True when this build can offload layers to a device that is present."""
    ensure_ready()
    return bool(llama_cpp.llama_supports_gpu_offload())
