"""A model's shape from its header: what decides how much memory it takes.

Keys and defaults are those of llama.cpp (`llama_model_base::load_hparams` and each architecture's
`load_arch_hparams`); what the file leaves to the architecture's name is in `layer_kinds`. Numbers are untrusted: a
wrong type, an absurd value or a list of the wrong length is a ModelFileError; llama.cpp refuses it or ends the process.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Final

from localspec.errors import ModelFileError
from localspec.models import layer_kinds
from localspec.models.header import GgufHeader

__all__ = ["Hyperparameters", "Layer", "RecurrentState", "hyperparameters"]

MAX_LAYERS: Final = 512  # LLAMA_MAX_LAYERS; llama.cpp ends the process beyond it
_MAX_NUMBER: Final = 2**31 - 1
_ANOTHER_FILE: Final = "Use another file of this model."


@dataclass(frozen=True, slots=True)
class Layer:
    """One repeating layer. Lengths are values per head; a layer without a cache of its own has `has_cache` false."""

    n_heads: int
    n_heads_kv: int
    key_length: int
    value_length: int
    has_cache: bool
    is_sliding: bool
    is_recurrent: bool
    n_experts_used: int


@dataclass(frozen=True, slots=True)
class RecurrentState:
    """Values that each recurrent layer keeps per sequence: of its convolution, and of the state itself."""

    n_conv: int
    n_state: int
    can_roll_back: bool


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """The shape of a model.

    `layers` are those that run; `n_layers_ahead` more are in the file for multi-token prediction. `sliding_window` in
    tokens, 0 for none. `kv_rank` is not 0 for latent attention (MLA), whose cache has keys only; `mla_key_length` and
    `mla_value_length` are then the lengths of its heads in the pass. `is_exact` false: the architecture is unknown, or
    known to have caches that these numbers do not describe in full.
    """

    architecture: str
    is_exact: bool
    n_vocab: int
    n_ctx_train: int
    n_embd: int
    layers: tuple[Layer, ...]
    n_layers_ahead: int
    sliding_window: int
    kv_rank: int
    mla_key_length: int
    mla_value_length: int
    indexer_key_length: int
    recurrent: RecurrentState | None
    n_embd_per_layer: int

    @property
    def n_layers_all(self) -> int:
        """The layers in the file: what `--gpu-layers` counts, with one more for the output."""
        return len(self.layers) + self.n_layers_ahead

    @property
    def is_mla(self) -> bool:
        """Latent attention: one compressed key per token and layer, from which values are made too."""
        return self.mla_key_length > 0 and self.mla_value_length > 0


def hyperparameters(header: GgufHeader) -> Hyperparameters:
    """Read the shape of a model.

    Raises:
        ModelFileError: a value is missing, of the wrong type or out of range; the message names key and value.
    """
    keys = _Keys(header)
    n_all = keys.number("block_count")
    n_ahead = keys.number("nextn_predict_layers", 0)
    if not 0 < n_all <= MAX_LAYERS:
        raise keys.refused("block_count", n_all, f"it must be from 1 to {MAX_LAYERS}")
    if n_ahead >= n_all:
        raise keys.refused("nextn_predict_layers", n_ahead, f"there are {n_all} layers in all")
    n_layers, n_embd = n_all - n_ahead, keys.number("embedding_length")
    heads = keys.per_layer("attention.head_count", n_all, 0)
    heads_kv = keys.per_layer("attention.head_count_kv", n_all, heads)
    used = keys.per_layer("expert_used_count", n_all, 0)
    head_length = n_embd // heads[0] if heads[0] else 0
    key = keys.number("attention.key_length", head_length) if heads[0] else 0
    value = keys.number("attention.value_length", head_length) if heads[0] else 0
    sliding_key = keys.number("attention.key_length_swa", key)
    sliding_value = keys.number("attention.value_length_swa", value)
    mla_key, mla_value = keys.number("attention.key_length_mla", 0), keys.number("attention.value_length_mla", 0)
    feeds = _feed_forward_alone(keys, n_all)
    recurs = _recurrent_layers(keys, n_layers, heads_kv, feeds)
    window, slides = _sliding_layers(keys, n_layers, recurs)
    n_own_cache = n_all - _shared_kv_layers(keys, n_all)
    architecture = header.architecture
    has_both = architecture in layer_kinds.BOTH_IN_EACH_LAYER
    layers = tuple(
        Layer(
            n_heads=heads[i],
            n_heads_kv=heads_kv[i],
            key_length=sliding_key if slides[i] else key,
            value_length=sliding_value if slides[i] else value,
            has_cache=(has_both or not (recurs[i] or feeds[i])) and i < n_own_cache,
            is_sliding=slides[i],
            is_recurrent=recurs[i],
            n_experts_used=used[i],
        )
        for i in range(n_layers)
    )
    return Hyperparameters(
        architecture=architecture,
        is_exact=architecture in layer_kinds.KNOWN,
        n_vocab=_vocabulary_size(keys),
        n_ctx_train=keys.number("context_length", 0),
        n_embd=n_embd,
        layers=layers,
        n_layers_ahead=n_ahead,
        sliding_window=window,
        kv_rank=keys.number("attention.kv_lora_rank", 0),
        mla_key_length=mla_key,
        mla_value_length=mla_value,
        indexer_key_length=keys.number("attention.indexer.key_length", 0),
        recurrent=_state(keys, n_embd, heads[0], key) if any(recurs) else None,
        n_embd_per_layer=keys.number("embedding_length_per_layer_input", 0),
    )


class _Keys:
    """The metadata below the architecture's name."""

    def __init__(self, header: GgufHeader) -> None:
        self.header = header
        self.architecture = header.architecture

    def number(self, key: str, default: int | None = None) -> int:
        """A count. A key without `default` has to be there."""
        value = self.header.integer(f"{self.architecture}.{key}")
        if value is None:
            if default is None:
                raise ModelFileError(
                    f"{self.header.path}: its metadata has no {self.architecture}.{key}.", hint=_ANOTHER_FILE
                )
            return default
        return self._checked(key, value)

    def per_layer(self, key: str, n_layers: int, default: int | list[int]) -> list[int]:
        """One count for each layer, from one for all or a list of them."""
        value = self.header.metadata.get(f"{self.architecture}.{key}")
        if not isinstance(value, array):
            fallback = default if isinstance(default, int) else 0
            every = self.number(key, fallback)
            return default if value is None and isinstance(default, list) else [every] * n_layers
        if value.typecode in "fd" or len(value) != n_layers:
            raise self.refused(key, f"a list of {len(value)}", f"the model has {n_layers} layers")
        return [self._checked(key, int(each)) for each in value]

    def flags(self, key: str, n_layers: int) -> list[bool] | None:
        """A list of yes or no, cut or filled up to `n_layers`; None where there is no list."""
        value = self.header.metadata.get(f"{self.architecture}.{key}")
        if not isinstance(value, array):
            return None
        given = [bool(each) for each in value[:n_layers]]
        return given + [False] * (n_layers - len(given))

    def refused(self, key: str, value: object, reason: str) -> ModelFileError:
        return ModelFileError(
            f"{self.header.path}: its metadata {self.architecture}.{key} is {value}; {reason}.", hint=_ANOTHER_FILE
        )

    def _checked(self, key: str, value: int) -> int:
        if not 0 <= value <= _MAX_NUMBER:
            raise self.refused(key, value, f"it must be from 0 to {_MAX_NUMBER}")
        return value


