import pickle
import time
from pathlib import Path

import pytest

from localspec.errors import IncompatiblePairError, ModelFileError, UnsupportedModelError
from localspec.models.compat import (
    MAX_SIZE_DIFFERENCE,
    Verdict,
    judge_pair,
    refuse_unless_generative,
    require_compatible,
)
from localspec.models.gguf import read_header
from localspec.models.header import GgufHeader
from tests.models.gguf_bytes import BOOL, STRING, U32, entry, gguf, strings, tensor, text, write
from tests.tiny_models import write_tiny_model

VOCABULARIES = Path(__file__).parents[1] / "data" / "vocab"
TOKENS = ["<unk>", "<s>", "</s>", "<pad>", "<x>", *(f"token {number}" for number in range(300))]


def flag(key: str, value: bool) -> bytes:
    return entry(key, BOOL, bytes([value]))


def number(key: str, value: int) -> bytes:
    return entry(key, U32, value.to_bytes(4, "little"))


def name(key: str, value: str) -> bytes:
    return entry(key, STRING, text(value))


def model(
    tmp_path: Path,
    *entries: bytes,
    architecture: str | None = "llama",
    tokenizer: str | None = "gpt2",
    tokens: list[str] | None = TOKENS,
    tensors: bool = True,
) -> GgufHeader:
    entries = list(entries)
    if architecture is not None:
        entries.append(name("general.architecture", architecture))
    if tokenizer is not None:
        entries.append(name("tokenizer.ggml.model", tokenizer))
    if tokens is not None:
        entries.append(strings("tokenizer.ggml.tokens", list(tokens)))
    raw = gguf(entries, [tensor("x", (8,))], b"\0" * 32) if tensors else gguf(entries)
    return read_header(write(tmp_path / f"{len(list(tmp_path.iterdir()))}.gguf", raw))


BOS = "tokenizer.ggml.bos_token_id"
EOS = "tokenizer.ggml.eos_token_id"
ADD_BOS = "tokenizer.ggml.add_bos_token"
ADD_EOS = "tokenizer.ggml.add_eos_token"
PRE = "tokenizer.ggml.pre"


# --- pairs ------------------------------------------------------------------------------------------------------------


def test_real_vocabularies_that_differ_in_padding_are_compatible() -> None:
    spm = read_header(VOCABULARIES / "ggml-vocab-llama-spm.gguf")
    phi = read_header(VOCABULARIES / "ggml-vocab-phi-3.gguf")
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


# --- models that write text -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("architecture", "words"),
    [
        ("bert", "embedding model"),
        ("nomic-bert", "embedding model"),
        ("jina-bert-v2", "embedding model"),
        ("gemma-embedding", "embedding model"),
        ("t5encoder", "embedding model"),
        ("t5", "encoder-decoder"),
        ("clip", "image encoder"),
        ("eagle3", "draft head"),
        ("llada", "diffusion"),
        ("wavtokenizer-dec", "speech"),
        (None, "names no architecture"),
    ],
)
def test_architectures_that_do_not_write(tmp_path: Path, architecture: str | None, words: str) -> None:
    header = model(tmp_path, architecture=architecture)
    with pytest.raises(UnsupportedModelError, match=words) as caught:
        refuse_unless_generative(header)
    assert caught.value.message.startswith(f"{header.path} ")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("extra", "options", "words"),
    [
        ([flag("llama.attention.causal", False)], {}, "embedding model"),
        ([number("llama.pooling_type", 3)], {}, "embedding model"),
        ([name("general.type", "adapter")], {}, "LoRA adapter"),
        ([name("general.type", "imatrix")], {"architecture": None}, "importance matrix"),
        ([name("general.type", "mmproj")], {}, "image encoder"),
        ([number("split.no", 2), number("split.count", 5)], {"architecture": None, "tokens": None}, "part 3 of 5"),
        ([], {"tensors": False}, "vocabulary only"),
        ([], {"tokens": None}, "no tokenizer"),
        ([], {"tokenizer": None}, "no tokenizer"),
        ([], {"tokens": []}, "no tokenizer"),
    ],
)
def test_files_that_hold_no_writer(tmp_path: Path, extra: list[bytes], options: dict, words: str) -> None:
    with pytest.raises(UnsupportedModelError, match=words) as caught:
        refuse_unless_generative(model(tmp_path, *extra, **options))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("extra", "options"),
    [
        ([], {"architecture": "never-heard-of"}),
        ([number("llama.pooling_type", 0), flag("llama.attention.causal", True), name("general.type", "model")], {}),
        ([number("split.no", 0), number("split.count", 3)], {"tensors": False}),
    ],
)
def test_files_that_may_write_pass(tmp_path: Path, extra: list[bytes], options: dict) -> None:
    refuse_unless_generative(model(tmp_path, *extra, **options))


@pytest.mark.native
def test_vocabularies_are_read_as_llama_cpp_reads_them(tmp_path: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    from localspec.models.compat import _vocabulary

    kinds = {1: "SentencePiece", 2: "BPE", 3: "WordPiece", 4: "Unigram"}
    paths = [*VOCABULARIES.glob("*.gguf"), write_tiny_model(tmp_path / "tiny.gguf")]
    for path in paths:
        parameters = llama_cpp.llama_model_default_params()
        parameters.vocab_only = True
        handle = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        try:
            vocab = llama_cpp.llama_model_get_vocab(handle)
            ours = _vocabulary(read_header(path))
            assert ours is not None
            assert ours.kind == kinds[llama_cpp.llama_vocab_type(vocab)]
            assert (ours.add_bos, ours.bos) == (
                llama_cpp.llama_vocab_get_add_bos(vocab),
                llama_cpp.llama_vocab_bos(vocab),
            )
            assert (ours.add_eos, ours.eos) == (
                llama_cpp.llama_vocab_get_add_eos(vocab),
                llama_cpp.llama_vocab_eos(vocab),
            )
            assert len(ours.tokens) == llama_cpp.llama_vocab_n_tokens(vocab)
        finally:
            llama_cpp.llama_model_free(handle)
