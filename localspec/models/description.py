"""What lists show of a model, from its header. Nothing here refuses: what a file says wrongly, it does not say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from localspec.models.header import GgufHeader, StringArray
from localspec.models.quantization import quantization_of, without_quantization

__all__ = ["ModelDescription", "describe"]

_MAX_CHARACTERS: Final = 120  # of a text from the file; some files hold a whole licence where its name belongs

# Words in a model's name that do not say which family it belongs to.
_SIZE: Final = re.compile(r"(?:\d+x)?\d+(?:\.\d+)?[bmkt]|a\d+(?:\.\d+)?b|e\d+b", re.IGNORECASE)
_TUNED: Final = frozenset(["instruct", "it", "chat", "base", "pt", "gguf", "hf", "qat", "draft", "thinking", "mtp"])
_MAKERS: Final = frozenset(["meta", "google", "mistralai", "microsoft", "ibm", "qwen", "openai", "deepseek", "unsloth"])


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """Texts are as in the file, cut to a length, and may hold anything: print them with `printable.one_line`.

    `n_parameters` counts all weights, `n_active_parameters` those that one token needs: fewer where there are experts.
    `n_weight_bytes` is what all tensors take, `bits_per_weight` their average. `n_ctx_train` 0: unknown. `n_experts` 0:
    none. `family` is the name without size, tuning and quantization, in small letters; "": the file names none.
    `quantization` "": no weights.
    """

    name: str
    architecture: str
    family: str
    n_parameters: int
    n_active_parameters: int
    n_weight_bytes: int
    quantization: str
    licence: str
    n_ctx_train: int
    n_experts: int
    n_experts_used: int
    has_chat_template: bool
    tokenizer: str
    n_vocab: int

    @property
    def bits_per_weight(self) -> float:
        """Average of all weights; 0.0 where there are none."""
        return 8 * self.n_weight_bytes / self.n_parameters if self.n_parameters else 0.0


def describe(header: GgufHeader) -> ModelDescription:
    """What a header says, for a list."""
    architecture = _text(header, "general.architecture")
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    n_experts = _number(header, f"{architecture}.expert_count")
    n_used = min(_number(header, f"{architecture}.expert_used_count"), n_experts)
    n_parameters = sum(tensor.n_elements for tensor in header.tensors)
    n_of_experts = sum(tensor.n_elements for tensor in header.tensors if "_exps." in tensor.name)
    n_idle = n_of_experts * (n_experts - n_used) // n_experts if n_used else 0
    name = _text(header, "general.name")
    return ModelDescription(
        name=name or header.path.stem[:_MAX_CHARACTERS],
        architecture=architecture,
        family=_family(_text(header, "general.basename") or name),
        n_parameters=n_parameters,
        n_active_parameters=n_parameters - n_idle,
        n_weight_bytes=sum(tensor.n_bytes for tensor in header.tensors),
        quantization=quantization_of(header),
        licence=_text(header, "general.license"),
        n_ctx_train=_number(header, f"{architecture}.context_length"),
        n_experts=n_experts,
        n_experts_used=n_used,
        has_chat_template=bool(_text(header, "tokenizer.chat_template")),
        tokenizer="/".join(filter(None, (_text(header, f"tokenizer.ggml.{key}") for key in ("model", "pre")))),
        n_vocab=len(tokens) if isinstance(tokens, StringArray) else 0,
    )


def _text(header: GgufHeader, key: str) -> str:
    value = header.metadata.get(key)
    return value[:_MAX_CHARACTERS] if isinstance(value, str) else ""


def _number(header: GgufHeader, key: str) -> int:
    value = header.metadata.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _family(name: str) -> str:
    """Such as "llama-3.1" for "Meta Llama 3.1 8B Instruct"; the whole name where every word is dropped."""
    words = [word for word in re.split(r"[\s_/-]+", without_quantization(name).lower()) if word]
    if len(words) > 1 and words[0] in _MAKERS and words[1][0].isalpha():
        del words[0]
    kept = [word for word in words if word not in _TUNED and not _SIZE.fullmatch(word)]
    while len(kept) > 1 and re.fullmatch(r"v\d+(?:\.\d+)*|\d{4}", kept[-1]):
        kept.pop()  # a version or a month at the end
    return "-".join(kept or words)
