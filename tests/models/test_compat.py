import pickle
import time
from pathlib import Path

import pytest

from localspec.errors import IncompatiblePairError, ModelFileError
from localspec.models.compat import MAX_SIZE_DIFFERENCE, Verdict, judge_pair, require_compatible
from localspec.models.generative import refuse_unless_generative
from localspec.models.gguf import read_header
from localspec.models.vocabulary import read_vocabulary
from tests.models.gguf_bytes import flag, name, number
from tests.models.small_models import TOKENS, model
from tests.models.vocabularies import VOCABULARIES, relation
from tests.tiny_models import write_tiny_model

BOS = "tokenizer.ggml.bos_token_id"
EOS = "tokenizer.ggml.eos_token_id"
ADD_BOS = "tokenizer.ggml.add_bos_token"
ADD_EOS = "tokenizer.ggml.add_eos_token"
PRE = "tokenizer.ggml.pre"


# --- pairs ------------------------------------------------------------------------------------------------------------


def test_real_vocabularies_that_differ_in_padding_are_compatible() -> None:
    spm, phi = (read_header(VOCABULARIES[stem]) for stem in ("llama-spm", "phi-3"))
    for target, draft in ((spm, phi), (phi, spm)):
        verdict = judge_pair(target, draft)
        assert verdict.verdict is Verdict.COMPATIBLE
        assert [reason.rule for reason in verdict.reasons] == ["vocabulary size", "end token"]
        require_compatible(target, draft)
    assert (verdict.reasons[0].target_value, verdict.reasons[0].draft_value) == ("32,064", "32,000")
    assert judge_pair(spm, spm).verdict is Verdict.IDENTICAL


def test_written_models_with_padding_are_compatible(tmp_path: Path) -> None:
    target = read_header(write_tiny_model(tmp_path / "t.gguf"))
    for extra, verdict in ((0, Verdict.IDENTICAL), (128, Verdict.COMPATIBLE), (129, Verdict.REFUSED)):
        draft = read_header(write_tiny_model(tmp_path / f"d{extra}.gguf", extra_tokens=extra, seed=2))
        assert judge_pair(target, draft).verdict is verdict
        refuse_unless_generative(draft)


@pytest.mark.parametrize(
    ("target", "draft", "rule", "target_value", "draft_value"),
    [
        ({"tokenizer": "t5"}, {"extra": [flag(ADD_EOS, True), number(EOS, 1)]}, "vocabulary type", "Unigram", "BPE"),
        ({"tokenizer": "new"}, {"tokenizer": "newer"}, "vocabulary type", "'new'", "'newer'"),
        ({}, {"tokens": TOKENS[: -MAX_SIZE_DIFFERENCE - 1]}, "vocabulary size", "305", "176"),
        ({}, {"tokens": [*TOKENS[:200], "other", *TOKENS[201:]]}, "token text", "'token 195'", "'other'"),
        ({}, {"tokens": [*TOKENS[:5], "other", *TOKENS[6:]]}, "token text", "'token 0'", "'other'"),
        ({}, {"tokens": [*TOKENS[:299], "other"]}, "token text", "'token 294'", "'other'"),
        ({"extra": [flag(ADD_BOS, True)]}, {"extra": [flag(ADD_BOS, False)]}, "start token", "'token 6' (11)", "none"),
        (
            {"extra": [flag(ADD_BOS, True), number(BOS, 1)]},
            {"extra": [flag(ADD_BOS, True), number(BOS, 3)]},
            "start token",
            "'<s>' (1)",
            "'<pad>' (3)",
        ),
        ({"extra": [flag(ADD_EOS, True), number(EOS, 2)]}, {}, "end token", "'</s>' (2)", "none"),
        (
            {"extra": [name(PRE, "llama-bpe"), number(BOS, 1)]},
            {"extra": [name(PRE, "qwen2")]},
            "start token",
            "'<s>' (1)",
            "none",
        ),
        ({"tokenizer": None}, {}, "vocabulary", "missing", "present"),
        ({}, {"tokens": None}, "vocabulary", "present", "missing"),
    ],
)
def test_each_rule_names_itself_and_both_values(
    tmp_path: Path, target: dict, draft: dict, rule: str, target_value: str, draft_value: str
) -> None:
    ours, theirs = (
        model(tmp_path, *given.get("extra", ()), **{key: value for key, value in given.items() if key != "extra"})
        for given in (target, draft)
    )
    for first, second, values in (
        (ours, theirs, (target_value, draft_value)),
        (theirs, ours, (draft_value, target_value)),
    ):
        verdict = judge_pair(first, second)
        assert verdict.verdict is Verdict.REFUSED
        assert [(each.rule, (each.target_value, each.draft_value)) for each in verdict.reasons] == [(rule, values)]
        with pytest.raises(IncompatiblePairError) as caught:
            require_compatible(first, second)
        error = pickle.loads(pickle.dumps(caught.value))
        assert (error.rule, error.target_value, error.draft_value) == (rule, *values)
        assert error.hint
        if rule != "vocabulary":
            assert f"(target {values[0]}, draft {values[1]})" in error.message


def test_every_failed_rule_is_a_reason(tmp_path: Path) -> None:
    ours = model(tmp_path, flag(ADD_BOS, True), tokenizer="llama")
    theirs = model(tmp_path, flag(ADD_BOS, False), flag(ADD_EOS, True), tokens=TOKENS[:100])
    rules = [reason.rule for reason in judge_pair(ours, theirs).reasons]
    assert rules == ["vocabulary type", "start token", "end token", "vocabulary size"]


