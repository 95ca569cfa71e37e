"""Models in several files, `name-00001-of-00003.gguf`: the first part has the metadata, every part some tensors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Final

from localspec.errors import ModelFileError
from localspec.models.gguf import MAX_ENTRIES, read_header
from localspec.models.header import GgufHeader, TensorInfo

__all__ = [
    "each_part_name",
    "merge_parts",
    "part_names",
    "part_number",
    "read_model",
    "set_of_part",
    "tensors_alone",
    "without_part",
]

_PART: Final = re.compile(r"-([0-9]{5})(-of-([0-9]{5}))(?=\.gguf$)", re.IGNORECASE)
_MAX_PARTS: Final = 1_000  # the largest models have about a hundred
_ALL_PARTS: Final = "Keep all parts in one folder, under the names that they were published with."


def part_names(first_name: str) -> list[str]:
    """The names of all parts, in order, by the name of one; only that name for a model in one file."""
    return list(each_part_name(first_name))


def each_part_name(name: str) -> Iterator[str]:
    """The same one after the other: a name may promise a thousand parts of which there is one."""
    match = _part(name)
    if match is None:
        yield name
        return
    start, end = name[: match.start()], name[match.end(1) :]
    for number in range(1, int(match[3]) + 1):
        yield f"{start}-{number:05d}{end}"


def part_number(name: str) -> int:
    """Which part a name is, from 1 on; 1 for a model in one file."""
    match = _part(name)
    return int(match[1]) if match and int(match[3]) > 1 else 1


def set_of_part(name: str) -> tuple[str, ...]:
    """What the parts of one model have in common, and no other name: "m" and "-of-00003.gguf"."""
    match = _part(name)
    return (name,) if match is None else (name[: match.start()], name[match.end(1) :])


def _part(name: str) -> re.Match[str] | None:
    match = _PART.search(name)
    return match if match and 1 <= int(match[1]) <= int(match[3]) <= _MAX_PARTS else None


def without_part(name: str) -> str:
    """The name that all parts share: "name.gguf" of "name-00001-of-00003.gguf"."""
    return _PART.sub("", name)


def read_model(path: Path) -> GgufHeader:
    """Read the header of a model in one file, or of all parts of one by its first part.

    Raises:
        ModelFileError: as `read_header`; it is not the first part; a part is missing, or does not belong to the rest.
        UnsupportedModelError: as `read_header`.
    """
    header = read_header(path)
    n_parts = header.integer("split.count") or 1
    if n_parts == 1:
        return header
    names = part_names(path.name)
    if header.integer("split.no") or part_number(path.name) != 1:
        hint = f"Name {names[0]}." if len(names) > 1 else _ALL_PARTS
        raise ModelFileError(f"{path} is not the first of the {n_parts} parts of a model.", hint=hint)
    _check_first_name(path, n_parts)
    missing = [name for name in names if not path.with_name(name).exists()]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelFileError(
            f"{path} has {n_parts} parts, of which {missing[0]}{more} {'are' if more else 'is'} missing.",
            hint=f"Fetch what is missing into {path.parent}.",
        )
    return merge_parts([header, *(tensors_alone(read_header(path.with_name(name))) for name in names[1:])])


def _check_first_name(path: PurePath, n_parts: int) -> None:
    """llama.cpp finds the other parts by no other name, nor by one in capitals."""
    if not path.name.endswith(f"-00001-of-{n_parts:05d}.gguf") or len(part_names(path.name)) != n_parts:
        raise ModelFileError(
            f"{path} is the first of {n_parts} parts, but its name does not end in -00001-of-{n_parts:05d}.gguf, so "
            "the others cannot be found.",
            hint=_ALL_PARTS,
        )


def tensors_alone(header: GgufHeader) -> GgufHeader:
    """What counts of a later part. What else it holds may be large: a thousand vocabularies would fill the memory."""
    kept = {key: value for key, value in header.metadata.items() if key.startswith("split.")}
    return replace(header, metadata=kept)


def merge_parts(headers: Sequence[GgufHeader]) -> GgufHeader:
    """One header for all parts of a model, given in order, local or not.

    Raises:
        ModelFileError: they are not the parts of one model.
    """
    first = headers[0]
    if len(headers) > 1:
        _check_first_name(first.path, len(headers))
    tensors: dict[str, TensorInfo] = {}
    for number, header in enumerate(headers):
        if (header.integer("split.count") or 1, header.integer("split.no") or 0) != (len(headers), number):
            raise _mixed(header, f"is not part {number + 1} of {len(headers)} of {first.path.name}")
        for tensor in header.tensors:
            if tensor.name in tensors:
                raise _mixed(header, f"has the tensor {tensor.name[:80]!r}, which an earlier part has too")
            tensors[tensor.name] = tensor
        if len(tensors) > MAX_ENTRIES:
            raise _mixed(header, f"makes it more than {MAX_ENTRIES:,} tensors")
    promised = first.integer("split.tensors.count")
    if promised is not None and promised != len(tensors):
        raise _mixed(first, f"promises {promised:,} tensors in all its parts, which have {len(tensors):,}")
    n_bytes = sum(header.file_size for header in headers)
    return replace(first, tensors=tuple(tensors.values()), file_size=n_bytes)


def _mixed(header: GgufHeader, problem: str) -> ModelFileError:
    return ModelFileError(f"{header.path} {problem}.", hint="Parts of different models are mixed: fetch them again.")
