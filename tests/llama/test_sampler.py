"""The sampler chain: its distributions equal llama.cpp's rules worked out by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import numpy as np
import pytest

from localspec.errors import EngineError, UsageError
from localspec.llama.model import Model
from localspec.llama.sampler import SamplerChain
from localspec.llama.sampling_params import SamplingParams
from tests.tiny_models import write_tiny_model

pytestmark = pytest.mark.native

OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def chain(model: Model, seed: int = 1, **params: object) -> SamplerChain:
    return SamplerChain(model, SamplingParams(**{**OFF, **params}), n_ctx=256, seed=seed)


@pytest.fixture
def logits(target: Model) -> np.ndarray:
    return np.random.default_rng(3).normal(0, 3, target.n_vocab).astype(np.float32)


def softmax(values: np.ndarray) -> np.ndarray:
    exps = np.exp(values.astype(np.float64) - values.max())
    return exps / exps.sum()


def dense(distribution, n: int) -> np.ndarray:
    full = np.zeros(n)
    full[distribution.ids] = distribution.probs
    return full


def test_no_transform_is_the_softmax(target: Model, logits: np.ndarray):
    with chain(target) as sampler:
        np.testing.assert_allclose(dense(sampler.distribution(logits), target.n_vocab), softmax(logits), atol=1e-6)


@pytest.mark.parametrize("temperature", [0.25, 0.8, 1.7])
def test_temperature_divides_logits(target: Model, logits: np.ndarray, temperature: float):
    with chain(target, temperature=temperature) as sampler:
        expected = softmax(logits / temperature)
        np.testing.assert_allclose(dense(sampler.distribution(logits), target.n_vocab), expected, atol=1e-5)


def test_top_k_keeps_the_k_largest(target: Model, logits: np.ndarray):
    with chain(target, top_k=7) as sampler:
        distribution = sampler.distribution(logits)
    assert list(distribution.ids) == list(np.argsort(-logits)[:7])


def test_top_p_keeps_the_smallest_set_that_reaches_p(target: Model, logits: np.ndarray):
    with chain(target, top_p=0.8) as sampler:
        kept = sampler.distribution(logits)
    mass = np.cumsum(np.sort(softmax(logits))[::-1])
    assert len(kept.ids) == int(np.searchsorted(mass, 0.8)) + 1


def test_min_p_is_relative_to_the_largest(target: Model, logits: np.ndarray):
    with chain(target, min_p=0.1) as sampler:
        kept = sampler.distribution(logits)
    probs = softmax(logits)
    assert set(kept.ids) == set(np.flatnonzero(probs >= 0.1 * probs.max()))


def test_truncation_comes_before_temperature(target: Model, logits: np.ndarray):
    """llama.cpp's order: a high temperature does not widen the nucleus."""
    with chain(target, top_p=0.8) as cold, chain(target, top_p=0.8, temperature=5.0) as hot:
        assert set(cold.distribution(logits).ids) == set(hot.distribution(logits).ids)


@pytest.mark.parametrize("params", [{}, {"top_k": 5}, {"logit_bias": ((9, 50.0),)}, {"typical_p": 0.5}])
def test_greedy_is_one_hot_at_the_largest_logit(target: Model, logits: np.ndarray, params: dict):
    with chain(target, temperature=0.0, **params) as sampler:
        distribution = sampler.distribution(logits)
    assert distribution.is_one_hot
    if "typical_p" not in params:
        assert distribution.top == (9 if "logit_bias" in params else int(logits.argmax()))


def test_logit_bias_shifts_and_bans(target: Model, logits: np.ndarray):
    with chain(target, logit_bias=((3, 2.0), (5, -math.inf))) as sampler:
        shifted = logits.copy()
        shifted[3] += 2.0
        shifted[5] = -np.inf
        np.testing.assert_allclose(dense(sampler.distribution(logits), target.n_vocab), softmax(shifted), atol=1e-6)


def test_logit_bias_of_a_token_that_does_not_exist(target: Model):
    with pytest.raises(UsageError, match="99999"):
        chain(target, logit_bias=((99_999, 1.0),))


