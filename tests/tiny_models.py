"""Tiny GGUF models, written by the tests: a byte-level vocabulary, two layers, random weights. Under 300 kB each.

`write_tiny_model(path, noise=...)` with the same `seed` gives relatives: at noise 0 they are equal, at 0.02 a draft is
mostly accepted, at 1 it is a stranger.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

N_LAYERS, N_EMBD, N_HEAD, N_HEAD_KV, N_FF = 2, 32, 4, 2, 64
BOS, EOS = "<|start|>", "<|end|>"
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def byte_tokens() -> list[str]:
    """The 256 byte tokens in GPT-2's printable alphabet."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def write_tiny_model(
    path: Path,
    *,
    seed: int = 1,
    noise: float = 0.0,
    n_ctx_train: int = 512,
    extra_tokens: int = 0,
    words: tuple[str, ...] = (),
    controls: tuple[str, ...] = (),
    template: str | None = TEMPLATE,
    architecture: str = "llama",
    name: str = "tiny",
    scale: float = 3.0,
    loud_padding: bool = False,
    eot: int | None = None,
    add_eos: bool = False,
    broken: bool = False,
    pooling: int | None = None,
    causal: bool | None = None,
) -> Path:
    """Write a model; `extra_tokens` unused ones pad its vocabulary. `scale` sharpens its distributions.

    `words` and `controls` are further tokens of ASCII, in this order.

    `eot` names another token that ends a reply, `add_eos` has the tokenizer close every text, and `broken` weights give
    logits that are not numbers. With `loud_padding` every other step prefers a padding token: what a real model never
    does, and a test must. `pooling` makes a model for embeddings: 1 is the mean, 3 the last token.
    """
    rng, noise_rng = np.random.default_rng(seed), np.random.default_rng(seed + 1_000)

    def weights(*shape: int, std: float) -> np.ndarray:
        base = rng.normal(0.0, std, shape)
        return (base + noise * noise_rng.normal(0.0, std, shape)).astype(np.float32)

    tokens = [*byte_tokens(), BOS, EOS, "Ġt", *words, *controls, *(f"<|pad{i}|>" for i in range(extra_tokens))]
    n_normal = 256
    types = [gguf.TokenType.NORMAL] * n_normal + [gguf.TokenType.CONTROL] * 2
    types += [gguf.TokenType.NORMAL] * (1 + len(words)) + [gguf.TokenType.CONTROL] * len(controls)
    types += [gguf.TokenType.UNUSED] * extra_tokens
    n_vocab = len(tokens)

    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(name)
    writer.add_context_length(n_ctx_train)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(N_LAYERS)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv(N_HEAD_KV)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(N_EMBD // N_HEAD)
    writer.add_vocab_size(n_vocab)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(["Ġ t"])
    writer.add_bos_token_id(tokens.index(BOS))
    writer.add_eos_token_id(tokens.index(EOS))
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(add_eos)
    if pooling is not None:
        writer.add_pooling_type(gguf.PoolingType(pooling))
    if causal is not None:
        writer.add_causal_attention(causal)
    if eot is not None:
        writer.add_eot_token_id(eot)
    if template is not None:
        writer.add_chat_template(template)

    # The embedding is also the output: its scale decides how sharp the distributions are.
    embedding = weights(n_vocab, N_EMBD, std=1.0)
    writer.add_tensor("token_embd.weight", embedding)
    writer.add_tensor("output_norm.weight", np.full(N_EMBD, np.nan if broken else 1.0, np.float32))
    output = weights(n_vocab, N_EMBD, std=scale / np.sqrt(N_EMBD))
    output[[*range(32), *range(127, 256)]] *= 0.3  # mostly readable text
    if loud_padding:
        output[-extra_tokens:] *= 5.0
    writer.add_tensor("output.weight", output)
    head = N_EMBD // N_HEAD
    for layer in range(N_LAYERS):
        shapes = {
            "attn_q": (N_EMBD, N_EMBD),
            "attn_k": (head * N_HEAD_KV, N_EMBD),
            "attn_v": (head * N_HEAD_KV, N_EMBD),
            "attn_output": (N_EMBD, N_EMBD),
            "ffn_gate": (N_FF, N_EMBD),
            "ffn_up": (N_FF, N_EMBD),
            "ffn_down": (N_EMBD, N_FF),
        }
        for tensor, shape in shapes.items():
            writer.add_tensor(f"blk.{layer}.{tensor}.weight", weights(*shape, std=1.0 / np.sqrt(shape[1])))
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{norm}.weight", np.ones(N_EMBD, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
