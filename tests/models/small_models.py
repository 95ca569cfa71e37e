"""Models of one tensor and a few hundred tokens, as headers: what the tests of rules about headers start from."""

from __future__ import annotations

from pathlib import Path

from localspec.models.gguf import read_header
from localspec.models.header import GgufHeader
from tests.models.gguf_bytes import gguf, name, strings, tensor, write

TOKENS = ["<unk>", "<s>", "</s>", "<pad>", "<x>", *(f"token {number}" for number in range(300))]


def model_bytes(
    *entries: bytes,
    architecture: str | None = "llama",
    tokenizer: str | None = "gpt2",
    tokens: list[str | bytes] | list[str] | None = TOKENS,
    tensors: bool = True,
    n_weights: int = 8,
) -> bytes:
    """A file; None leaves an entry out. The one tensor holds `n_weights` F32 weights."""
    every = list(entries)
    if architecture is not None:
        every.append(name("general.architecture", architecture))
    if tokenizer is not None:
        every.append(name("tokenizer.ggml.model", tokenizer))
    if tokens is not None:
        every.append(strings("tokenizer.ggml.tokens", list(tokens)))
    return gguf(every, [tensor("x", (n_weights,))], b"\0" * 4 * n_weights) if tensors else gguf(every)


def write_model(path: Path, *entries: bytes, **options: object) -> Path:
    """As `model_bytes`, into a file whose folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return write(path, model_bytes(*entries, **options))  # type: ignore[arg-type]


def model(folder: Path, *entries: bytes, **options: object) -> GgufHeader:
    """The header of a new file in a folder."""
    return read_header(write_model(folder / f"{len(list(folder.iterdir()))}.gguf", *entries, **options))