def test_presence_and_frequency_penalties_follow_accepted_tokens(target: Model, logits: np.ndarray):
    with chain(target, presence_penalty=0.5, frequency_penalty=0.25) as sampler:
        assert sampler.has_state
        sampler.accept_prompt([4])
        sampler.accept(4)
        sampler.accept(6)
        expected = logits.copy()
        expected[4] -= 0.5 + 2 * 0.25
        expected[6] -= 0.5 + 1 * 0.25
        np.testing.assert_allclose(dense(sampler.distribution(logits), target.n_vocab), softmax(expected), atol=1e-5)


def test_penalties_forget_what_is_further_back_than_last_n(target: Model, logits: np.ndarray):
    with chain(target, presence_penalty=2.0, repeat_last_n=2) as sampler:
        for token in (4, 6, 7):
            sampler.accept(token)
        expected = logits.copy()
        expected[[6, 7]] -= 2.0
        np.testing.assert_allclose(dense(sampler.distribution(logits), target.n_vocab), softmax(expected), atol=1e-5)


@pytest.mark.parametrize(
    "params",
    [
        {"repeat_penalty": 1.3},
        {"dry_multiplier": 0.8},
        {"grammar": 'root ::= ("a" | "b" | "c")+'},
        {"grammar": 'root ::= ("a" | "b" | "c")+', "frequency_penalty": 0.7},
        {"top_k": 5, "presence_penalty": -9.0},  # what was said comes back
    ],
)
def test_a_copied_state_goes_on_exactly_like_the_original(target: Model, logits: np.ndarray, params: dict):
    """What a draft accepted is undone by copying the committed state over it."""
    with chain(target, **params) as committed, chain(target, **params) as ahead:
        for token in b"abcabc":
            committed.accept(token)
        expected = dense(committed.distribution(logits), target.n_vocab)
        for _ in range(3):
            ahead.copy_state_from(committed)
            np.testing.assert_allclose(dense(ahead.distribution(logits), target.n_vocab), expected)
            for token in b"cab":
                ahead.accept(token)
        np.testing.assert_allclose(dense(committed.distribution(logits), target.n_vocab), expected)


@pytest.mark.parametrize("params", [{"typical_p": 0.2}, {"xtc_probability": 1.0}, {"top_k": 300}, {"min_p": 0.01}])
def test_a_banned_token_changes_nothing_for_the_others(target: Model, logits: np.ndarray, params: dict):
    """Minus infinity must not reach samplers that reckon with it."""
    least = int(logits.argmin())
    with chain(target, **params) as free, chain(target, **params, logit_bias=((least, -math.inf),)) as banned:
        # The least likely token is as good as banned already.
        assert set(free.distribution(logits).ids) - {least} == set(banned.distribution(logits).ids)


class TestGrammar:
    def test_allows_only_what_it_says(self, target: Model, logits: np.ndarray):
        with chain(target, grammar='root ::= "x" [0-9]') as sampler:
            assert list(sampler.distribution(logits).ids) == [ord("x")]
            sampler.accept(ord("x"))
            assert set(sampler.distribution(logits).ids) <= set(b"0123456789")
            sampler.accept(ord("7"))
            assert list(sampler.distribution(logits).ids) == [target.eos]

    def test_the_prompt_is_not_part_of_it(self, target: Model, logits: np.ndarray):
        with chain(target, grammar='root ::= "x"', repeat_penalty=1.1) as sampler:
            sampler.accept_prompt(list(b"anything at all"))
            assert list(sampler.distribution(logits).ids) == [ord("x")]

    def test_truncation_happens_among_the_allowed(self, target: Model, logits: np.ndarray):
        with chain(target, grammar="root ::= [a-z]", top_k=3) as sampler:
            allowed = np.arange(ord("a"), ord("z") + 1)
            expected = allowed[np.argsort(-logits[allowed])[:3]]
            assert list(sampler.distribution(logits).ids) == list(expected)

    @pytest.mark.parametrize(
        ("source", "words"),
        [
            ('root ::= "a', "unexpected end"),
            ("root ::= other", "other"),
            ('root ::= root "a"', "left recursion"),
            ('start ::= "a"', "root"),
            ("   ", "empty"),
            pytest.param("x" * 2_000_000, "2000000", id="too large"),
        ],
    )
    def test_a_wrong_one_is_refused_with_the_reason(self, target: Model, source: str, words: str):
        with pytest.raises(UsageError, match=words):
            chain(target, grammar=source)

    def test_a_dead_end_ends_the_reply_with_an_error(self, target: Model, logits: np.ndarray):
        # The only continuation is a character whose bytes cannot come: token 0 is refused by grammars.
        with chain(target, grammar='root ::= "x" "\\x00"') as sampler:
            sampler.accept(ord("x"))
            with pytest.raises(EngineError, match="allows no token"):
                sampler.distribution(logits)


