"""What a user may write where a model is wanted: a file, a model on the Hub, or a name from models.toml.

~/models/big.gguf                                                        a file; one that exists always wins
bartowski/Llama-3.2-1B-Instruct-GGUF:Q8_0                                a repository and a quantization
bartowski/Llama-3.2-1B-Instruct-GGUF                                     ... of which the Hub's files decide
bartowski/Llama-3.2-1B-Instruct-GGUF/Llama-3.2-1B-Instruct-Q8_0.gguf     one file of a repository
qwen2.5-coder-32b, qwen2.5-coder-32b:Q8_0                                a name from models.toml
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, overload

from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.models.registry import Registry

__all__ = [
    "NAME_PATTERN",
    "QUANTIZATION_PATTERN",
    "FileReference",
    "HubReference",
    "Reference",
    "RegistryReference",
    "is_repository",
    "parse_reference",
]

_MAX_CHARACTERS: Final = 4096
_PART: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
_REPOSITORY: Final = re.compile(f"{_PART}/{_PART}")
NAME_PATTERN: Final = r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,95}"  # of a model in models.toml
QUANTIZATION_PATTERN: Final = r"[A-Za-z0-9_-]{1,40}"
_WEB_ADDRESS: Final = re.compile(
    r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/+([^/\s?#:]+/[^/\s?#:]+)"
    r"(?:/(?:blob|resolve|tree|raw)/[^/]+/?([^?#]*))?/*(?:[?#].*)?"
)
_FORMS: Final = "Give a .gguf file, a repository such as owner/name-GGUF:Q4_K_M, or a name from models.toml."


@dataclass(frozen=True, slots=True)
class FileReference:
    """A local file, which need not exist."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class HubReference:
    """A model on the Hub.

    `file`, a path within the repository, names it exactly; else `quantization` does, in capitals. Without either, what
    is taken by default of that repository is meant.
    """

    repo: str
    quantization: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        if self.file is not None:
            return f"{self.repo}/{self.file}"
        return self.repo if self.quantization is None else f"{self.repo}:{self.quantization}"


@dataclass(frozen=True, slots=True)
class RegistryReference:
    """A name from models.toml, and maybe another quantization than the one given there."""

    name: str
    quantization: str | None = None

    def __str__(self) -> str:
        return self.name if self.quantization is None else f"{self.name}:{self.quantization}"


Reference: TypeAlias = "FileReference | HubReference"


@overload
def parse_reference(text: str) -> FileReference | HubReference | RegistryReference: ...
@overload
def parse_reference(text: str, registry: Registry) -> FileReference | HubReference: ...
def parse_reference(text: str, registry: Registry | None = None) -> FileReference | HubReference | RegistryReference:
    """What `text` names. With a registry, a name from it becomes the model on the Hub that it stands for.

    Raises:
        UsageError: it has none of the forms; or it is no name in the registry, with the nearest ones.
    """
    text = text.strip()
    if not text or len(text) > _MAX_CHARACTERS or not text.isprintable():
        raise UsageError(f"{text[:80]!r} names no model.", hint=_FORMS)
    if match := _WEB_ADDRESS.fullmatch(text):
        better = "/".join(filter(None, match.groups()))
        raise UsageError(f"{text} is a web address.", hint=f"Give {better}, without the address before it.")
    path = _path(text)
    if path is not None:
        return FileReference(path)
    reference = _hub_reference(text) if "/" in text else _registry_reference(text)
    if isinstance(reference, RegistryReference) and registry is not None:
        return registry.resolve(reference)
    return reference


def is_repository(text: str) -> bool:
    """Whether a text has the form of a repository on the Hub, "owner/name"."""
    return _REPOSITORY.fullmatch(text) is not None and ".." not in text and "--" not in text


def _path(text: str) -> Path | None:
    """The path that a text is, None where it is something else."""
    try:
        path = Path(text).expanduser()
        exists = path.is_file()
    except (OSError, RuntimeError, ValueError):
        path, exists = Path(text), False
    if exists or text.startswith(("/", "./", "../", "~", ".\\", "..\\", "\\")) or re.match(r"[A-Za-z]:[\\/]", text):
        return path
    owner, _, rest = text.partition("/")
    is_gguf = text.lower().endswith(".gguf")
    repo, _, file = rest.partition("/")
    if is_gguf and file and is_repository(f"{owner}/{repo}") and not os.path.isdir(owner):  # noqa: PTH112 - never raises
        return None
    return path if is_gguf or "\\" in text or file else None


def _hub_reference(text: str) -> HubReference:
    if text.lower().endswith(".gguf"):
        owner, repo, file = text.split("/", 2)
        if any(part in {"", ".", ".."} for part in file.split("/")):
            raise UsageError(f"{text[:200]!r} names no file of a repository.", hint=_FORMS)
        return HubReference(f"{owner}/{repo}", file=file)
    repo, quantization = _with_quantization(text)
    if not is_repository(repo):
        raise UsageError(f"{text[:200]!r} is neither a file nor a repository on the Hub.", hint=_FORMS)
    return HubReference(repo, quantization)


def _registry_reference(text: str) -> RegistryReference:
    name, quantization = _with_quantization(text)
    if not re.fullmatch(NAME_PATTERN, name):
        raise UsageError(f"{text[:200]!r} names no model.", hint=_FORMS)
    return RegistryReference(name, quantization)


def _with_quantization(text: str) -> tuple[str, str | None]:
    name, colon, quantization = text.partition(":")
    if not colon:
        return name, None
    if not re.fullmatch(QUANTIZATION_PATTERN, quantization):
        raise UsageError(
            f"{text[:200]!r} has no quantization after the colon.", hint="Such as Q4_K_M, or leave the colon out."
        )
    return name, quantization.upper()
