"""Which repository a GGUF file was made of, as far as its own header says so beyond doubt."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from localspec.models.header import GgufHeader
from localspec.models.references import is_repository

__all__ = ["Origin", "origin_of"]

# By the format's specification, the likeliest to be the model itself first. A "base model" is what the model was
# quantized from, or what it was trained from: only the names can tell.
_KEYS: Final = (
    "general.source.repo_url",
    "general.source.url",
    "general.base_model.0.repo_url",
    "general.repo_url",
    "general.url",
)
_ON_THE_HUB: Final = re.compile(r"https?://(?:www\.)?(?:huggingface\.co|hf\.co)/([^/\s?#]+/[^/\s?#]+)/?")


@dataclass(frozen=True, slots=True)
class Origin:
    """`repository` holds this very model; `related` is named by the header, and may be another model."""

    repository: str | None
    related: str | None


def origin_of(header: GgufHeader) -> Origin:
    """What the header says of where the model comes from.

    Raises:
        ModelFileError: a value has the wrong type.
    """
    name = _plain(header.text("general.name") or "")
    named: list[str] = []
    for key in _KEYS:
        found = _ON_THE_HUB.fullmatch((header.text(key) or "").strip())
        if found and is_repository(found[1]) and not found[1].lower().endswith("gguf"):
            named.append(found[1])
    same = (each for each in named if name and _plain(each.partition("/")[2]) == name)
    return Origin(next(same, None), named[0] if named else None)


def _plain(name: str) -> str:
    """Without what people and programs write differently."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
