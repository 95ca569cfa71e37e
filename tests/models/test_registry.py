import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec import paths
from localspec.errors import ConfigError, UsageError
from localspec.models.references import HubReference, RegistryReference
from localspec.models.registry import Registry, load_registry, registry_file, user_file
from localspec.models.toml_lines import line_of

NOTHING = Path("no-such-file.toml")
MINE = """
[models.mine]
title = "My 8B"
family = "Llama 3"
role = "target"
repo = "me/My-8B-GGUF"
quantization = "q6_k"
"""


def with_own(tmp_path: Path, text: str | bytes) -> Registry:
    file = tmp_path / "models.toml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_registry(file)


# --- what is shipped --------------------------------------------------------------------------------------------------


def test_at_least_14_families_have_targets_and_drafts() -> None:
    registry = load_registry(NOTHING)
    complete = {
        family
        for family, names in registry.families.items()
        if any(
            registry.models[name].family == family and registry.models[name].is_target and registry.drafts_for(name)
            for name in names
        )
    }
    assert len(complete) >= 14, complete


def test_every_entry_says_where_it_was_seen() -> None:
    registry = load_registry(NOTHING)
    for name, model in registry.models.items():
        assert re.fullmatch(r"[a-z0-9.-]+", name)
        assert model.sources
        assert (model.quantization is None) != (model.file is None)
        assert all(family in {each.family for each in registry.models.values()} for family in model.also_for)
    for pair in registry.pairs:
        assert pair.sources
        assert pair.grade in {"A", "B", "C"}
        target, draft = registry.models[pair.target], registry.models[pair.draft]
        assert target.is_target
        assert draft.is_draft
        assert target.family in {draft.family, *draft.also_for}
    assert len({(pair.target, pair.draft) for pair in registry.pairs}) == len(registry.pairs)


def test_no_two_names_stand_for_one_model() -> None:
    models = load_registry(NOTHING).models.values()
    assert len({str(model.reference).lower() for model in models}) == len(models)


def test_reported_pairs_come_before_other_candidates() -> None:
    registry = load_registry(NOTHING)
    candidates = registry.drafts_for("llama-3.1-8b")
    assert [each.name for each in candidates] == ["llama-3.2-1b", "llama-3.2-3b"]
    assert candidates[0].pair is not None
    assert candidates[0].model.reference == registry.models["llama-3.2-1b"].reference
    of_moe = registry.drafts_for("qwen3-30b-a3b")
    assert [each.name for each in of_moe] == ["qwen3-0.6b", "qwen3-1.7b"]
    assert of_moe[0].pair is None
    assert registry.drafts_for("llama-3.2-1b") == ()
    assert registry.drafts_for("no-such-model") == ()


def test_a_model_that_is_both_does_not_draft_for_itself() -> None:
    assert "qwen3-4b" not in {each.name for each in load_registry(NOTHING).drafts_for("qwen3-4b")}
    assert "qwen3-4b" in {each.name for each in load_registry(NOTHING).drafts_for("qwen3-32b")}


def test_repositories_lead_back_to_names() -> None:
    registry = load_registry(NOTHING)
    model = registry.models["qwen2.5-coder-32b"]
    assert registry.name_of(model.repo, model.file) == "qwen2.5-coder-32b"
    assert registry.name_of("unsloth/qwen3-8b-gguf") == "qwen3-8b"
    assert registry.name_of("me/mine") is None


def test_the_file_in_a_checkout_is_the_one_that_is_read() -> None:
    assert registry_file().name == "models.toml"
    assert set(tomllib.loads(registry_file().read_text(encoding="utf-8"))) == {"models", "pairs"}


# --- names ------------------------------------------------------------------------------------------------------------


def test_names_resolve_to_repositories() -> None:
    registry = load_registry(NOTHING)
    assert registry.resolve(RegistryReference("qwen3-8b")) == HubReference("unsloth/Qwen3-8B-GGUF", "Q4_K_M")
    assert registry.resolve(RegistryReference("qwen3-8b", "Q8_0")) == HubReference("unsloth/Qwen3-8B-GGUF", "Q8_0")
    coder = registry.resolve(RegistryReference("qwen2.5-coder-32b"))
    assert coder.file == "qwen2.5-coder-32b-instruct-q4_k_m.gguf"
    with pytest.raises(UsageError, match="no other quantization"):
        registry.resolve(RegistryReference("qwen2.5-coder-32b", "Q8_0"))


@pytest.mark.parametrize(
    ("text", "nearest"), [("qwen3-8", "qwen3-8b"), ("lama-3.2-1b", "llama-3.2-1b"), ("gemma3-4b", "gemma-3-4b")]
)
def test_unknown_names_get_the_nearest(text: str, nearest: str) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        load_registry(NOTHING).resolve(RegistryReference(text))
    assert nearest in caught.value.hint


def test_a_name_like_no_other_gets_the_forms() -> None:
    with pytest.raises(UsageError) as caught:
        load_registry(NOTHING).resolve(RegistryReference("zzzzzzzzzzzz"))
    assert "owner/name" in caught.value.hint


# --- a user's own -----------------------------------------------------------------------------------------------------


def test_own_models_join_a_family(tmp_path: Path) -> None:
    registry = with_own(tmp_path, MINE)
    assert registry.models["mine"].reference == HubReference("me/My-8B-GGUF", "Q6_K")
    assert {each.name for each in registry.drafts_for("mine")} == {"llama-3.2-1b", "llama-3.2-3b"}
    assert len(registry.models) == len(load_registry(NOTHING).models) + 1


