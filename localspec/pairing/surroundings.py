"""What a machine has, looked at once or again: its models, its memory, how fast that is, and what computes on it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.engine.requests import PairSpec
from localspec.errors import LocalspecError
from localspec.memory.devices import Machine
from localspec.memory.reclaim import machine_without
from localspec.models.demo import demo_files
from localspec.models.header_cache import summarize
from localspec.models.library import LocalModel, find_models
from localspec.models.model_folders import Place, model_folders
from localspec.pairing.traffic import Bandwidths, measured_bandwidths
from localspec.pairing.usable_cards import build_supports_gpu, with_usable_cards

__all__ = ["FoundModels", "Surroundings"]


@dataclass(frozen=True, slots=True)
class FoundModels:
    """Models that write text, and how many files there are that cannot be read."""

    models: tuple[LocalModel, ...]
    n_unreadable: int


class Surroundings:
    """Threads may share it. `models_dir`: the folder of one's own models; `engine_pid`: whose memory will be free."""

    def __init__(self, models_dir: Path | None, engine_pid: Callable[[], int | None]) -> None:
        self._models_dir = models_dir
        self._engine_pid = engine_pid
        self._lock = threading.RLock()
        self._found: FoundModels | None = None
        self._bandwidths: Bandwidths | None = None
        self._supports_gpu: bool | None = None

    @property
    def lacks_gpu_build(self) -> bool:
        """Whether there is a card that this build of llama.cpp cannot use; known once `machine` was asked."""
        return self._supports_gpu is False

    @property
    def models(self) -> Sequence[LocalModel]:
        """Those that were found last."""
        with self._lock:
            return (self._found or self.find_models(None)).models

    def find_models(self, loaded: PairSpec | None) -> FoundModels:
        """Look again. The pair that is loaded counts wherever it lies, as does the demo pair."""
        with self._lock:  # who asks at the same time waits for this answer
            found = find_models(model_folders(self._models_dir))
            known = {path.resolve() for model in found for path in model.files}
            for path in _files_elsewhere(loaded):
                if path.is_file() and path.resolve() not in known:
                    known.add(path.resolve())
                    found.append(LocalModel(path.stem, Place.OWN, (path,), path.stat().st_size, summarize(path)))
            models = tuple(model for model in found if model.is_model)
            self._found = FoundModels(models, sum(bool(model.problem) for model in found))
            return self._found

    def machine(self) -> Machine:
        """Memory without what the engine holds now, and without cards that llama.cpp cannot use."""
        return with_usable_cards(machine_without(self._engine_pid()), self._has_gpu_build)

    def speeds(self, here: Machine) -> Bandwidths:
        """Measured once, which takes under a second."""
        with self._lock:
            if self._bandwidths is None:
                self._bandwidths = measured_bandwidths(here)
            return self._bandwidths

    def _has_gpu_build(self) -> bool:
        with self._lock:
            if self._supports_gpu is None:
                self._supports_gpu = build_supports_gpu()
            return self._supports_gpu


def _files_elsewhere(loaded: PairSpec | None) -> list[Path]:
    """Models that may lie outside of every folder: the pair that is loaded, and the demo pair."""
    files = []
    if loaded is not None:
        files += [loaded.target.path, *([loaded.draft.path] if loaded.draft else [])]
    with contextlib.suppress(LocalspecError):
        demo = demo_files()
        files += [demo.target, demo.draft]
    return files
