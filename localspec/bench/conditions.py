"""What a measurement was made on: a speed means little without the machine, the files and the settings."""

from __future__ import annotations

import datetime
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from localspec.bench.fingerprint import LlamaBuild, llama_build
from localspec.engine.events import Loaded
from localspec.engine.requests import ModelSpec, PairSpec
from localspec.memory.processors import Processors, processors
from localspec.quantities import memory_size


@dataclass(frozen=True, slots=True)
class Conditions:
    """Machine, software and pair of a measurement, and when it began."""

    started: datetime.datetime
    system: str
    processors: Processors
    memory_bytes: int
    localspec_version: str
    llama_cpp: LlamaBuild
    pair: PairSpec
    loaded: Loaded

    @classmethod
    def now(cls, pair: PairSpec, loaded: Loaded) -> Conditions:
        """Those of this moment."""
        return cls(
            started=datetime.datetime.now().astimezone(),
            system=f"{platform.system()} {platform.machine()}",
            processors=processors(),
            memory_bytes=int(psutil.virtual_memory().total),
            localspec_version=version("localspec"),
            llama_cpp=llama_build(),
            pair=pair,
            loaded=loaded,
        )

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON. Of the files the names only: their folders are nobody's business."""
        return {
            "date": self.started.isoformat(timespec="seconds"),
            "machine": {"system": self.system, **asdict(self.processors), "memory_bytes": self.memory_bytes},
            "localspec": self.localspec_version,
            "llama_cpp": {"llama-cpp-python": self.llama_cpp.version, "backends": self.llama_cpp.backends},
            "threads": self.loaded.n_threads,
            "pair": {
                "name": self.pair.name,
                "target": _model(self.pair.target, self.loaded.target_name),
                "draft": None if self.pair.draft is None else _model(self.pair.draft, self.loaded.draft_name),
                "n_ctx": self.loaded.n_ctx,
                "lookup_ngram": [self.pair.lookup_min_ngram, self.pair.lookup_max_ngram],
                "gpu_offload": self.loaded.gpu_offload,
            },
        }

    def lines(self) -> tuple[str, ...]:
        """The same in words, for the head of a report."""
        draft = self.pair.draft
        machine = " + ".join((self.processors.cpu, *self.processors.gpus))
        backends = ", ".join(self.llama_cpp.backends) or "unknown backend"
        drafter = "no draft model" if draft is None else f"draft {draft.path.name} ({draft.kv_type} cache)"
        return (
            f"Target {self.pair.target.path.name} ({self.pair.target.kv_type} cache), {drafter}, "
            f"context {self.loaded.n_ctx}",
            f"{machine}, {self.processors.n_cores} cores, {memory_size(self.memory_bytes)}, {self.system}; "
            f"{self.loaded.n_threads} threads",
            f"localspec {self.localspec_version}, llama-cpp-python {self.llama_cpp.version} ({backends}); "
            f"{self.started:%Y-%m-%d %H:%M %z}",
        )


def _model(spec: ModelSpec, name: str | None) -> dict[str, Any]:
    return {
        "file": spec.path.name,
        "bytes": _size(spec.path),
        "name": name,
        "kv_type": spec.kv_type.value,
        "gpu_layers": spec.n_gpu_layers,
    }


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