def _vocabulary_size(keys: _Keys) -> int:
    tokens = keys.header.strings("tokenizer.ggml.tokens")
    return len(tokens) if tokens else keys.number("vocab_size", 0)


def _shared_kv_layers(keys: _Keys, n_all: int) -> int:
    """Layers at the end that read an earlier layer's cache instead of one of their own."""
    if keys.architecture == "gemma3n":
        return max(0, n_all - 20)  # llama.cpp does not read it from the file
    return keys.number("attention.shared_kv_layers", 0) if keys.architecture == "gemma4" else 0


def _feed_forward_alone(keys: _Keys, n_all: int) -> list[bool]:
    """Layers that neither attend nor recur."""
    if keys.architecture not in layer_kinds.BY_FEED_FORWARD:
        return [False] * n_all
    return [width > 0 for width in keys.per_layer("feed_forward_length", n_all, 0)]


def _recurrent_layers(keys: _Keys, n_layers: int, heads_kv: list[int], feeds: list[bool]) -> list[bool]:
    architecture = keys.architecture
    if architecture in layer_kinds.ONLY_RECURRENT | layer_kinds.BOTH_IN_EACH_LAYER:
        return [True] * n_layers
    if architecture in layer_kinds.BY_KV_HEADS:
        return [n == 0 for n in heads_kv[:n_layers]]
    if architecture in layer_kinds.BY_FEED_FORWARD:
        return [n == 0 and not feed for n, feed in zip(heads_kv[:n_layers], feeds, strict=False)]
    if architecture in layer_kinds.BY_INTERVAL:
        listed = keys.flags("attention.recurrent_layers", n_layers)
        interval = keys.number("full_attention_interval", layer_kinds.BY_INTERVAL[architecture])
        if interval == 0:
            raise keys.refused("full_attention_interval", 0, "it must be at least 1")
        return listed or [(i + 1) % interval != 0 for i in range(n_layers)]
    return [False] * n_layers


