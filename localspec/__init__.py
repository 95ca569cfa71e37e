"""Chat with a local model, losslessly accelerated by speculative decoding.

The names below are the public API; each is imported when it is first used, so that `import localspec` is instant
and loads neither llama.cpp nor a screen. One answer from two GGUF files:

    from pathlib import Path
    from localspec import EngineClient, GenerateRequest, ModelSpec, PairSpec, RawPrompt

    engine = EngineClient()
    pair = PairSpec("mine", target=ModelSpec(Path("big.gguf")), draft=ModelSpec(Path("small.gguf")))
    engine.load(pair, print)
    engine.submit(GenerateRequest(RawPrompt("Once upon a time"), max_tokens=64), print)

Both calls return at once; their listeners get the events of `localspec.engine.events`, here printed as they come.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localspec.engine.client import EngineClient
    from localspec.engine.requests import (
        ChatPrompt,
        GenerateRequest,
        KvType,
        Message,
        Mode,
        ModelSpec,
        PairSpec,
        RawPrompt,
    )
    from localspec.errors import LocalspecError
    from localspec.llama.sampling_params import SamplingParams

__version__ = "0.1.0"

__all__ = [
    "ChatPrompt",
    "EngineClient",
    "GenerateRequest",
    "KvType",
    "LocalspecError",
    "Message",
    "Mode",
    "ModelSpec",
    "PairSpec",
    "RawPrompt",
    "SamplingParams",
    "__version__",
]

_HOMES = {
    "ChatPrompt": "localspec.engine.requests",
    "EngineClient": "localspec.engine.client",
    "GenerateRequest": "localspec.engine.requests",
    "KvType": "localspec.engine.requests",
    "LocalspecError": "localspec.errors",
    "Message": "localspec.engine.requests",
    "Mode": "localspec.engine.requests",
    "ModelSpec": "localspec.engine.requests",
    "PairSpec": "localspec.engine.requests",
    "RawPrompt": "localspec.engine.requests",
    "SamplingParams": "localspec.llama.sampling_params",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its home (PEP 562), once: from then on it is an ordinary attribute."""
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
