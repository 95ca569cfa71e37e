"""Where models are on this machine: a folder of one's own, and those of other programs, which are only read.

localspec     the setting models_dir, by default in the data folder    any layout
Hugging Face  HF_HUB_CACHE, HF_HOME/hub or ~/.cache/huggingface/hub    models--owner--name/snapshots/REVISION/...
llama.cpp     LLAMA_CACHE, or llama.cpp in the system's cache folder   flat, or as Hugging Face
LM Studio     ~/.lmstudio/models, ~/.cache/lm-studio/models            publisher/name/file.gguf
Ollama        OLLAMA_MODELS, or ~/.ollama/models and its service's     manifests that name blobs
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from localspec.models.references import is_repository
from localspec.paths import data_dir

__all__ = ["ModelFolder", "Place", "model_folders", "repo_of_cache_folder"]

_OLLAMA_SERVICE: Final = Path("/usr/share/ollama/.ollama/models")  # where Ollama's installer for Linux puts them


class Place(StrEnum):
    """Whose folder it is."""

    OWN = "localspec"
    HUGGING_FACE = "Hugging Face"
    LLAMA_CPP = "llama.cpp"
    LM_STUDIO = "LM Studio"
    OLLAMA = "Ollama"


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder with models, which need not exist."""

    place: Place
    path: Path

    @property
    def is_there(self) -> bool:
        """Whether it exists, or may: where it cannot be seen, a search says why."""
        try:
            return self.path.is_dir()
        except OSError:
            return True


def model_folders(models_dir: Path | None = None, environ: Mapping[str, str] | None = None) -> list[ModelFolder]:
    """Every folder where models may be, one's own first. `models_dir` None: the default; `environ` None: the process's.

    A folder of one's own that is another program's too is there twice: it is not ours alone.
    """
    environ = os.environ if environ is None else environ
    home = Path("~").expanduser()
    hub = _hub_cache(environ, home)
    llama_cpp = _named(environ, "LLAMA_CACHE") or _system_cache(environ, home) / "llama.cpp"
    ollama = _named(environ, "OLLAMA_MODELS")
    others = [
        ModelFolder(Place.HUGGING_FACE, hub),
        ModelFolder(Place.LLAMA_CPP, llama_cpp),
        ModelFolder(Place.LM_STUDIO, home / ".lmstudio" / "models"),
        ModelFolder(Place.LM_STUDIO, home / ".cache" / "lm-studio" / "models"),
    ]
    others += [
        ModelFolder(Place.OLLAMA, path)
        for path in ([ollama] if ollama else [home / ".ollama" / "models", _OLLAMA_SERVICE])
    ]
    unique: dict[Path, ModelFolder] = {}
    for folder in others:
        unique.setdefault(folder.path, folder)
    return [ModelFolder(Place.OWN, models_dir or data_dir() / "models"), *unique.values()]


def repo_of_cache_folder(name: str) -> str | None:
    """The repository that a folder in the Hub's cache belongs to: owner/name of models--owner--name; None: to none."""
    kind, _, rest = name.partition("--")
    repo = rest.replace("--", "/")
    return repo if kind == "models" and is_repository(repo) else None


def _named(environ: Mapping[str, str], variable: str) -> Path | None:
    value = environ.get(variable)
    if not value:
        return None
    path = Path(os.path.expandvars(value))
    try:
        return path.expanduser()
    except RuntimeError:  # a ~ that names nobody
        return path


def _hub_cache(environ: Mapping[str, str], home: Path) -> Path:
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if path := _named(environ, variable):
            return path
    base = _named(environ, "HF_HOME")
    if base is None:
        base = (_named(environ, "XDG_CACHE_HOME") or home / ".cache") / "huggingface"
    return base / "hub"


def _system_cache(environ: Mapping[str, str], home: Path) -> Path:
    if sys.platform == "win32":
        return _named(environ, "LOCALAPPDATA") or home / "AppData" / "Local"
    if sys.platform == "darwin":
        return home / "Library" / "Caches"
    return _named(environ, "XDG_CACHE_HOME") or home / ".cache"
