"""Real vocabularies by name, and which of them fit together.

Those in tests/data are always there. LOCALSPEC_TEST_VOCAB_DIR names a folder with more of llama.cpp's test files
(models/ggml-vocab-*.gguf), or others.
"""

from __future__ import annotations

import os
from pathlib import Path

from localspec.models.compat import Verdict

_FOLDERS = [
    Path(__file__).parents[1] / "data" / "vocab",
    Path(os.environ.get("LOCALSPEC_TEST_VOCAB_DIR") or os.devnull),
]
VOCABULARIES = {
    path.stem.removeprefix("ggml-vocab-"): path
    for folder in _FOLDERS
    if folder.is_dir()
    for path in sorted(folder.glob("*.gguf"))
}
# Equal token for token (the file named qwen35 holds an older vocabulary than the models of that name).
_EQUAL = [{"gpt-neox", "mpt"}, {"qwen2", "qwen35"}]
# Equal but for 64 tokens of padding.
_PADDED = [{"llama-spm", "phi-3"}]


def relation(one: str, other: str) -> Verdict:
    """What comparing two of llama.cpp's vocabularies must come to."""
    if one == other or {one, other} in _EQUAL:
        return Verdict.IDENTICAL
    return Verdict.COMPATIBLE if {one, other} in _PADDED else Verdict.REFUSED
