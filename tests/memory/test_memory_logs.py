"""Caches, embeddings and host buffers as llama.cpp logged them on other people's machines."""

from __future__ import annotations

import json
from array import array
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from localspec.memory.context_shape import ContextShape
from localspec.memory.estimate import Footprint
from localspec.memory.kv_cache import padded
from localspec.models.header import GgufHeader, TensorInfo

MIB = 1 << 20
DATA = json.loads((Path(__file__).parents[1] / "data" / "memory_logs.json").read_text(encoding="utf-8"))
BLOCKS = {"f16": (1, 2), "q8_0": (32, 34), "q4_K": (256, 144), "q5_K": (256, 176), "q6_K": (256, 210)}
LOGS: list[dict[str, Any]] = DATA["logs"]


def footprint_of(log: dict[str, Any]) -> Footprint:
    shape = DATA["shapes"][log["model"]]
    n, architecture = shape["n_layer"], shape["architecture"]
    slides = [each == "S" for each in (shape["swa_pattern"] * n)[:n]] if "head_dim_k_swa" in shape else None
    heads_kv = shape["n_head_kv"]
    if "n_head_kv_swa" in shape and slides:
        heads_kv = array("I", [shape["n_head_kv_swa"] if each else heads_kv for each in slides])
    values: dict[str, Any] = {
        "block_count": n,
        "embedding_length": shape["n_embd"],
        "attention.head_count": shape["n_head"],
        "attention.head_count_kv": heads_kv,
        "attention.key_length": shape["head_dim_k"],
        "attention.value_length": shape["head_dim_v"],
        "vocab_size": shape["n_vocab"],
    }
    named = {
        "swa": "attention.sliding_window",
        "head_dim_k_swa": "attention.key_length_swa",
        "head_dim_v_swa": "attention.value_length_swa",
        "full_attention_interval": "full_attention_interval",
        "ssm_d_conv": "ssm.conv_kernel",
        "ssm_d_state": "ssm.state_size",
        "ssm_n_group": "ssm.group_count",
        "ssm_dt_rank": "ssm.time_step_rank",
        "ssm_d_inner": "ssm.inner_size",
    }
    values |= {key: shape[name] for name, key in named.items() if name in shape}
    if slides:
        values["attention.sliding_window_pattern"] = array("B", slides)
    metadata = {"general.architecture": architecture, **{f"{architecture}.{key}": v for key, v in values.items()}}
    return Footprint(GgufHeader(PurePosixPath("model.gguf"), 3, metadata, (embeddings(log, shape),), 0, 0))


def embeddings(log: dict[str, Any], shape: dict[str, Any]) -> TensorInfo:
    kind = log.get("embeddings_type", "f16")
    length, n_bytes = BLOCKS[kind]
    dimensions = shape["n_embd"], shape["n_vocab"]
    return TensorInfo("token_embd.weight", dimensions, kind, 0, dimensions[0] * dimensions[1] // length * n_bytes)


def context_of(log: dict[str, Any], **more: Any) -> ContextShape:
    n_ctx = log.get("n_ctx", 256)
    named = {
        "n_sequences": log.get("rs_cells", log["n_sequences"]),
        "n_snapshots": log.get("n_snapshots", 0),
        "n_batch": log.get("n_batch", 512),
        "whole_window_cache": log.get("swa_cells") == n_ctx or "all-layers-full" in log.get("kv_mib", {}),
    }
    return ContextShape(n_ctx, log["kv_type"], **(named | more))


def caches(log: dict[str, Any]) -> dict[str, float]:
    """MiB of the layers of each kind."""
    footprint = footprint_of(log)
    sums = {"global": 0.0, "swa": 0.0, "recurrent": 0.0}
    for layer, n_bytes in zip(footprint.shape.layers, footprint.kv_bytes(context_of(log)), strict=True):
        kind = "recurrent" if layer.is_recurrent else "swa" if layer.is_sliding else "global"
        sums[kind] += n_bytes / MIB
    return sums


@pytest.mark.parametrize("log", LOGS, ids=lambda log: f"{log['model']}-{log.get('n_ctx')}")
def test_caches(log: dict[str, Any]) -> None:
    ours = caches(log)
    for kind, logged in log.get("kv_mib", {}).items():
        both = kind in {"all-layers-full", "global and swa"}
        # Older builds did not round up the cells of a window.
        rounded = padded(log["swa_cells"]) / log["swa_cells"] if kind == "swa" else 1
        assert (ours["global"] + ours["swa"] if both else ours[kind]) == pytest.approx(logged * rounded, rel=0.001)
    if "rs_mib" in log:
        assert ours["recurrent"] == pytest.approx(log["rs_mib"], rel=0.001)


@pytest.mark.parametrize("log", [log for log in LOGS if "embeddings_mib" in log], ids=lambda log: str(log["model"]))
def test_embeddings_stay_in_system_memory(log: dict[str, Any]) -> None:
    memory = footprint_of(log).memory(context_of(log), gpu_free_bytes=(1 << 40,))
    assert memory.host.weights_bytes / MIB == pytest.approx(log["embeddings_mib"], rel=0.001)


@pytest.mark.parametrize("log", [log for log in LOGS if "host_compute_mib" in log], ids=lambda log: str(log["model"]))
def test_host_buffers_beside_a_card(log: dict[str, Any]) -> None:
    memory = footprint_of(log).memory(context_of(log), gpu_free_bytes=(1 << 40,))
    assert memory.host.compute_bytes / MIB == pytest.approx(log["host_compute_mib"], rel=0.01)


@pytest.mark.parametrize("log", [log for log in LOGS if "gpu_layers" in log], ids=lambda log: str(log["model"]))
def test_caches_lie_with_their_layers(log: dict[str, Any]) -> None:
    states = context_of(log, n_snapshots=0, n_sequences=0)  # the log counts those apart
    memory = footprint_of(log).memory(states, n_gpu_layers=log["gpu_layers"], gpu_free_bytes=(1 << 40,))
    assert memory.host.kv_bytes / MIB == pytest.approx(log["kv_host_mib"], rel=0.001)
    assert memory.gpus[0].kv_bytes / MIB == pytest.approx(log["kv_gpu_mib"], rel=0.001)
