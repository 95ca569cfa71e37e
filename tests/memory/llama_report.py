"""What llama.cpp itself says that a model takes: a process of its own, since it ends on a failed assertion.

Reads a JSON object on stdin (`path`, `gpu_bytes` of cards on paper, `cases` of context parameters), writes a list on
stdout: for each case the bytes of weights, cache and compute buffers by device. Nothing is allocated but recurrent
states, which llama.cpp makes in any case.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

MIB = 1 << 20
_KV_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q5_1": 7, "q8_0": 8, "bf16": 30}
_PARTS = ("weights_bytes", "kv_bytes", "compute_bytes")

Device = dict[str, int]


def reported(path: Path, cases: list[dict[str, Any]], gpu_bytes: tuple[int, ...] = ()) -> list[dict[str, Device]]:
    """Ask llama.cpp. A case holds n_ctx, kv_type, n_outputs and, with cards, n_gpu_layers."""
    request = {"path": str(path), "gpu_bytes": gpu_bytes, "cases": cases}
    done = subprocess.run(
        [sys.executable, "-m", "tests.memory.llama_report"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"GGML_NO_BACKTRACE": "1"},
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer: list[dict[str, Device]] = json.loads(done.stdout)
    return answer


def _main() -> None:
    import llama_cpp as native

    from tests.memory.paper_gpu import PaperGpus

    request = json.load(sys.stdin)
    lines: list[str] = []

    @native.llama_log_callback
    def on_line(level: int, text: bytes, _: ctypes.c_void_p) -> None:
        lines.append(text.decode("utf-8", "replace"))

    native.llama_log_set(on_line, ctypes.c_void_p(0))
    native.llama_backend_init()
    cards = PaperGpus(*request["gpu_bytes"]) if request["gpu_bytes"] else None
    answer = []
    for case in request["cases"]:
        lines.clear()
        answer.append(_ask(native, request["path"].encode(), case, lines))
    del cards  # llama.cpp uses them until here
    sys.stdout.write(json.dumps(answer))


def _ask(native: Any, path: bytes, case: dict[str, Any], lines: list[str]) -> dict[str, Device]:
    model_params = native.llama_model_default_params()
    model_params.no_alloc = True
    model_params.load_mode = native.LLAMA_LOAD_MODE_NONE
    model_params.n_gpu_layers = case.get("n_gpu_layers", -1)
    model_params.use_extra_bufts = "AMX_INT8 = 1" not in native.llama_print_system_info().decode()  # as in our Model
    model = native.llama_model_load_from_file(path, model_params)
    assert model, "".join(lines)
    params = native.llama_context_default_params()  # as localspec.llama.context.Context
    params.n_ctx = case["n_ctx"]
    params.n_batch = params.n_ubatch = 512
    params.n_outputs_max = case["n_outputs"]
    keeps_state = native.llama_model_is_recurrent(model) or native.llama_model_is_hybrid(model)
    params.n_rs_seq = 8 if keeps_state else 0
    params.type_k = params.type_v = _KV_TYPES[case["kv_type"]]
    params.kv_unified = True
    params.swa_full = case.get("whole_window_cache", True)
    context = native.llama_init_from_model(model, params)
    assert context, "".join(lines)
    result = (
        _breakdown(native, context) if case.get("per_device") else {"CPU": _from_log(native, model, "".join(lines))}
    )
    native.llama_free(context)
    native.llama_model_free(model)
    return result


def _from_log(native: Any, model: Any, log: str) -> Device:
    """Sums over all devices; what is not loaded (layers for multi-token prediction) is named in the log, too."""
    unused = sum(map(int, re.findall(r"unused tensor \S+ \(size = (\d+) bytes\)", log)))
    caches = re.findall(r": size = +([\d.]+) MiB \( *\d+ cells", log)
    buffers = re.findall(r"compute buffer size = +([\d.]+) MiB", log)
    return {
        "weights_bytes": native.llama_model_size(model) - unused,
        "kv_bytes": round(sum(map(float, caches)) * MIB),
        "compute_bytes": round(sum(map(float, buffers)) * MIB),
    }


def _breakdown(native: Any, context: Any) -> dict[str, Device]:
    """`llama_get_memory_breakdown`, which C++ programs print: a std::map of libstdc++, walked by hand.

    A node holds colour, parent, left and right, then key (the type of buffer) and value (three sizes).
    """
    library = ctypes.CDLL(None, handle=native.llama_cpp._lib._handle)
    breakdown = library._Z26llama_get_memory_breakdownPK13llama_context
    breakdown.argtypes, breakdown.restype = [ctypes.c_void_p, ctypes.c_void_p], None
    library.ggml_backend_buft_name.argtypes = [ctypes.c_void_p]
    library.ggml_backend_buft_name.restype = ctypes.c_char_p
    header = (ctypes.c_uint64 * 6)()
    breakdown(ctypes.addressof(header), context)
    found: dict[str, Device] = {}
    nodes = [header[2]]
    while nodes:
        node = nodes.pop()
        if node:
            fields = (ctypes.c_uint64 * 8).from_address(node)
            nodes += fields[2:4]
            name = library.ggml_backend_buft_name(fields[4]).decode()
            device = found.setdefault(name if re.fullmatch(r"GPU\d+", name) else "CPU", dict.fromkeys(_PARTS, 0))
            for part, n_bytes in zip(_PARTS, fields[5:8], strict=True):
                device[part] += n_bytes
    return found


if __name__ == "__main__":
    _main()
