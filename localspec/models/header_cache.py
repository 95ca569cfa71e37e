"""What lists need of headers, kept between runs: reading a header takes up to half a second, looking it up nothing.

An entry holds as long as its files have the size and time that they had. The cache is one file that is replaced at
once; of two programs that write it, one may have to read some headers again. A damaged cache counts as empty.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from localspec import __version__
from localspec.errors import ModelError
from localspec.files import read_regular
from localspec.models.bare_header import pack
from localspec.models.description import ModelDescription, describe
from localspec.models.generative import not_generative
from localspec.models.split import read_model
from localspec.models.vocabulary import read_vocabulary
from localspec.models.vocabulary_fingerprint import VocabularyFingerprint, fingerprint_of
from localspec.paths import cache_dir

__all__ = ["FileStamp", "HeaderCache", "HeaderSummary", "summarize"]

logger = logging.getLogger(__name__)

_MAX_FILE_BYTES: Final = 128 << 20
_MAX_ENTRIES: Final = 20_000


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What changes when a file does."""

    n_bytes: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class HeaderSummary:
    """What a model's header came to. `problem`: why it cannot be read, and `hint` what to do; then there is no more.

    `refusal`: why it is readable and yet no model that writes text. Both are "" for a model that does. `bare`: what
    plans of its memory need, for `bare_header.unpack`; "" where there is nothing to plan.
    """

    description: ModelDescription | None = None
    vocabulary: VocabularyFingerprint | None = None
    refusal: str = ""
    problem: str = ""
    hint: str = ""
    bare: str = ""


@dataclass(frozen=True, slots=True)
class _Entry:
    stamps: tuple[FileStamp, ...]
    summary: HeaderSummary


@dataclass(frozen=True, slots=True)
class _File:
    localspec: str
    entries: dict[str, _Entry]
    format: Literal[2]  # the first had no bare headers


def summarize(path: Path) -> HeaderSummary:
    """Read the header of a model, of all its parts where it has several. Never raises for a bad file."""
    return _read(path)[0]


def _read(path: Path) -> tuple[HeaderSummary, bool]:
    """The summary, and whether it stays true as long as the file is the same."""
    try:
        header = read_model(path)
        vocabulary = read_vocabulary(header)
        refusal = not_generative(header)
    except ModelError as error:
        lasts = not isinstance(error.__cause__, OSError)  # permissions change without the file
        return HeaderSummary(problem=_encodable(error.message), hint=_encodable(error.hint)), lasts
    fingerprint = None if vocabulary is None else fingerprint_of(vocabulary)
    what = "" if refusal is None else refusal.what
    return HeaderSummary(describe(header), fingerprint, what, bare="" if what else pack(header)), True


class HeaderCache:
    """The summaries known; `save` keeps those that were asked for. `file` None: in the cache folder."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file or cache_dir() / "headers.json"
        self._known = _load(self._file)
        self._used: dict[str, _Entry] = {}
        self._n_new = 0

    def knows(self, path: Path, stamps: Sequence[FileStamp]) -> bool:
        """Whether `summary` answers at once."""
        entry = self._known.get(_key(path))
        return entry is not None and entry.stamps == tuple(stamps)

    def summary(self, path: Path, stamps: Sequence[FileStamp]) -> HeaderSummary:
        """The summary of a model whose files, in order, have these stamps; `path` is the first of them."""
        key = _key(path)
        entry = self._known.get(key)
        if entry is None or entry.stamps != tuple(stamps):
            summary, lasts = _read(path)
            if not lasts:
                return summary
            entry = _Entry(tuple(stamps), summary)
            self._n_new += 1
        self._used[key] = entry
        return entry.summary

    def save(self) -> None:
        """Write what is new. A cache that cannot be written costs time on the next run, and nothing else."""
        if not self._n_new:
            return
        others = [(key, entry) for key, entry in self._known.items() if key not in self._used]
        room = max(0, _MAX_ENTRIES - len(self._used))
        file = _File(__version__, dict([*self._used.items(), *others[:room]]), 2)
        try:
            _replace(self._file, _ADAPTER.dump_json(file))
        except OSError as error:
            logger.info("The headers read are not kept: %s", error)
        self._n_new = 0


_ADAPTER: Final = TypeAdapter(_File)


def _load(file: Path) -> dict[str, _Entry]:
    try:
        found = _ADAPTER.validate_json(read_regular(file, _MAX_FILE_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError) as error:
        logger.info("The headers kept in %s cannot be used: %s", file, type(error).__name__)
        return {}
    # Another version may know more tensor types and other rules.
    return found.entries if found.localspec == __version__ else {}


def _replace(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.", suffix=".part")
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
        part.replace(file)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _key(path: Path) -> str:
    return ascii(str(path))  # file names may hold bytes that are not UTF-8


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
