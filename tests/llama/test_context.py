"""Forward passes, rollback and what they leave in the cache, on a tiny model."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.errors import DoesNotFitError, EngineError
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.llama.sequence_cache import SequenceCache

pytestmark = pytest.mark.native

TOKENS = list(b"The quick brown fox jumps over the lazy dog")


@pytest.fixture
def context(target: Model):
    with Context(target, n_ctx=256, n_outputs_max=16, n_batch=32) as context:
        yield context


def logits_after(context: Context, tokens: list[int]) -> np.ndarray:
    context.clear()
    for start in range(0, len(tokens), 32):
        chunk = tokens[start : start + 32]
        context.add(chunk, position=start, n_outputs=1)
        context.decode()
    return context.logits(len(chunk) - 1).copy()


def test_rows_of_one_batch_equal_single_decodes(context: Context):
    context.add(TOKENS[:10], position=0, n_outputs=4)
    context.decode()
    rows = [context.logits(row).copy() for row in range(6, 10)]
    for n, row in zip(range(7, 11), rows, strict=True):
        np.testing.assert_allclose(row, logits_after(context, TOKENS[:n]), atol=1e-4)


def test_rollback_forgets_what_was_decoded_after(context: Context):
    expected = logits_after(context, TOKENS[:21])
    context.clear()
    context.add(TOKENS[:20], position=0)
    context.decode()
    context.add([1, 2, 3, 4], position=20, n_outputs=4)
    context.decode()
    assert context.n_past() == 24
    assert context.rollback(20)
    assert context.n_past() == 20
    context.add(TOKENS[20:21], position=20, n_outputs=1)
    context.decode()
    np.testing.assert_allclose(context.logits(0), expected, atol=1e-4)


def test_sequences_of_one_batch_do_not_see_each_other(target: Model):
    with Context(target, n_ctx=256, n_outputs_max=16, n_seq_max=2) as context:
        first = context.add(TOKENS[:8], position=0, seq_id=0, n_outputs=1)
        second = context.add(TOKENS[20:30], position=0, seq_id=1, n_outputs=1)
        context.decode()
        rows = context.logits(first + 7).copy(), context.logits(second + 9).copy()
        context.clear_all()
        for tokens, row in ((TOKENS[:8], rows[0]), (TOKENS[20:30], rows[1])):
            np.testing.assert_allclose(logits_after(context, tokens), row, atol=1e-4)


def test_a_dense_model_takes_back_any_number_of_tokens(context: Context):
    assert context.probe_rollback() is None
    assert context.n_past() == 0


def test_a_full_cache_names_its_size(context: Context):
    for start in range(0, 256, 32):
        context.add([7] * 32, position=start)
        context.decode()
    context.add([7], position=256)
    with pytest.raises(DoesNotFitError, match="256"):
        context.decode()
    assert context.n_past() == 256


def test_a_batch_that_is_too_large_is_refused_before_native_code_sees_it(context: Context):
    with pytest.raises(EngineError, match="33"):
        context.add([1] * 33, position=0)
    assert context.n_pending == 0


def test_rows_without_output_have_no_logits(context: Context):
    context.add(TOKENS[:4], position=0, n_outputs=1)
    context.decode()
    with pytest.raises(EngineError, match="Row 1"):
        context.logits(1)


def test_native_time_is_counted(context: Context):
    before = context.native_s
    context.add(TOKENS[:4], position=0)
    context.decode()
    assert context.native_s > before


def test_closing_twice_is_safe(target: Model):
    context = Context(target, n_ctx=64, n_outputs_max=1)
    context.close()
    context.close()


class TestSequenceCache:
    def test_keeps_the_common_prefix_and_mirrors_the_cache(self, context: Context):
        cache = SequenceCache(context, 0)
        cache.feed(TOKENS[:20], n_outputs=0)
        cache.keep_common_prefix([*TOKENS[:12], 0, 0, 0])
        assert cache.tokens == TOKENS[:12]
        assert context.n_past() == 12

    def test_the_last_token_of_a_known_history_is_decoded_again(self, context: Context):
        cache = SequenceCache(context, 0)
        cache.feed(TOKENS[:20], n_outputs=0)
        cache.keep_common_prefix(TOKENS[:20])
        assert cache.n_past == 19

    def test_a_failed_feed_leaves_an_empty_cache(self, context: Context):
        cache = SequenceCache(context, 0)
        cache.feed(TOKENS[:20], n_outputs=0)
        with pytest.raises(EngineError):
            cache.feed([1] * 33, n_outputs=0)
        assert cache.tokens == []
        assert context.n_past() == 0
        assert context.n_pending == 0