@pytest.mark.parametrize(
    ("draft_tokens", "extra", "rules"),
    [
        (TOKENS, [], []),
        (TOKENS, [name(PRE, "other")], []),
        (TOKENS + ["<pad 1>"] * MAX_SIZE_DIFFERENCE, [], ["vocabulary size"]),
        (["renamed", *TOKENS[1:4], "too", *TOKENS[5:]], [], ["token text"]),
        (TOKENS, [number(BOS, 1), number(EOS, 4)], ["start token", "end token"]),
    ],
)
def test_differences_that_do_no_harm(
    tmp_path: Path, draft_tokens: list[str], extra: list[bytes], rules: list[str]
) -> None:
    verdict = judge_pair(model(tmp_path), model(tmp_path, *extra, tokens=draft_tokens))
    assert verdict.verdict is (Verdict.COMPATIBLE if rules else Verdict.IDENTICAL)
    assert [reason.rule for reason in verdict.reasons] == rules


def test_token_texts_are_compared_as_bytes_and_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    ours = model(tmp_path, tokens=[*TOKENS, b"\xff\x1b[2J"])
    theirs = model(tmp_path, tokens=[*TOKENS, b"\xfe\x1b[2J" + b"x" * 10_000])
    with pytest.raises(IncompatiblePairError, match="token 305") as caught:
        require_compatible(ours, theirs)
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 400


def test_large_vocabularies_are_compared_in_no_time(tmp_path: Path) -> None:
    tokens = [f"token {number}" for number in range(150_000)]
    ours = model(tmp_path, tokens=tokens)
    theirs = model(tmp_path, tokens=[*tokens[:-1], "the last one"])
    started = time.process_time()
    assert judge_pair(ours, ours).verdict is Verdict.IDENTICAL
    assert judge_pair(ours, theirs).reasons[0].text.startswith("token 149999 ")
    assert time.process_time() - started < 0.5


def test_wrong_types_in_a_tokenizer_are_a_damaged_file(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=ADD_BOS):
        judge_pair(model(tmp_path), model(tmp_path, number(ADD_BOS, 1)))


@pytest.mark.parametrize("target", VOCABULARIES)
@pytest.mark.parametrize("draft", VOCABULARIES)
def test_every_two_real_vocabularies_are_judged_right(target: str, draft: str) -> None:
    verdict = judge_pair(read_header(VOCABULARIES[target]), read_header(VOCABULARIES[draft]))
    assert verdict.verdict is relation(target, draft)
    assert (verdict.reasons == ()) == (verdict.verdict is Verdict.IDENTICAL)
    if verdict.verdict is Verdict.REFUSED:
        assert all(reason.target_value != reason.draft_value and reason.hint for reason in verdict.reasons)


def test_special_tokens_that_are_none_count_as_not_given(tmp_path: Path) -> None:
    """As llama.cpp reads them: the default of the type stands, where that is a token."""
    far = model(tmp_path, number(BOS, 10**6), number(EOS, len(TOKENS)), flag(ADD_BOS, True))
    plain = model(tmp_path, flag(ADD_BOS, True))
    assert judge_pair(far, plain).verdict is Verdict.IDENTICAL
    few = read_vocabulary(model(tmp_path, flag(ADD_BOS, True), tokens=TOKENS[:8]))
    assert few is not None
    assert (few.bos, few.eos, few.shown(few.add_bos, few.bos)) == (None, None, "none")


@pytest.mark.parametrize("extra", [{"tokenizer": "gemma4"}, {"entries": [name(PRE, "gemma4")]}])
def test_gemma_4_has_a_start_token_whatever_its_file_says(tmp_path: Path, extra: dict) -> None:
    entries = [*extra.pop("entries", ()), flag(ADD_BOS, False)]
    found = read_vocabulary(model(tmp_path, *entries, **extra))
    assert found is not None
    assert found.add_bos


def test_token_texts_of_megabytes_stay_out_of_messages(tmp_path: Path) -> None:
    ours, theirs = (model(tmp_path, tokens=[*TOKENS, letter * 2_000_000]) for letter in "ab")
    (reason,) = judge_pair(ours, theirs).reasons
    assert len(reason.target_value) < 300


@pytest.mark.native
def test_vocabularies_are_read_as_llama_cpp_reads_them(tmp_path: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    kinds = {1: "SentencePiece", 2: "BPE", 3: "WordPiece", 4: "Unigram"}
    paths = [*VOCABULARIES.values(), write_tiny_model(tmp_path / "tiny.gguf")]
    for path in paths:
        parameters = llama_cpp.llama_model_default_params()
        parameters.vocab_only = True
        handle = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        try:
            vocab = llama_cpp.llama_model_get_vocab(handle)
            ours = read_vocabulary(read_header(path))
            assert ours is not None
            assert ours.kind == kinds[llama_cpp.llama_vocab_type(vocab)]
            none = -1
            assert (ours.add_bos, none if ours.bos is None else ours.bos) == (
                llama_cpp.llama_vocab_get_add_bos(vocab),
                llama_cpp.llama_vocab_bos(vocab),
            )
            assert (ours.add_eos, none if ours.eos is None else ours.eos) == (
                llama_cpp.llama_vocab_get_add_eos(vocab),
                llama_cpp.llama_vocab_eos(vocab),
            )
            assert len(ours.tokens) == llama_cpp.llama_vocab_n_tokens(vocab)
        finally:
            llama_cpp.llama_model_free(handle)
