"""Models for the native tests: written once per run, loaded once per test module."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tiny_models import write_tiny_model


@dataclass(frozen=True)
class TinyModels:
    """Files of one vocabulary: a target, a draft that mostly agrees, and one that never does."""

    target: Path
    draft: Path
    stranger: Path


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> TinyModels:
    folder = tmp_path_factory.mktemp("models")
    return TinyModels(
        target=write_tiny_model(folder / "target.gguf", name="tiny target"),
        draft=write_tiny_model(folder / "draft.gguf", noise=0.15, name="tiny draft"),
        stranger=write_tiny_model(folder / "stranger.gguf", seed=9, name="tiny stranger"),
    )


@pytest.fixture(scope="module")
def target(tiny_models: TinyModels) -> Iterator[object]:
    from localspec.llama.model import Model

    with Model(tiny_models.target) as model:
        yield model
