"""Models of many architectures by their shapes, with the hyper-parameters of their own configuration files."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.memory.shapes import (
    Shape,
    Tensor,
    Value,
    attention,
    delta_net,
    experts,
    feed_forward,
    mamba2,
    norms,
)

RMS: dict[str, Value] = {"attention.layer_norm_rms_epsilon": 1e-5}


def common(
    layers: int, embd: int, heads: int, heads_kv: int | list[int], width: int | list[int], ctx: int
) -> dict[str, Value]:
    return {
        "block_count": layers,
        "embedding_length": embd,
        "attention.head_count": heads,
        "attention.head_count_kv": heads_kv,
        "feed_forward_length": width,
        "context_length": ctx,
    }


def head_lengths(key: int, value: int | None = None, rope: int | None = None) -> dict[str, Value]:
    value = key if value is None else value
    rope = key if rope is None else rope
    return {"attention.key_length": key, "attention.value_length": value, "rope.dimension_count": rope}


def dense(
    architecture: str,
    n: int,
    embd: int,
    heads: int,
    heads_kv: int,
    head: int,
    width: int,
    vocab: int,
    ctx: int,
    *,
    tied: bool = False,
    layer_norms: tuple[str, ...] = ("attn_norm", "ffn_norm"),
    head_norms: bool = False,
    bias: bool = False,
    **values: Value,
) -> Shape:
    """The usual decoder: attention over all tokens, a gated feed-forward part."""
    layer = norms(embd, *layer_norms) + attention(embd, heads, heads_kv, head, norms=head_norms, bias=bias)
    layer += feed_forward(embd, width)
    named = {key.replace("__", "."): value for key, value in values.items()}
    metadata = common(n, embd, heads, heads_kv, width, ctx) | head_lengths(head) | RMS | named
    return Shape(architecture, vocab, embd, metadata, [layer] * n, tied=tied)


def _llama(n: int, embd: int, heads: int, kv: int, head: int, width: int, vocab: int, ctx: int, **rest: bool) -> Shape:
    return dense("llama", n, embd, heads, kv, head, width, vocab, ctx, **rest)


def _gemma2_2b() -> Shape:
    names = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
    values: dict[str, Value] = {"attention__sliding_window": 4096}
    return dense("gemma2", 26, 2304, 8, 4, 256, 9216, 256000, 8192, tied=True, layer_norms=names, **values)


def _gemma3(n: int, embd: int, heads: int, kv: int, head: int, width: int, vocab: int, window: int) -> Shape:
    names = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
    values: dict[str, Value] = {"attention__sliding_window": window}
    return dense(
        "gemma3", n, embd, heads, kv, head, width, vocab, 32768, tied=True, layer_norms=names, head_norms=True, **values
    )


def _gemma4_e2b() -> Shape:
    n, embd, heads, per_layer, vocab = 35, 1536, 8, 256, 262144
    full = [i % 5 == 4 for i in range(n)]
    own = n - 20
    layers = []
    widths = [6144 if i < own else 12288 for i in range(n)]
    for i in range(n):
        head = 512 if full[i] else 256
        layer = norms(embd, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm")
        layer += attention(embd, heads, 1, head, norms=True) + feed_forward(embd, widths[i])
        layer += [
            ("inp_gate.weight", (embd, per_layer)),
            ("proj.weight", (per_layer, embd)),
            ("layer_output_scale.weight", (1,)),
        ]
        layers.append(layer)
    values = common(n, embd, heads, 1, widths, 131072) | head_lengths(512) | RMS
    values |= {
        "attention.key_length_swa": 256,
        "attention.value_length_swa": 256,
        "rope.dimension_count_swa": 256,
        "attention.sliding_window": 512,
        "attention.sliding_window_pattern": [not each for each in full],
        "attention.shared_kv_layers": 20,
        "embedding_length_per_layer_input": per_layer,
    }
    others: list[Tensor] = [
        ("per_layer_token_embd.weight", (per_layer * n, vocab)),
        ("per_layer_model_proj.weight", (embd, per_layer * n)),
        ("per_layer_proj_norm.weight", (per_layer,)),
        ("rope_freqs.weight", (256,)),
    ]
    return Shape("gemma4", vocab, embd, values, layers, [*others, *norms(embd, "output_norm")], tied=True)


def _phi4_mini() -> Shape:
    n, embd, heads, kv, head, width = 32, 3072, 24, 8, 128, 8192
    layer = norms(embd, "attn_norm", "ffn_norm")
    layer += [("attn_qkv.weight", (embd, (heads + 2 * kv) * head)), ("attn_output.weight", (embd, embd))]
    layer += [("ffn_up.weight", (embd, 2 * width)), ("ffn_down.weight", (width, embd))]
    values = common(n, embd, heads, kv, width, 131072) | {
        "rope.dimension_count": 96,
        "attention.sliding_window": 262144,
    }
    return Shape("phi3", 200064, embd, values | RMS, [layer] * n, tied=True)


def _gpt_oss_20b() -> Shape:
    n, embd, heads, kv, head, width, count = 24, 2880, 64, 8, 64, 2880, 32
    layer = norms(embd, "attn_norm", "post_attention_norm") + attention(embd, heads, kv, head, bias=True)
    layer += [("attn_output.bias", (embd,)), ("attn_sinks.weight", (heads,)), *experts(embd, width, count)]
    layer += [("ffn_gate_inp.bias", (count,)), ("ffn_down_exps.bias", (embd, count))]
    layer += [(f"ffn_{name}_exps.bias", (width, count)) for name in ("gate", "up")]
    values = common(n, embd, heads, kv, width, 131072) | head_lengths(head) | RMS
    values |= {"attention.sliding_window": 128, "expert_count": count, "expert_used_count": 4}
    return Shape("gpt-oss", 201088, embd, values | {"expert_feed_forward_length": width}, [layer] * n)


def _qwen3_moe() -> Shape:
    n, embd, heads, kv, head, width, count = 48, 2048, 32, 4, 128, 768, 128
    layer = norms(embd, "attn_norm", "ffn_norm") + attention(embd, heads, kv, head, norms=True)
    layer += experts(embd, width, count)
    values = common(n, embd, heads, kv, 6144, 40960) | head_lengths(head) | RMS
    values |= {"expert_count": count, "expert_used_count": 8, "expert_feed_forward_length": width}
    return Shape("qwen3moe", 151936, embd, values, [layer] * n)


def _glm_flash() -> Shape:
    """GLM-4.7-Flash: latent attention of DeepSeek-V2's kind, one dense layer, a layer for multi-token prediction."""
    n, embd, heads, width, expert_width, count = 47, 2048, 20, 10240, 1536, 64
    q_rank, kv_rank, rope, key, value = 768, 512, 64, 256, 256
    attends: list[Tensor] = [
        ("attn_q_a.weight", (embd, q_rank)),
        ("attn_q_a_norm.weight", (q_rank,)),
        ("attn_q_b.weight", (q_rank, heads * key)),
        ("attn_kv_a_mqa.weight", (embd, kv_rank + rope)),
        ("attn_kv_a_norm.weight", (kv_rank,)),
        ("attn_k_b.weight", (key - rope, kv_rank, heads)),
        ("attn_v_b.weight", (kv_rank, value, heads)),
        ("attn_output.weight", (heads * value, embd)),
    ]
    routed = experts(embd, expert_width, count) + feed_forward(embd, expert_width, suffix="_shexp")
    before = norms(embd, "attn_norm", "ffn_norm") + attends
    ahead: list[Tensor] = [("nextn.eh_proj.weight", (2 * embd, embd)), *norms(embd, "nextn.enorm", "nextn.hnorm")]
    layers = [before + feed_forward(embd, width), *[before + routed] * (n - 1), before + routed + ahead]
    values = common(n + 1, embd, heads, 1, width, 202752) | head_lengths(kv_rank + rope, kv_rank, rope) | RMS
    values |= {
        "attention.q_lora_rank": q_rank,
        "attention.kv_lora_rank": kv_rank,
        "attention.key_length_mla": key,
        "attention.value_length_mla": value,
        "expert_count": count,
        "expert_used_count": 4,
        "expert_shared_count": 1,
        "expert_feed_forward_length": expert_width,
        "leading_dense_block_count": 1,
        "nextn_predict_layers": 1,
    }
    return Shape("deepseek2", 154880, embd, values, layers)


