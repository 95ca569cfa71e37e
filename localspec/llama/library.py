"""Loading llama.cpp itself: once per process, with its log taken over first."""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import Any, Final

# A failed assertion in llama.cpp would otherwise start a debugger on the process, which can hang for minutes.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

import llama_cpp

from localspec.llama import log
from localspec.llama.inspection import Device

# What llama/ calls; a test holds the list to the code. Of these, an older or newer release may lack some.
NEEDED_CALLS: Final = (
    "LLAMA_FLASH_ATTN_TYPE_AUTO",
    "LLAMA_FTYPE_ALL_F32",
    "llama_backend_init",
    "llama_batch",
    "llama_batch_get_one",
    "llama_context_default_params",
    "llama_decode",
    "llama_free",
    "llama_get_causal_attn",
    "llama_get_embeddings_seq",
    "llama_get_logits_ith",
    "llama_get_memory",
    "llama_init_from_model",
    "llama_log_callback",
    "llama_log_set",
    "llama_memory_clear",
    "llama_memory_seq_pos_max",
    "llama_memory_seq_pos_min",
    "llama_memory_seq_rm",
    "llama_model_chat_template",
    "llama_model_default_params",
    "llama_model_free",
    "llama_model_get_vocab",
    "llama_model_has_decoder",
    "llama_model_has_encoder",
    "llama_model_is_hybrid",
    "llama_model_is_recurrent",
    "llama_model_load_from_file",
    "llama_model_meta_val_str",
    "llama_model_n_ctx_train",
    "llama_model_n_embd",
    "llama_model_n_embd_out",
    "llama_model_n_layer",
    "llama_model_n_params",
    "llama_model_n_swa",
    "llama_model_quantize",
    "llama_model_quantize_default_params",
    "llama_model_size",
    "llama_n_batch",
    "llama_n_ctx",
    "llama_n_rs_seq",
    "llama_print_system_info",
    "llama_progress_callback",
    "llama_sampler_accept",
    "llama_sampler_apply",
    "llama_sampler_chain_add",
    "llama_sampler_chain_default_params",
    "llama_sampler_chain_init",
    "llama_sampler_clone",
    "llama_sampler_copy",
    "llama_sampler_free",
    "llama_sampler_init_dry",
    "llama_sampler_init_grammar",
    "llama_sampler_init_grammar_lazy_patterns",
    "llama_sampler_init_min_p",
    "llama_sampler_init_penalties",
    "llama_sampler_init_temp",
    "llama_sampler_init_temp_ext",
    "llama_sampler_init_top_k",
    "llama_sampler_init_top_n_sigma",
    "llama_sampler_init_top_p",
    "llama_sampler_init_typical",
    "llama_sampler_init_xtc",
    "llama_set_embeddings",
    "llama_supports_gpu_offload",
    "llama_synchronize",
    "llama_token",
    "llama_token_data",
    "llama_token_data_array",
    "llama_token_to_piece",
    "llama_tokenize",
    "llama_vocab_bos",
    "llama_vocab_eos",
    "llama_vocab_fim_mid",
    "llama_vocab_fim_pre",
    "llama_vocab_fim_rep",
    "llama_vocab_fim_sep",
    "llama_vocab_fim_suf",
    "llama_vocab_get_add_bos",
    "llama_vocab_get_add_eos",
    "llama_vocab_is_eog",
    "llama_vocab_n_tokens",
)
# ggml_backend_dev_type
_DEVICE_KINDS: Final = ("cpu", "gpu", "igpu", "accel", "meta")


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


def missing_calls() -> tuple[str, ...]:
    """What this release of the bindings lacks of `NEEDED_CALLS`."""
    return tuple(name for name in NEEDED_CALLS if not hasattr(llama_cpp, name))


def system_info() -> str:
    """Backends and what they were built for, in llama.cpp's words: "CUDA : ARCHS = 890 | CPU : AVX2 = 1 | "."""
    ensure_ready()
    return str(llama_cpp.llama_print_system_info().decode("utf-8", "replace"))


@functools.cache
def uses_amx() -> bool:
    """True when this build has code for AMX, Intel's matrix instructions.

    Compiled by GCC it ends the process with SIGSEGV: the compiler drops what is written into the tile configuration
    (https://github.com/ggml-org/llama.cpp/issues/20824, https://github.com/ggml-org/llama.cpp/pull/26954).
    """
    return "AMX_INT8 = 1" in system_info()


def ggml_version() -> str:
    """Of the library that computes, such as "0.25.3 (commit 0123abc)"; "" where it does not tell."""
    number, commit = (_native(name, ctypes.c_char_p) for name in ("ggml_version", "ggml_commit"))
    if number is None or commit is None:
        return ""
    return f"{number().decode('utf-8', 'replace')} (commit {commit().decode('utf-8', 'replace')})"


def devices() -> tuple[Device, ...] | None:
    """What llama.cpp can compute on here, in its own order; None where the library does not tell."""
    ensure_ready()
    count = _native("ggml_backend_dev_count", ctypes.c_size_t)
    get = _native("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)
    name = _native("ggml_backend_dev_name", ctypes.c_char_p, ctypes.c_void_p)
    description = _native("ggml_backend_dev_description", ctypes.c_char_p, ctypes.c_void_p)
    kind = _native("ggml_backend_dev_type", ctypes.c_int, ctypes.c_void_p)
    sizes = ctypes.POINTER(ctypes.c_size_t)
    memory = _native("ggml_backend_dev_memory", None, ctypes.c_void_p, sizes, sizes)
    if count is None or get is None or name is None or description is None or kind is None or memory is None:
        return None
    found: list[Device] = []
    for index in range(count()):
        handle, free, total = get(index), ctypes.c_size_t(), ctypes.c_size_t()
        memory(handle, ctypes.byref(free), ctypes.byref(total))
        number = kind(handle)
        found.append(
            Device(
                name(handle).decode("utf-8", "replace"),
                description(handle).decode("utf-8", "replace"),
                _DEVICE_KINDS[number] if 0 <= number < len(_DEVICE_KINDS) else str(number),
                free_bytes=free.value,
                total_bytes=total.value,
            )
        )
    return tuple(found)


def _native(name: str, result: Any, *arguments: Any) -> Any | None:
    """A function of ggml, which the bindings do not declare; None where no library has it."""
    for library in _ggml_libraries():
        function = getattr(library, name, None)
        if function is not None:
            function.restype, function.argtypes = result, arguments
            return function
    return None


@functools.cache
def _ggml_libraries() -> tuple[ctypes.CDLL, ...]:
    """The libraries beside llama.cpp's own, which has loaded them already."""
    folder = Path(llama_cpp.__file__).parent / "lib"
    files = [
        folder / f"{prefix}{stem}{ending}"
        for stem in ("ggml", "ggml-base")
        for prefix in ("lib", "")
        for ending in (".so", ".dylib", ".dll")
    ]
    return tuple(ctypes.CDLL(str(file)) for file in files if file.is_file())
