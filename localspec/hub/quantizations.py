"""Which models the GGUF files of a repository are, by name: quantizations, parts of sets, files that are none."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from localspec.models.quantization import quantization_in_name
from localspec.models.split import each_part_name, part_names, part_number

__all__ = ["FileSet", "file_sets", "pick", "set_of"]

# What llama.cpp takes where a reference names no quantization; without either, the first model.
PREFERRED: Final = ("Q4_K_M", "Q8_0")

# By these parts of a name llama.cpp, too, tells what only accompanies a model: image encoders, importance matrices,
# draft heads. A lower-case "mtp-" marks a head; models that have theirs inside are called MTP in capitals.
_COMPANIONS: Final = ("mmproj", "imatrix", "eagle3", "dflash", "dspark", "ggml-vocab-")
_HEAD: Final = "mtp-"


@dataclass(frozen=True, slots=True)
class FileSet:
    """The files of one model, its parts in order. `quantization` is in capitals, or "" where the name says none."""

    quantization: str
    names: tuple[str, ...]


def file_sets(names: Iterable[str]) -> list[FileSet]:
    """The models among the files, in their order. Sets that lack a part, and what accompanies a model, are left out."""
    present = dict.fromkeys(name for name in names if _is_model(name))
    found = (set_of(name, present.keys()) for name in present if part_number(name) == 1)
    return [each for each in found if each is not None]


def set_of(name: str, names: Collection[str]) -> FileSet | None:
    """The model that the file `name` is, or is a part of; None: it, or a part of its set, is not among `names`."""
    if not all(part in names for part in each_part_name(name)):
        return None
    return FileSet(quantization_in_name(name) or "", tuple(part_names(name)))


def pick(sets: Sequence[FileSet], quantization: str | None) -> FileSet | None:
    """The model that `owner/repo:QUANT` means, or that is taken by default; None where there is none.

    An exact label wins over one with Unsloth's mark (Q4_K_XL for UD-Q4_K_XL), and that over llama.cpp's own rule: the
    text anywhere in the path, before a dot or a dash.
    """
    for label in (quantization,) if quantization else PREFERRED:
        exact = [each for each in sets if each.quantization == label.upper()]
        marked = [each for each in sets if each.quantization == f"UD-{label.upper()}"]
        pattern = re.compile(re.escape(label) + "[.-]", re.IGNORECASE)
        anywhere = [each for each in sets if pattern.search(each.names[0])]
        if found := exact or marked or anywhere:
            return found[0]
    return sets[0] if sets and not quantization else None


def _is_model(name: str) -> bool:
    file = PurePosixPath(name).name
    lower = file.lower()
    return lower.endswith(".gguf") and _HEAD not in file and not any(each in lower for each in _COMPANIONS)
