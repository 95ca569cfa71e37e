"""What a stored measurement rests on: the files, the machine and the build. Once one of them changes, it is void."""

from __future__ import annotations

from pathlib import Path

from localspec.bench.fingerprint import FileFingerprint, LlamaBuild, file_fingerprint, llama_build
from localspec.bench.records import Record
from localspec.memory.processors import Processors, processors

__all__ = ["Basis", "change_since", "present_basis"]


class Basis(Record):
    """What the measurements rest on. `draft_path` is the file that drafts: not always one that the user named."""

    target: FileFingerprint
    draft: FileFingerprint | None
    draft_path: Path | None
    gpu_layers: int
    draft_gpu_layers: int
    processors: Processors
    build: LlamaBuild


def present_basis(target: Path, draft: Path | None, *, gpu_layers: int, draft_gpu_layers: int) -> Basis:
    """What a measurement that is made now rests on.

    Raises:
        OSError: a file cannot be read.
    """
    return Basis(
        target=file_fingerprint(target),
        draft=None if draft is None else file_fingerprint(draft),
        draft_path=None if draft is None else draft.resolve(),
        gpu_layers=gpu_layers,
        draft_gpu_layers=draft_gpu_layers,
        processors=processors(),
        build=llama_build(),
    )


def change_since(then: Basis, target: Path, draft: Path | None, *, gpu_layers: int, draft_gpu_layers: int) -> str:
    """The first thing that is not as it was, in words that follow what was stored; "" where all is."""
    build, here = llama_build(), processors()
    if then.build.version != build.version:
        return f"was made with llama-cpp-python {then.build.version}"
    if then.build.backends != build.backends:
        return f"was made with llama.cpp built for {', '.join(then.build.backends) or 'nothing known'}"
    if then.processors != here:
        return f"was made on {_described(then.processors)}, not {_described(here)},"
    if then.gpu_layers != gpu_layers:
        return f"was made with --gpu-layers {then.gpu_layers}"
    if then.draft is not None and then.draft_gpu_layers != draft_gpu_layers:
        return f"was made with --draft-gpu-layers {then.draft_gpu_layers}"
    return _changed_file(then.target, target) or _changed_file(then.draft, draft or then.draft_path)


def _changed_file(then: FileFingerprint | None, path: Path | None) -> str:
    if then is None or path is None:
        return ""
    try:
        is_same = file_fingerprint(path) == then
    except OSError as error:
        return f"needs {path}, which cannot be read ({error.strerror or error}),"
    return "" if is_same else f"was made for another version of {path.name}"


def _described(machine: Processors) -> str:
    return ", ".join([f"{machine.cpu} with {machine.n_threads} threads", *machine.gpus])
