import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.models.references import (
    FileReference,
    HubReference,
    RegistryReference,
    is_repository,
    parse_reference,
)
from localspec.models.registry import load_registry

REPO = "bartowski/Llama-3.2-1B-Instruct-GGUF"


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        (f"{REPO}:Q4_K_M", HubReference(REPO, "Q4_K_M")),
        (f" {REPO}:q4_k_m\n", HubReference(REPO, "Q4_K_M")),
        (REPO, HubReference(REPO)),
        (f"{REPO}/a-Q8_0.gguf", HubReference(REPO, file="a-Q8_0.gguf")),
        (f"{REPO}/Q8_0/a-00001-of-00002.gguf", HubReference(REPO, file="Q8_0/a-00001-of-00002.gguf")),
        ("Qwen/Qwen2.5-7B-Instruct-GGUF:UD-Q4_K_XL", HubReference("Qwen/Qwen2.5-7B-Instruct-GGUF", "UD-Q4_K_XL")),
        ("qwen2.5-coder-14b", RegistryReference("qwen2.5-coder-14b")),
        ("qwen3-8b:Q8_0", RegistryReference("qwen3-8b", "Q8_0")),
        ("model.gguf", FileReference(Path("model.gguf"))),
        ("folder/model.GGUF", FileReference(Path("folder/model.GGUF"))),
        ("./model", FileReference(Path("./model"))),
        ("../model", FileReference(Path("../model"))),
        ("/models/a.gguf", FileReference(Path("/models/a.gguf"))),
        ("~/a.gguf", FileReference(Path("~/a.gguf").expanduser())),
        ("a/b/c", FileReference(Path("a/b/c"))),
        ("a b/c d.gguf", FileReference(Path("a b/c d.gguf"))),
        ("a b/c/d.gguf", FileReference(Path("a b/c/d.gguf"))),
        ("C:\\models\\a.gguf", FileReference(Path("C:\\models\\a.gguf"))),
        ("C:/models/a.gguf", FileReference(Path("C:/models/a.gguf"))),
    ],
)
def test_forms(text: str, reference: object) -> None:
    assert parse_reference(text) == reference


def test_a_file_that_exists_wins_and_a_folder_does_not(tmp_path: Path) -> None:
    (tmp_path / "owner").mkdir()
    (tmp_path / "owner" / "name").write_bytes(b"")
    (tmp_path / "qwen3-8b").write_bytes(b"")
    (tmp_path / "qwen3-14b").mkdir()
    assert parse_reference("owner/name") == FileReference(Path("owner/name"))
    assert parse_reference("owner/other") == HubReference("owner/other")
    assert parse_reference("qwen3-8b") == FileReference(Path("qwen3-8b"))
    assert parse_reference("qwen3-14b") == RegistryReference("qwen3-14b")
    assert parse_reference("owner/sub/a.gguf") == FileReference(Path("owner/sub/a.gguf"))  # mistyped, in a folder


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_what_cannot_be_seen_is_a_matter_of_form(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir(mode=0)
    assert parse_reference("secret/a.gguf") == FileReference(Path("secret/a.gguf"))
    assert parse_reference("secret/name") == HubReference("secret/name")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no model"),
        ("   ", "names no model"),
        ("a\0b", "names no model"),
        ("a\x1b[2J", "names no model"),
        ("x" * 5000, "names no model"),
        ("a b", "names no model"),
        ("owner/na me", "neither a file nor a repository"),
        ("owner/", "neither a file nor a repository"),
        ("owner/..", "neither a file nor a repository"),
        ("owner/a--b", "neither a file nor a repository"),
        (f"{REPO}:", "no quantization after the colon"),
        (f"{REPO}:Q4:Q5", "no quantization after the colon"),
        ("qwen3-8b:Q 4", "no quantization after the colon"),
        (f"{REPO}/../a.gguf", "names no file of a repository"),
        (f"{REPO}//a.gguf", "names no file of a repository"),
        ("https://huggingface.co/owner/name", "is a web address"),
    ],
)
def test_what_names_nothing(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        parse_reference(text)
    assert caught.value.hint
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 400


@pytest.mark.parametrize(
    ("address", "better"),
    [
        ("https://huggingface.co/o/n", "o/n"),
        ("hf.co/o/n", "o/n"),
        ("https://huggingface.co/o/n/blob/main/Q8_0/a.gguf?download=true", "o/n/Q8_0/a.gguf"),
        ("https://huggingface.co/o/n/resolve/main/Q8_0/a.gguf", "o/n/Q8_0/a.gguf"),
        ("huggingface.co/o/n/tree/main", "o/n"),
    ],
)
def test_a_web_address_gets_the_right_form_as_a_hint(address: str, better: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_reference(address)
    assert f"Give {better}, " in caught.value.hint


@given(st.text(max_size=60))
def test_any_text_is_a_reference_or_a_usage_error(text: str) -> None:
    try:
        reference = parse_reference(text)
    except UsageError:
        return
    if isinstance(reference, HubReference):
        assert is_repository(reference.repo)
        assert ".." not in (reference.file or "").split("/")


@given(st.sampled_from([HubReference(REPO, "Q4_K_M"), HubReference(REPO), HubReference(REPO, file="a/b.gguf")]))
def test_what_a_reference_is_written_as_names_it_again(reference: HubReference) -> None:
    assert parse_reference(str(reference)) == reference


def test_with_a_registry_names_become_models_on_the_hub() -> None:
    registry = load_registry(Path("there-is-none"))
    assert parse_reference("llama-3.2-1b", registry) == registry.models["llama-3.2-1b"].reference
    assert parse_reference("Qwen3-8B:q6_k", registry) == HubReference("unsloth/Qwen3-8B-GGUF", "Q6_K")
    assert parse_reference(REPO, registry) == HubReference(REPO)
    with pytest.raises(UsageError) as caught:
        parse_reference("qwen3-80b", registry)
    assert "qwen3-8b" in caught.value.hint
