"""Folders of models as other programs lay them out, for the tests of the library."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from localspec.models.model_folders import ModelFolder, Place
from tests.models.gguf_bytes import name, number
from tests.models.small_models import TOKENS, model_bytes, write_model

REVISION = "0123456789abcdef0123456789abcdef01234567"
OLD_REVISION = "fedcba9876543210fedcba9876543210fedcba98"


def writer(title: str, n_weights: int = 8, tokens: list[str] | None = None) -> bytes:
    """A model that writes text, as far as its header tells."""
    entries = [name("general.name", title), name("general.license", "mit"), number("llama.context_length", 4096)]
    return model_bytes(*entries, n_weights=n_weights, tokens=TOKENS if tokens is None else tokens)


def put(path: Path, raw: bytes) -> Path:
    """Write a file whose folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    return path


def cache_file(hub: Path, repo: str, file: str, raw: bytes, revision: str = REVISION, *, main: bool = True) -> Path:
    """A file in a cache of the Hub: a blob, a link to it under its name, and the branch that names the commit."""
    root = hub / f"models--{repo.replace('/', '--')}"
    blob = put(root / "blobs" / hashlib.sha256(raw).hexdigest(), raw)
    link = root / "snapshots" / revision / file
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(blob)
    if main:
        put(root / "refs" / "main", revision.encode())
    return link


def ollama_model(root: Path, model: str, raw: bytes, *, digest: str | None = None) -> Path:
    """A blob and its manifest; `model` is HOST/NAMESPACE/NAME/TAG."""
    real = hashlib.sha256(raw).hexdigest()
    blob = put(root / "blobs" / f"sha256-{real}", raw)
    layers = [
        {"mediaType": "application/vnd.ollama.image.license", "digest": f"sha256:{'0' * 64}"},
        {"mediaType": "application/vnd.ollama.image.model", "digest": digest or f"sha256:{real}", "size": len(raw)},
    ]
    put(root / "manifests" / model, json.dumps({"schemaVersion": 2, "layers": layers}).encode())
    return blob


def every_place(root: Path) -> list[ModelFolder]:
    """A folder of each kind under `root`, which are empty."""
    return [
        ModelFolder(Place.OWN, root / "own"),
        ModelFolder(Place.HUGGING_FACE, root / "hub"),
        ModelFolder(Place.LLAMA_CPP, root / "llama.cpp"),
        ModelFolder(Place.LM_STUDIO, root / "lmstudio"),
        ModelFolder(Place.OLLAMA, root / "ollama"),
    ]


__all__ = ["cache_file", "every_place", "ollama_model", "put", "write_model", "writer"]
