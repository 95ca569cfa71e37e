"""Which layers see a sliding window, and which keep a recurrent state: what a file leaves to its architecture's name.

Source: `load_arch_hparams` of each architecture in llama.cpp (src/models), and `llm_arch_is_hybrid` and its neighbours
(src/llama-arch.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = [
    "APPROXIMATE",
    "BOTH_IN_EACH_LAYER",
    "BY_FEED_FORWARD",
    "BY_INTERVAL",
    "BY_KV_HEADS",
    "KNOWN",
    "ONLY_RECURRENT",
    "ROLLS_BACK",
    "SLIDING",
    "SlidingRule",
]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class SlidingRule:
    """Every `period`-th layer sees all tokens: the first of each, or the last. 0: the file lists them.

    `window` is used where the file names none, or always if `is_fixed`. `n_layers`: only models of that many.
    """

    period: int
    full_first: bool = False
    window: int = 0
    is_fixed: bool = False
    n_layers: int | None = None


# Other architectures ignore the window that a file may name (phi3, llama, qwen2 ...).
SLIDING: Final = {
    **dict.fromkeys(["afmoe", "cohere2", "mellum", "muse-glimmer", "olmo2"], SlidingRule(4)),
    **dict.fromkeys(["cohere2moe", "laguna"], SlidingRule(4, full_first=True)),
    **dict.fromkeys(["gemma4", "granite_swa", "maple", "mimo2", "spark2_5", "step35", "dots3note"], SlidingRule(0)),
    "exaone4": SlidingRule(4, window=4096, n_layers=64),
    "exaone-moe": SlidingRule(4, window=128),
    "gemma2": SlidingRule(2, window=4096),
    "gemma3": SlidingRule(6),
    "gemma3n": SlidingRule(5),
    "gpt-oss": SlidingRule(2),
    "llama4": SlidingRule(4, window=8192, is_fixed=True),
    "plamo3": SlidingRule(8),
    "smallthinker": SlidingRule(4, full_first=True, window=4096, is_fixed=True),
}

ONLY_RECURRENT: Final = frozenset(["mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"])
BOTH_IN_EACH_LAYER: Final = frozenset(["falcon-h1"])
# A layer without heads for keys and values is recurrent.
BY_KV_HEADS: Final = frozenset(
    ["jamba", "granitehybrid", "plamo2", "lfm2", "lfm2moe", "kimi-linear", "kimi-k3", "bailingmoe3", "glm5-next"]
)
# The same, if it has no feed-forward part either: a layer here is one of the three.
BY_FEED_FORWARD: Final = frozenset(["nemotron_h", "nemotron_h_moe"])
# All but every n-th layer are recurrent; the n where the file names none.
BY_INTERVAL: Final = {"qwen3next": 4, "qwen35": 4, "qwen35moe": 4, "qwen4exp": 4, "minimax-01": 8}
# Keep snapshots of the state, so that a few tokens can be taken back (llm_arch_supports_rs_rollback).
ROLLS_BACK: Final = _names(
    "kimi-k3 qwen35 qwen35moe qwen4exp deepseek4 glm5-next nemotron_h nemotron_h_moe lfm2 lfm2moe bailingmoe3"
)

# Their caches have parts that the rules here do not describe exactly (indexers, compressed states, looped layers).
APPROXIMATE: Final = _names(
    "deepseek32 deepseek4 dots3note glm-dsa glm5-next graniteswitch hrm_text hy_v4 minimax-m3 nanbeige qwen4exp"
)
# Architectures that write text, as of llama-cpp-python 0.3.36.
KNOWN: Final = (
    _names(
        """
        afmoe apertus arcee arctic baichuan bailingmoe bailingmoe2 bitnet bloom chameleon chatglm codeshell cogvlm
        command-r dbrx deci deepseek deepseek2 deepseek2-ocr dots1 ernie4_5 ernie4_5-moe exaone falcon gemma glm4
        glm4moe gpt2 gptj gptneox granite granitemoe grok grovemoe hunyuan-dense hunyuan-moe hunyuan_vl hy_v3
        internlm2 jais jais2 llama maincoder minicpm minicpm3 minimax-m2 mistral3 mistral4 mpt nemotron olmo olmoe
        openelm orion paddleocr pangu-embedded phi2 phi3 phimoe plamo plm qwen qwen2 qwen2moe qwen2vl qwen3 qwen3moe
        qwen3vl qwen3vlmoe refact seed_oss smollm3 stablelm starcoder starcoder2 talkie xverse
        """
    )
    | frozenset(SLIDING)
    | frozenset(BY_INTERVAL)
    | ONLY_RECURRENT
    | BOTH_IN_EACH_LAYER
    | BY_KV_HEADS
    | BY_FEED_FORWARD
) - APPROXIMATE
