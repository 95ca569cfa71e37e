"""Names of quantizations, such as Q4_K_M: what a header says, and what the name of a file says."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import PurePath
from typing import Final

from localspec.models.header import GgufHeader
from localspec.models.split import without_part
from localspec.models.tensor_types import TENSOR_TYPES

__all__ = [
    "FILE_TYPES",
    "main_tensor_type",
    "n_bits",
    "quantization_in_name",
    "quantization_of",
    "without_quantization",
]

# `general.file_type`, by llama.cpp's numbers.
FILE_TYPES: Final = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4",
    39: "NVFP4",
    40: "Q1_0",
    41: "Q2_0",
}
# Mixes whose name is not that of their main type with an ending (`llama_ftype_get_default_type` in llama-quant.cpp);
# Q8_K, which llama.cpp never stores, is Unsloth's word for Q8_0 with more.
_MAIN_TYPES: Final = {
    "IQ2_S": "iq2_xs",
    "IQ2_M": "iq2_s",
    "IQ3_XS": "iq3_s",
    "IQ3_M": "iq3_s",
    "Q8_K": "q8_0",
}
_TYPES: Final = {name.upper(): name for name, _, _ in TENSOR_TYPES.values()} | _MAIN_TYPES
_IN_NAME: Final = re.compile(
    r"(?:^|[-._])((?:UD-)?(?:BF16|FP?(?:16|32)|(?:MX|NV)FP4(?:_MOE)?|I?Q\d(?:_[A-Z0-9]+)+|TQ\d_\d))(?=$|[-._])",
    re.IGNORECASE,
)


def quantization_of(header: GgufHeader) -> str:
    """The quantization of a model, "" where it has no weights.

    The file type in the header decides; the name of the file may say more about the same one (Q4_K_L, UD-Q4_K_XL).
    Without a file type, it is the type of most of the weights.
    """
    if not header.tensors:
        return ""
    said = header.metadata.get("general.file_type")
    label = FILE_TYPES.get(said % 1024, "") if isinstance(said, int) else ""  # 1024 marks one that was guessed
    kind = main_tensor_type(label)
    if not label:
        n_weights: Counter[str] = Counter()
        for tensor in header.tensors:
            n_weights[tensor.type_name] += tensor.n_elements
        kind = n_weights.most_common(1)[0][0]
        label = kind.upper()
    named = quantization_in_name(header.path.name)
    return named if named is not None and main_tensor_type(named) == kind else label


def quantization_in_name(name: str) -> str | None:
    """The quantization at the end of a file's name, in capitals: "a-UD-Q4_K_XL-00001-of-00002.gguf" has UD-Q4_K_XL.

    Where the name has none, a folder named after one counts. None: nothing says it.
    """
    path = PurePath(without_part(name))
    for part in (path.name.removesuffix(".gguf"), *reversed(path.parts[:-1])):
        found = _IN_NAME.findall(part)
        if found:
            label = str(found[-1]).upper()
            return label.replace("FP", "F") if label in {"FP16", "FP32"} else label
    return None


def without_quantization(name: str) -> str:
    """A name without the quantizations in it."""
    return _IN_NAME.sub("", name)


def n_bits(quantization: str) -> int | None:
    """The bits of most weights: 4 of Q4_K_M and MXFP4, 16 of BF16. None where the name says nothing."""
    if match := re.fullmatch(r"(?:UD-)?(?:I?Q|TQ)(\d).*|(?:MX|NV)FP(\d).*|B?F(\d+)", quantization):
        return int(match[1] or match[2] or match[3])
    return None


def main_tensor_type(quantization: str) -> str:
    """The type of most weights, as in `TENSOR_TYPES`: "q4_K" of Q4_K_M and UD-Q4_K_XL; "" for an unknown name."""
    words = quantization.removeprefix("UD-").split("_")
    shorter = ("_".join(words[:n]) for n in range(len(words), 0, -1))
    return next((_TYPES[name] for name in shorter if name in _TYPES), "")