class TestJsonSchema:
    def test_limits_tokens(self, target: Model, logits: np.ndarray):
        schema = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
        with chain(target, json_schema=schema) as sampler:
            assert list(sampler.distribution(logits).ids) == [ord("{")]

    @pytest.mark.parametrize(
        "schema", ["{", "[]", '"text"', '{"$ref": "http://example.com/x"}', pytest.param("[" * 100_000, id="deep")]
    )
    def test_a_wrong_one_is_refused(self, target: Model, schema: str):
        with pytest.raises(UsageError, match="JSON schema"):
            chain(target, json_schema=schema)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [slice(None), slice(40, 41)])
@pytest.mark.parametrize("params", [{}, {"top_k": 2}, {"top_k": 40}, {"temperature": 0.0}, {"repeat_penalty": 1.1}])
def test_logits_that_are_not_numbers_are_an_error_not_a_crash(
    target: Model, logits: np.ndarray, value: float, where: slice, params: dict
):
    logits[where] = value
    with chain(target, **params) as sampler:
        if value == -np.inf and where != slice(None):
            assert sampler.distribution(logits).probability(40) == 0.0  # a token that cannot come is no fault
        else:
            with pytest.raises(EngineError, match="cannot be sampled"):
                sampler.distribution(logits)


def kinds_of_rows(n_vocab: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    smooth = rng.normal(0, 3, n_vocab).astype(np.float32)
    peaked = smooth.copy()
    peaked[rng.integers(0, n_vocab, 4)] += 12
    leader, duel, threshold = smooth.copy(), smooth.copy(), smooth.copy()
    leader[7] = duel[7] = threshold[7] = 40.0
    duel[12] = 40.0 - 2.99  # with min_p 0.05 the second may be log(20) = 2.9957 behind
    threshold[12] = 40.0 - 2.9958
    crowd = smooth / 10 - 5  # together, those far behind outweigh the first
    crowd[7], crowd[ord("a")], crowd[200:240] = 8.0, 2.5, np.linspace(4.8, 4.9, 40)
    few = np.full(n_vocab, -np.inf, np.float32)
    possible = [2, 5, 9, ord("c"), ord("q"), 1_200]
    few[possible] = smooth[possible]
    return {
        "smooth": smooth,
        "peaked": peaked,
        "leader": leader,
        "duel": duel,
        "threshold": threshold,
        "crowd": crowd,
        "ties": rng.integers(0, 4, n_vocab).astype(np.float32),
        "all equal": np.full(n_vocab, 0.25, np.float32),
        "few possible": few,
    }


class TestTheWholeVocabulary:
    """Only tokens that can pass the chain are handed to it; the law is the one of a chain that gets them all."""

    MEMORYLESS = (
        {"top_k": 1},
        {"top_k": 7, "top_p": 0.9},
        {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "temperature": 0.8},
        {"top_k": 200, "typical_p": 0.7},
        {"top_k": 40, "typical_p": 0.5, "min_p": 0.05},
        {"top_k": 40, "xtc_probability": 1.0},
        {"top_k": 40, "dynatemp_range": 0.5},
        {"min_p": 0.1},
        {"min_p": 1.0},
        {"min_p": 0.02, "xtc_probability": 1.0, "temperature": 1.5},
        {"min_p": 0.1, "top_p": 0.9},
        {"top_n_sigma": 1.0, "top_k": 40},
        {"typical_p": 0.5},
        {"top_k": 40, "logit_bias": ((3, 9.0), (4, -math.inf), (3, 1.0))},
        {"temperature": 0.0, "typical_p": 0.6},
    )
    STATEFUL = (
        {"top_k": 40, "repeat_penalty": 1.5},
        {"top_k": 7, "presence_penalty": -4.0, "frequency_penalty": 1.0},
        {"top_k": 3, "presence_penalty": 30.0, "repeat_last_n": 2},
        {"top_k": 40, "repeat_penalty": 1.5, "repeat_last_n": 0},
        {"min_p": 0.1, "presence_penalty": 2.0},
        {"top_k": 40, "top_p": 0.5, "min_p": 0.05, "presence_penalty": 1.0},
        {"top_k": 40, "dry_multiplier": 3.0, "dry_allowed_length": 1},
        {"top_k": 40, "presence_penalty": 1.0, "logit_bias": ((3, 9.0), (4, -math.inf))},
        {"top_p": 0.9, "presence_penalty": 2.0},
        {"top_n_sigma": 1.0, "presence_penalty": 2.0},
    )
    RESTRICTED = (
        {"top_k": 5, "grammar": "root ::= [a-z]+"},
        {"top_k": 40, "grammar": "root ::= [a-z]+", "presence_penalty": -3.0},
        {"min_p": 0.1, "grammar": "root ::= [a-z]+"},
        {"grammar": "root ::= [^0-9]+"},
    )

    @pytest.fixture(scope="class")
    def wide(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
        """A vocabulary of 2,859: stacks of four, the last one with a gap."""
        path = write_tiny_model(tmp_path_factory.mktemp("wide") / "wide.gguf", extra_tokens=2_600)
        with Model(path) as model:
            yield model

    def assert_equal_laws(self, model: Model, n_vocab: int | None, params: dict, said: bytes = b"") -> None:
        sampling = SamplingParams(**{**OFF, **params})
        for kind, row in kinds_of_rows(model.n_vocab).items():
            row[list(said)] += 5  # what was said counts
            with (
                SamplerChain(model, sampling, n_ctx=64, seed=1, n_vocab=n_vocab) as short,
                SamplerChain(model, sampling, n_ctx=64, seed=1, n_vocab=n_vocab) as whole,
            ):
                whole._n_reached = 0
                for token in said:
                    short.accept(token)
                    whole.accept(token)
                for _ in range(2):  # nothing of a row is left behind
                    one, other = short.distribution(row.copy()), whole.distribution(row.copy())
                    if kind in {"ties", "all equal"}:  # which of equals comes through is no part of the law
                        np.testing.assert_allclose(np.sort(one.probs), np.sort(other.probs), rtol=1e-6)
                    else:
                        assert dict(zip(one.ids.tolist(), one.probs, strict=True)) == pytest.approx(
                            dict(zip(other.ids.tolist(), other.probs, strict=True)), rel=1e-6
                        )

    @pytest.mark.parametrize("params", MEMORYLESS, ids=str)
    @pytest.mark.parametrize("n_vocab", [None, 2_048, 300, 60, 13])
    def test_of_a_row_alone(self, wide: Model, n_vocab: int | None, params: dict):
        self.assert_equal_laws(wide, n_vocab, params)

    @pytest.mark.parametrize("params", STATEFUL, ids=str)
    @pytest.mark.parametrize("n_vocab", [None, 2_048, 300])
    @pytest.mark.parametrize("temperature", [0.0, 0.8])
    def test_after_some_text(self, wide: Model, n_vocab: int | None, params: dict, temperature: float):
        self.assert_equal_laws(wide, n_vocab, {**params, "temperature": temperature}, said=b"abcab xyz xyz x")

    @pytest.mark.parametrize("params", RESTRICTED, ids=str)
    @pytest.mark.parametrize("n_vocab", [None, 300])
    @pytest.mark.parametrize("temperature", [0.0, 0.8])
    def test_under_a_grammar(self, wide: Model, n_vocab: int | None, params: dict, temperature: float):
        self.assert_equal_laws(wide, n_vocab, {**params, "temperature": temperature}, said=b"abcabc")

    def test_tokens_that_a_smaller_vocabulary_lacks_may_have_been_said(self, wide: Model):
        with SamplerChain(
            wide, SamplingParams(presence_penalty=1.0, top_k=3), n_ctx=64, seed=1, n_vocab=300
        ) as sampler:
            sampler.accept(2_000)
            assert max(sampler.distribution(kinds_of_rows(wide.n_vocab)["smooth"]).ids) < 300

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_what_is_not_a_number_is_noticed_among_the_penalized(self, wide: Model, value: float):
        row = kinds_of_rows(wide.n_vocab)["smooth"]
        row[40] = value
        with chain(wide, top_k=3, presence_penalty=1.0) as sampler:
            sampler.accept(40)
            with pytest.raises(EngineError, match="cannot be sampled"):
                sampler.distribution(row)

    @pytest.mark.parametrize("params", [{"top_k": 3}, {"temperature": 0.0}])
    def test_the_only_allowed_token_may_be_the_least_likely(self, wide: Model, params: dict):
        row = kinds_of_rows(wide.n_vocab)["smooth"]
        row[ord("x")] = row.min() - 50
        with chain(wide, grammar='root ::= "x" "y"', presence_penalty=-1.0, **params) as sampler:
            assert sampler.distribution(row).ids.tolist() == [ord("x")]
            sampler.accept(ord("x"))
            assert sampler.distribution(row).ids.tolist() == [ord("y")]

    @pytest.mark.parametrize("n_vocab", [None, 2_048, 259])
    def test_of_equals_greedy_decoding_takes_the_first(self, wide: Model, n_vocab: int | None):
        sampling = SamplingParams(temperature=0.0)
        for row in kinds_of_rows(wide.n_vocab).values():
            with SamplerChain(wide, sampling, n_ctx=64, seed=1, n_vocab=n_vocab) as sampler:
                distribution = sampler.distribution(row)
            assert distribution.is_one_hot
            assert distribution.top == int(row[:n_vocab].argmax())

    def test_the_row_is_left_as_it_was(self, wide: Model):
        row = kinds_of_rows(wide.n_vocab)["smooth"]
        before = row.copy()
        params = {"top_k": 5, "presence_penalty": 1.0, "logit_bias": ((2, 1.0),), "grammar": 'root ::= "x"'}
        with chain(wide, **params) as sampler:
            sampler.accept_prompt([3, 4])
            sampler.distribution(row)
            sampler.confidence(row)
        np.testing.assert_array_equal(row, before)


@pytest.mark.parametrize(
    ("params", "has_state", "is_memoryless"),
    [
        ({}, False, True),
        ({"temperature": 0.0}, False, True),
        ({"top_k": 40, "typical_p": 0.9, "dynatemp_range": 0.5, "logit_bias": ((1, 1.0),)}, False, True),
        ({"xtc_probability": 0.5}, False, False),
        ({"repeat_penalty": 1.1}, True, False),
        ({"dry_multiplier": 0.8}, True, False),
        ({"grammar": 'root ::= "x"'}, True, False),
    ],
)
def test_what_the_distribution_depends_on(target: Model, params: dict, has_state: bool, is_memoryless: bool):
    with chain(target, **params) as sampler:
        assert (sampler.has_state, sampler.is_memoryless) == (has_state, is_memoryless)


def test_confidence_is_the_top_probability_at_temperature_1(target: Model, logits: np.ndarray):
    # At 259 tokens each is a stack of its own, so the estimate is exact.
    for params in ({}, {"temperature": 0.0}, {"temperature": 5.0, "top_k": 3, "repeat_penalty": 1.3}):
        with chain(target, **params) as sampler:
            sampler.accept(int(logits.argmax()))
            assert sampler.confidence(logits) == pytest.approx(softmax(logits).max(), rel=1e-5)
    top = int(logits.argmax())
    with chain(target, temperature=0.0, logit_bias=((top, -math.inf),)) as banned:
        others = softmax(np.delete(logits, top))
        assert banned.confidence(logits) == pytest.approx(others.max(), rel=1e-5)


def test_every_transform_together_leaves_a_distribution(target: Model, logits: np.ndarray):
    with SamplerChain(
        target,
        SamplingParams(
            repeat_penalty=1.2,
            frequency_penalty=0.1,
            presence_penalty=0.1,
            dry_multiplier=0.8,
            top_n_sigma=2.0,
            typical_p=0.95,
            xtc_probability=0.5,
            dynatemp_range=0.3,
            logit_bias=((1, 1.0),),
            grammar="root ::= .+",
        ),
        n_ctx=256,
        seed=7,
    ) as sampler:
        for token in b"some text some text":
            distribution = sampler.distribution(logits)
            assert distribution.probs.sum() == pytest.approx(1.0)
            sampler.accept(token)


def test_xtc_flips_its_own_coin_each_time(target: Model, logits: np.ndarray):
    with chain(target, xtc_probability=0.5, xtc_threshold=0.05) as sampler:
        tops = {sampler.distribution(logits).top for _ in range(40)}
    assert len(tops) == 2
