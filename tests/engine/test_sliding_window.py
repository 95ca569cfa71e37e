"""A model whose layers look back over a window only: its cache forgets, and replies must not notice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from localspec.engine.events import Finished
from localspec.engine.loader import LoadedPair, load_pair
from localspec.engine.requests import Mode, ModelSpec, PairSpec, SamplingParams
from localspec.models.gguf import read_header
from tests.engine.conftest import InProcessEngine, end_of, raw, tokens_of
from tests.memory.shape_models import dense
from tests.memory.shapes import write_shape
from tests.tiny_models import byte_tokens

pytestmark = pytest.mark.native

GREEDY = SamplingParams(temperature=0.0)
WINDOW = 64


def write_window_model(path: Path, seed: int) -> Path:
    """Gemma 3 in small, with random weights: five layers in six see `WINDOW` tokens."""
    names = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
    shape = dense(
        "gemma3", 6, 64, 4, 1, 16, 128, 300, 4096, tied=False, layer_norms=names, head_norms=True,
        attention__sliding_window=WINDOW,
    )  # fmt: skip
    write_shape(path, shape, "f32", tokens=["<s>", "</s>", *byte_tokens()])
    header, rng = read_header(path), np.random.default_rng(seed)
    with path.open("r+b") as file:
        for tensor in header.tensors:
            values = np.ones(tensor.shape) if "norm" in tensor.name else rng.normal(0.0, 0.3, tensor.shape)
            file.seek(header.data_offset + tensor.offset)
            file.write(values.astype(np.float32).tobytes())
    return path


@pytest.fixture(scope="module")
def window_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedPair]:
    folder = tmp_path_factory.mktemp("windows")
    target, draft = (write_window_model(folder / f"{seed}.gguf", seed) for seed in (1, 2))
    pair = load_pair(PairSpec("windows", ModelSpec(target), ModelSpec(draft), n_ctx=2048, n_threads=1), lambda _: True)
    yield pair
    pair.close()


def test_layers_with_a_window_keep_little(window_pair: LoadedPair):
    from localspec.memory.context_shape import ContextShape
    from localspec.memory.estimate import Footprint

    header = read_header(window_pair.target.model.path)
    kept = sum(Footprint(header).kv_bytes(ContextShape(2048)))
    whole = sum(Footprint(header).kv_bytes(ContextShape(2048, whole_window_cache=True)))
    assert kept < 0.6 * whole


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.DRAFT, Mode.LOOKUP])
@pytest.mark.parametrize("n_prompt", [20, 500, 1400])
def test_a_reply_beyond_the_window_is_that_of_plain_decoding(window_pair: LoadedPair, mode: Mode, n_prompt: int):
    prompt = "ab cde fgh " * (n_prompt // 10)
    window_pair.target.context.clear_all()
    plain = InProcessEngine(window_pair).run(raw(prompt, mode=Mode.PLAIN, sampling=GREEDY, max_tokens=200))
    window_pair.target.context.clear_all()
    other = InProcessEngine(window_pair).run(raw(prompt, mode=mode, sampling=GREEDY, max_tokens=200))
    assert tokens_of(other) == tokens_of(plain)
    assert len(set(tokens_of(plain))) > 5, "a reply that says something"


def test_the_next_turn_and_an_earlier_one_are_answered_alike(window_pair: LoadedPair):
    """What a window has forgotten is read again: going back far, and then on."""
    engine = InProcessEngine(window_pair)
    first, second = "ab cde fgh " * 100, "ab cde fgh " * 140
    asked = [first, second, first, "ab cde " * 5, second]
    replies: dict[str, list[int]] = {}
    for prompt in asked:
        events = engine.run(raw(prompt, mode=Mode.AUTO, sampling=GREEDY, max_tokens=40))
        assert isinstance(end_of(events), Finished)
        tokens = tokens_of(events)
        assert replies.setdefault(prompt, tokens) == tokens