def test_own_entries_replace_those_of_the_same_name(tmp_path: Path) -> None:
    text = MINE.replace("models.mine", 'models."llama-3.1-8b"')
    pair = '[[pairs]]\ntarget = "llama-3.1-8b"\ndraft = "llama-3.2-3b"\nnote = "measured here"\n'
    registry = with_own(tmp_path, f"{text}\n{pair}")
    assert registry.models["llama-3.1-8b"].repo == "me/My-8B-GGUF"
    candidates = registry.drafts_for("llama-3.1-8b")
    assert [each.name for each in candidates] == ["llama-3.2-3b", "llama-3.2-1b"]
    assert candidates[0].pair is not None
    assert candidates[0].pair.note == "measured here"
    assert len(registry.pairs) == len(load_registry(NOTHING).pairs)


def test_own_file_is_in_the_configuration_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    assert user_file() == tmp_path / "config" / "models.toml"
    assert "mine" not in load_registry().models
    user_file().parent.mkdir()
    user_file().write_text(MINE, encoding="utf-8-sig")
    assert "mine" in load_registry().models


@pytest.mark.parametrize(
    ("text", "line", "words", "hint"),
    [
        ("[models.a]\nrepo = \n", 2, "line 2", "quotes"),
        ("[models.a]\n[models.a]\n", 2, "line 2", "quotes"),
        (MINE + 'quantisation = "Q4_0"', 8, "models.mine.quantisation is not known", "Did you mean quantization?"),
        (MINE.replace('title = "My 8B"\n', ""), 2, "models.mine.title is missing", "Add it"),
        (MINE.replace('"target"', '"big"'), 5, "models.mine.role is 'big'; it should be 'target'", "Correct"),
        (
            MINE.replace("me/My-8B-GGUF", "My-8B"),
            6,
            "models.mine.repo is 'My-8B'; it should be a repository",
            "Correct",
        ),
        (MINE.replace('"q6_k"', "6"), 7, "models.mine.quantization is 6; it should be a valid string", "Correct"),
        (MINE + 'file = "a.gguf"', 2, "models.mine: it has a file and a quantization", "Correct"),
        (MINE.replace('quantization = "q6_k"', 'file = "../a.gguf"'), 7, "path of a .gguf file", "Correct"),
        (MINE + "sources = [1]", 8, "models.mine.sources.0 is 1", "Correct"),
        (MINE.replace("models.mine", 'models."a b"'), 2, "models.a b", "Correct"),
        (MINE + "[model.b]\n", 8, "model is not known", "Did you mean models?"),
        ("models = 3", 1, "models is 3", "Correct"),
        ('[[pairs]]\ntarget = "llama-3.1-8b"\ndraft = "llama-3.2-1"\n', 3, "llama-3.2-1 of a pair", "llama-3.2-1b?"),
        ('# one\n[[pairs]]\ntarget = "qwen3-8b"\n', 2, "pairs.0.draft is missing", "Add it"),
        ('[[pairs]]\ntarget = "a"\ndraft = "b"\ngrade = "D"\n', 4, "pairs.0.grade is 'D'", "Correct"),
        (b"[models.a]\n# caf\xe9\n", 2, "not UTF-8", "UTF-8"),
        ("a = " + "[" * 100_000, None, "nested too deeply", "models.NAME"),
        (b"#" * (5 << 20), None, "larger than", "Take"),
    ],
)
def test_a_broken_file_is_reported_with_its_line(
    tmp_path: Path, text: str | bytes, line: int | None, words: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        with_own(tmp_path, text)
    message = caught.value.message
    assert message.startswith(str(tmp_path / "models.toml"))
    assert words in message
    assert line is None or re.search(rf"\bline {line}\b", message)
    assert hint in caught.value.hint
    assert len(message) < 500


def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(str(tmp_path))):
        load_registry(tmp_path)


# --- lines ------------------------------------------------------------------------------------------------------------

TEXT = """# comment = 1
top = 1
[a]
x = 1
"quoted key" = 2
[a.b]  # [c]
'y.z' = 3
w.v = 4
[[list]]
n = 1
[[list]]
n = 2
[list.inner]
m = 3
"""


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (["top"], 2),
        (["a"], 3),
        (["a", "x"], 4),
        (["a", "quoted key"], 5),
        (["a", "b"], 6),
        (["a", "b", "y.z"], 7),
        (["a", "b", "w", "v"], 8),
        (["a", "b", "missing"], 6),
        (["list", 0, "n"], 10),
        (["list", 1], 11),
        (["list", 1, "n"], 12),
        (["list", 1, "missing"], 11),
        (["nowhere"], 1),
        ([], 1),
    ],
)
def test_lines(keys: list[str | int], line: int) -> None:
    assert line_of(TEXT, keys) == line


@given(st.text(max_size=200), st.lists(st.one_of(st.text(max_size=5), st.integers(0, 3)), max_size=3))
def test_any_text_has_some_line(text: str, keys: list[str | int]) -> None:
    assert 1 <= line_of(text, keys) <= max(1, len(text.splitlines()))


@pytest.mark.parametrize(
    "value", ["0x" + "f" * 5_000, "1" * 5_000, "[0x" + "f" * 5_000 + "]", "{a = 0x" + "f" * 5_000 + "}"]
)
def test_a_number_of_thousands_of_digits_is_told(tmp_path: Path, value: str) -> None:
    for text in (f"{MINE}note = {value}", f"models = {value}"):
        with pytest.raises(ConfigError) as refused:
            with_own(tmp_path, text)
        assert len(str(refused.value)) < 400