def _glm4_9b() -> Shape:
    n, embd, heads, kv, head, width = 40, 4096, 32, 2, 128, 13696
    layer = norms(embd, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
    layer += attention(embd, heads, kv, head)
    layer += [("ffn_up.weight", (embd, 2 * width)), ("ffn_down.weight", (width, embd))]
    values = common(n, embd, heads, kv, width, 32768) | {"rope.dimension_count": 64} | RMS
    return Shape("glm4", 151552, embd, values, [layer] * n)


def _delta_hybrid(
    architecture: str,
    n: int,
    embd: int,
    heads: int,
    kv: int,
    feed: list[Tensor],
    groups: int,
    delta_heads: int,
    vocab: int,
    more: Mapping[str, Value],
    *,
    looks_ahead: bool,
) -> Shape:
    """Three layers with a recurrent state, then one that attends; maybe a layer for multi-token prediction."""
    head, state, kernel = 256, 128, 4
    attends = attention(embd, heads, kv, head, norms=True)
    attends[0] = ("attn_q.weight", (embd, 2 * heads * head))
    around = norms(embd, "attn_norm", "post_attention_norm") + feed
    recurs = delta_net(embd, state, groups, delta_heads, kernel)
    if architecture == "qwen3next":
        recurs = [each for each in recurs if not each[0].startswith(("ssm_alpha", "ssm_beta"))]
        recurs.append(("ssm_ba.weight", (embd, 2 * delta_heads)))
    layers = [around + (attends if i % 4 == 3 else recurs) for i in range(n)]
    ahead: list[Tensor] = [("nextn.eh_proj.weight", (2 * embd, embd)), *norms(embd, "nextn.enorm", "nextn.hnorm")]
    layers += [around + attends + ahead] * looks_ahead
    values = common(n + looks_ahead, embd, heads, kv, 0, 262144) | head_lengths(head, rope=64) | RMS
    values |= _state_space(state * delta_heads, state, groups, delta_heads, kernel)
    values |= {"full_attention_interval": 4, "rope.dimension_sections": [11, 11, 10, 0]}
    values |= {"nextn_predict_layers": 1} if looks_ahead else {}
    return Shape(architecture, vocab, embd, values | dict(more), layers)


def _qwen35(n: int, embd: int, heads: int, kv: int, width: int, groups: int, delta_heads: int) -> Shape:
    more: dict[str, Value] = {"feed_forward_length": width}
    feed = feed_forward(embd, width)
    return _delta_hybrid("qwen35", n, embd, heads, kv, feed, groups, delta_heads, 248320, more, looks_ahead=True)


def _qwen35_moe(architecture: str, n: int, vocab: int, count: int, used: int, *, looks_ahead: bool) -> Shape:
    embd, width = 2048, 512
    feed = experts(embd, width, count) + feed_forward(embd, width, suffix="_shexp")
    feed.append(("ffn_gate_inp_shexp.weight", (embd,)))
    more: dict[str, Value] = {"expert_count": count, "expert_used_count": used, "expert_feed_forward_length": width}
    more["expert_shared_feed_forward_length"] = width
    return _delta_hybrid(architecture, n, embd, 16, 2, feed, 16, 32, vocab, more, looks_ahead=looks_ahead)


def _glm45_air() -> Shape:
    n, embd, heads, kv, head, width, expert_width, count = 46, 4096, 96, 8, 128, 10944, 1408, 128
    before = norms(embd, "attn_norm", "post_attention_norm") + attention(embd, heads, kv, head, bias=True)
    routed = experts(embd, expert_width, count) + feed_forward(embd, expert_width, suffix="_shexp")
    routed.append(("exp_probs_b.bias", (count,)))
    ahead: list[Tensor] = [("nextn.eh_proj.weight", (2 * embd, embd)), *norms(embd, "nextn.enorm", "nextn.hnorm")]
    layers = [before + feed_forward(embd, width), *[before + routed] * (n - 1), before + routed + ahead]
    values = common(n + 1, embd, heads, kv, width, 131072) | head_lengths(head, rope=64) | RMS
    values |= {"expert_count": count, "expert_used_count": 8, "expert_shared_count": 1, "nextn_predict_layers": 1}
    values |= {"expert_feed_forward_length": expert_width, "leading_dense_block_count": 1}
    return Shape("glm4moe", 151552, embd, values, layers)


def _falcon_h1_05b() -> Shape:
    """Every layer has both: attention and a recurrent state."""
    n, embd, heads, kv, head, width = 36, 1024, 8, 2, 64, 2048
    inner, state, groups, ssm_heads, kernel = 1536, 128, 1, 24, 4
    layer = norms(embd, "attn_norm") + attention(embd, heads, kv, head) + feed_forward(embd, width)
    layer += [("ffn_norm", (embd,)), *mamba2(embd, inner, state, groups, ssm_heads, kernel)]
    values = common(n, embd, heads, kv, width, 16384) | head_lengths(head) | RMS
    values |= _state_space(inner, state, groups, ssm_heads, kernel)
    return Shape("falcon-h1", 32784, embd, values, [layer] * n)


def _granite_hybrid() -> Shape:
    """Granite-4.0-H-Small."""
    n, embd, heads, head, width, shared, count = 40, 4096, 32, 128, 768, 1536, 72
    inner, state, groups, ssm_heads, kernel = 8192, 128, 1, 128, 4
    heads_kv = [8 if i in {5, 15, 25, 35} else 0 for i in range(n)]
    recurs = mamba2(embd, inner, state, groups, ssm_heads, kernel)
    routed = experts(embd, width, count) + feed_forward(embd, shared, suffix="_shexp")
    around = norms(embd, "attn_norm", "ffn_norm") + routed
    layers = [around + (attention(embd, heads, kv, head) if kv else recurs) for kv in heads_kv]
    values = (
        common(n, embd, heads, heads_kv, width, 1048576) | RMS | _state_space(inner, state, groups, ssm_heads, kernel)
    )
    values |= {"expert_count": count, "expert_used_count": 10, "expert_shared_feed_forward_length": shared}
    values |= {"rope.dimension_count": head, "logit_scale": 16.0}
    return Shape("granitehybrid", 100352, embd, values, layers, tied=True)


def _state_space(inner: int, state: int, groups: int, heads: int, kernel: int) -> dict[str, Value]:
    return {
        "ssm.inner_size": inner,
        "ssm.state_size": state,
        "ssm.group_count": groups,
        "ssm.time_step_rank": heads,
        "ssm.conv_kernel": kernel,
    }


def _exaone4_32b() -> Shape:
    names = ("post_attention_norm", "post_ffw_norm")
    values: dict[str, Value] = {"attention__sliding_window": 4096}
    return dense("exaone4", 64, 5120, 40, 8, 128, 27392, 102400, 131072, layer_norms=names, head_norms=True, **values)


def _command_r() -> Shape:
    """Command-R: attention and feed-forward part read the same input."""
    values: dict[str, Value] = {"logit_scale": 0.0625, "attention__layer_norm_epsilon": 1e-5}
    return dense(
        "command-r", 40, 8192, 64, 64, 128, 22528, 256000, 131072, tied=True, layer_norms=("attn_norm",), **values
    )


def _starcoder2_3b() -> Shape:
    n, embd, heads, kv, head, width = 30, 3072, 24, 2, 128, 12288
    layer = norms(embd, "attn_norm", "ffn_norm") + attention(embd, heads, kv, head, bias=True)
    layer += feed_forward(embd, width, gated=False)
    layer += [(f"{name}.bias", (embd,)) for name in ("attn_norm", "ffn_norm", "attn_output", "ffn_down")]
    layer += [("ffn_up.bias", (width,))]
    values = common(n, embd, heads, kv, width, 16384) | {
        "attention.layer_norm_epsilon": 1e-5,
        "rope.dimension_count": head,
    }
    others: list[Tensor] = [*norms(embd, "output_norm"), ("output_norm.bias", (embd,))]
    return Shape("starcoder2", 49152, embd, values, [layer] * n, others, tied=True)


def _lfm2_350m() -> Shape:
    """Short convolutions with a small state; a few layers attend."""
    n, embd, heads, head, width = 16, 1024, 16, 64, 4608
    heads_kv = [8 if i in {2, 5, 8, 10, 12, 14} else 0 for i in range(n)]
    conv: list[Tensor] = [
        ("shortconv.conv.weight", (3, embd)),
        ("shortconv.in_proj.weight", (embd, 3 * embd)),
        ("shortconv.out_proj.weight", (embd, embd)),
    ]
    around = norms(embd, "attn_norm", "ffn_norm") + feed_forward(embd, width)
    layers = [around + (attention(embd, heads, kv, head, norms=True) if kv else conv) for kv in heads_kv]
    values = common(n, embd, heads, heads_kv, width, 128000) | {"shortconv.l_cache": 3} | RMS
    return Shape("lfm2", 65536, embd, values, layers, norms(embd, "token_embd_norm"), tied=True)


SHAPES: Mapping[str, Callable[[], Shape]] = {
    "smollm2-135m": lambda: _llama(30, 576, 9, 3, 64, 1536, 49152, 8192, tied=True),
    "llama-3.2-1b": lambda: _llama(16, 2048, 32, 8, 64, 8192, 128256, 131072, tied=True),
    "llama-3.1-8b": lambda: _llama(32, 4096, 32, 8, 128, 14336, 128256, 131072),
    "qwen2.5-0.5b": lambda: dense("qwen2", 24, 896, 14, 2, 64, 4864, 151936, 32768, tied=True, bias=True),
    "qwen2.5-7b": lambda: dense("qwen2", 28, 3584, 28, 4, 128, 18944, 152064, 32768, bias=True),
    "qwen3-0.6b": lambda: dense("qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 40960, tied=True, head_norms=True),
    "qwen3-32b": lambda: dense("qwen3", 64, 5120, 64, 8, 128, 25600, 151936, 40960, head_norms=True),
    "qwen3-30b-a3b": _qwen3_moe,
    "gemma-2-2b": _gemma2_2b,
    "gemma-3-270m": lambda: _gemma3(18, 640, 4, 1, 256, 2048, 262144, 512),
    "gemma-3-27b": lambda: _gemma3(62, 5376, 32, 16, 128, 21504, 262208, 1024),
    "gemma-4-e2b": _gemma4_e2b,
    "phi-4-mini": _phi4_mini,
    "gpt-oss-20b": _gpt_oss_20b,
    "glm-4.7-flash": _glm_flash,
    "glm-4-9b": _glm4_9b,
    "granite-3.2-2b": lambda: dense(
        "granite", 40, 2048, 32, 8, 64, 8192, 49155, 131072, tied=True, logit_scale=8.0, embedding_scale=12.0
    ),
    "devstral-small-2": lambda: dense("mistral3", 40, 5120, 32, 8, 128, 32768, 131072, 393216),
    "qwen3.5-0.8b": lambda: _qwen35(24, 1024, 8, 2, 3584, 16, 16),
    "qwen3.5-27b": lambda: _qwen35(64, 5120, 24, 4, 17408, 16, 48),
    "qwen3.5-35b-a3b": lambda: _qwen35_moe("qwen35moe", 40, 248320, 256, 8, looks_ahead=True),
    "qwen3-next-80b-a3b": lambda: _qwen35_moe("qwen3next", 48, 151936, 512, 10, looks_ahead=False),
    "glm-4.5-air": _glm45_air,
    "falcon-h1-0.5b": _falcon_h1_05b,
    "granite-4.0-h-small": _granite_hybrid,
    "smollm3-3b": lambda: dense("smollm3", 36, 2048, 16, 4, 128, 11008, 128256, 65536, tied=True),
    "exaone-4.0-32b": _exaone4_32b,
    "exaone-3.5-2.4b": lambda: dense("exaone", 30, 2560, 32, 8, 80, 7168, 102400, 32768, tied=True),
    "command-r-35b": _command_r,
    "starcoder2-3b": _starcoder2_3b,
    "lfm2-350m": _lfm2_350m,
}
