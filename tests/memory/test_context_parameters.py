"""That contexts are made as the estimate assumes: what the engine's own `Context` takes, read from llama.cpp's log."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.memory.context_shape import ContextShape
from localspec.memory.estimate import Footprint
from localspec.models.gguf import read_header
from tests.memory.shape_models import SHAPES, dense
from tests.memory.shapes import Shape, write_shape

pytestmark = pytest.mark.native

MIB = 1 << 20


def small_gemma3() -> Shape:
    names = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
    window = {"attention__sliding_window": 512}
    return dense("gemma3", 6, 256, 4, 1, 64, 512, 300, 32768, tied=True, layer_norms=names, head_norms=True, **window)


def small_lfm2() -> Shape:
    shape = SHAPES["lfm2-350m"]()
    values = dict(shape.values) | {"block_count": 4, "attention.head_count_kv": [0, 0, 8, 0]}
    return replace(shape, n_vocab=300, values=values, layers=shape.layers[:4])


@pytest.mark.parametrize(
    ("shape", "n_outputs"),
    [
        (lambda: dense("llama", 3, 256, 4, 2, 64, 1024, 300, 32768), 33),
        (lambda: dense("llama", 3, 256, 4, 2, 64, 1024, 300, 32768), 1),
        (small_gemma3, 33),
        (small_lfm2, 33),
    ],
    ids=["llama", "llama as a draft", "gemma3: whole caches of its windows", "lfm2: snapshots of its states"],
)
@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
def test_what_a_context_takes(tmp_path: Path, shape: Callable[[], Shape], n_outputs: int, kv_type: str) -> None:
    from localspec.engine.loader import _RECURRENT_SNAPSHOTS
    from localspec.llama import log
    from localspec.llama.context import Context
    from localspec.llama.model import Model

    path = write_shape(tmp_path / "x.gguf", shape(), tokens=True)
    lines: list[str] = []
    with (
        log.observed(lambda _, line: lines.append(line)),
        Model(path) as model,
        Context(
            model, n_ctx=4096, n_outputs_max=n_outputs, kv_type=kv_type, n_recurrent_snapshots=_RECURRENT_SNAPSHOTS
        ),
    ):
        pass
    text = "\n".join(lines)
    cache = sum(map(float, re.findall(r": size = +([\d.]+) MiB \( *\d+ cells", text)))
    compute = sum(map(float, re.findall(r"sched_reserve: +\S+ compute buffer size = +([\d.]+) MiB", text)))
    host = Footprint(read_header(path)).memory(ContextShape(4096, kv_type, n_outputs=n_outputs)).host
    assert host.kv_bytes / MIB == pytest.approx(cache, rel=0.001, abs=0.02)
    assert host.compute_bytes / MIB == pytest.approx(compute, rel=0.22, abs=0.5)