def _sliding_layers(keys: _Keys, n_layers: int, recurs: list[bool]) -> tuple[int, list[bool]]:
    """The window, 0 for none, and which layers have it."""
    none = 0, [False] * n_layers
    window = keys.number("attention.sliding_window", 0)
    if keys.architecture == "lfm2":
        return (window, [not each for each in recurs]) if window else none
    rule = layer_kinds.SLIDING.get(keys.architecture)
    if rule is None or (rule.n_layers is not None and rule.n_layers != n_layers):
        return none
    is_off = keys.header.integer(f"{keys.architecture}.attention.sliding_window") == 0
    if rule.is_fixed:
        # llama4 slides unless the file says 0; smallthinker unless the file says 0 or nothing.
        window = rule.window if window or (keys.architecture == "llama4" and not is_off) else 0
    elif not is_off:
        window = window or rule.window
    if window == 0:
        return none
    slides = keys.flags("attention.sliding_window_pattern", n_layers)
    if slides is None:
        period = keys.number("attention.sliding_window_pattern", rule.period)
        full = 0 if rule.full_first else period - 1
        slides = [period == 0 or i % period != full for i in range(n_layers)]
    return (window, slides) if any(slides) else none


def _state(keys: _Keys, n_embd: int, n_heads: int, key_length: int) -> RecurrentState:
    """As `n_embd_r` and `n_embd_s` in llama-hparams.cpp."""
    kernel, inner = keys.number("ssm.conv_kernel", 0), keys.number("ssm.inner_size", 0)
    state, groups = keys.number("ssm.state_size", 0), keys.number("ssm.group_count", 0)
    if head := keys.number("wkv.head_size", 0):
        n_conv, n_state = keys.number("token_shift_count", 2) * n_embd, n_embd * head
    elif taps := keys.number("shortconv.l_cache", 0):
        n_conv, n_state = n_embd * (taps - 1), 0
    elif head := keys.number("kda.head_dim", 0):
        n_conv, n_state = 3 * (kernel - 1 if kernel else 3) * n_heads * head, head * head * n_heads
    else:
        n_conv = max(0, kernel - 1) * (inner + 2 * groups * state)
        n_state = key_length * key_length * n_heads if keys.architecture == "minimax-01" else state * inner
    return RecurrentState(n_conv, n_state, keys.architecture in layer_kinds.ROLLS_BACK)
