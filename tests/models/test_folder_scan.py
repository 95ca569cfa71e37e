import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec import paths
from localspec.models import folder_scan
from localspec.models.folder_scan import FoundModel, scan
from localspec.models.model_folders import ModelFolder, Place, model_folders, repo_of_cache_folder
from localspec.models.split import part_names
from tests.models.local_models import OLD_REVISION, cache_file, every_place, ollama_model, put, writer

posix = pytest.mark.skipif(os.name == "nt", reason="links, pipes and permissions of POSIX")


def found_in(place: Place, path: Path) -> list[FoundModel]:
    return list(scan(ModelFolder(place, path)))


def names_in(place: Place, path: Path) -> list[str]:
    return [found.name for found in found_in(place, path)]


# --- where folders are ------------------------------------------------------------------------------------------------


def test_folders_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "ours"))
    folders = model_folders(environ={})
    assert folders[0] == ModelFolder(Place.OWN, tmp_path / "ours" / "data" / "models")
    by_place = {folder.place: folder.path for folder in reversed(folders)}
    assert by_place[Place.HUGGING_FACE] == tmp_path / ".cache" / "huggingface" / "hub"
    assert by_place[Place.OLLAMA] == tmp_path / ".ollama" / "models"
    assert {folder.path for folder in folders if folder.place is Place.LM_STUDIO} == {
        tmp_path / ".lmstudio" / "models",
        tmp_path / ".cache" / "lm-studio" / "models",
    }
    assert model_folders(tmp_path / "mine", {})[0].path == tmp_path / "mine"


@pytest.mark.parametrize(
    ("environ", "hub"),
    [
        ({"HF_HUB_CACHE": "/a", "HUGGINGFACE_HUB_CACHE": "/b", "HF_HOME": "/c"}, "/a"),
        ({"HUGGINGFACE_HUB_CACHE": "/b", "HF_HOME": "/c"}, "/b"),
        ({"HF_HOME": "/c", "XDG_CACHE_HOME": "/d"}, "/c/hub"),
        ({"XDG_CACHE_HOME": "/d"}, "/d/huggingface/hub"),
    ],
)
def test_the_hub_cache_is_that_of_huggingface_hub(environ: dict[str, str], hub: str) -> None:
    assert [folder.path for folder in model_folders(environ=environ) if folder.place is Place.HUGGING_FACE] == [
        Path(hub)
    ]


def test_other_variables(tmp_path: Path) -> None:
    environ = {"LLAMA_CACHE": str(tmp_path / "l"), "OLLAMA_MODELS": str(tmp_path / "o"), "HF_HOME": "~nobody-here/x"}
    by_place = {folder.place: folder.path for folder in model_folders(environ=environ)}
    assert (by_place[Place.LLAMA_CPP], by_place[Place.OLLAMA]) == (tmp_path / "l", tmp_path / "o")
    assert by_place[Place.HUGGING_FACE] == Path("~nobody-here/x/hub")


def test_one_folder_under_two_names_is_there_once_unless_it_is_ours(tmp_path: Path) -> None:
    environ = {"LLAMA_CACHE": str(tmp_path), "HF_HUB_CACHE": str(tmp_path)}
    assert [each.place for each in model_folders(environ=environ) if each.path == tmp_path] == [Place.HUGGING_FACE]
    both = [each.place for each in model_folders(tmp_path, environ) if each.path == tmp_path]
    assert both == [Place.OWN, Place.HUGGING_FACE]


# --- layouts ----------------------------------------------------------------------------------------------------------


def test_any_layout(tmp_path: Path) -> None:
    for file in ("b.gguf", "sub/deep/a.GGUF", "notes.txt", "b.gguf.part", "sub/c.gguf"):
        put(tmp_path / file, b"")
    found = found_in(Place.OWN, tmp_path)
    assert [each.name for each in found] == ["b", "c", "a"]
    assert [each.long_name for each in found] == ["b", "sub/c", "sub/deep/a"]
    assert found[2].files == (tmp_path / "sub/deep/a.GGUF",)
    assert all(each.repo is None for each in found)


def test_nothing_where_there_is_no_folder(tmp_path: Path) -> None:
    for folder in every_place(tmp_path):
        assert list(scan(folder)) == []
        folder.path.mkdir()
        assert list(scan(folder)) == []
        folder.path.rmdir()
        put(folder.path, b"a file")
        assert list(scan(folder)) == []


def test_parts_are_one_model_whether_all_are_there_or_not(tmp_path: Path) -> None:
    for name in part_names("a-00001-of-00003.gguf"):
        put(tmp_path / name, b"")
    put(tmp_path / "b-00002-of-00003.gguf", b"")
    put(tmp_path / "b-00003-of-00003.gguf", b"")
    found = found_in(Place.OWN, tmp_path)
    assert [(each.name, len(each.files)) for each in found] == [("a", 3), ("b", 2)]
    assert found[0].files[0].name == "a-00001-of-00003.gguf"
    assert found[1].files[0].name == "b-00002-of-00003.gguf"


@pytest.mark.parametrize(
    ("name", "repo"),
    [
        ("models--owner--name", "owner/name"),
        ("models--bartowski--Llama-3.2-1B-Instruct-GGUF", "bartowski/Llama-3.2-1B-Instruct-GGUF"),
        ("models--gpt2", None),  # from before repositories had owners
        ("models--a--b--c", None),
        ("models--..--x", None),
        ("models--a---b", None),
        ("models----", None),
        ("models", None),
        ("datasets--owner--name", None),
        ("my-models--owner--name", None),
    ],
)
def test_the_repository_of_a_folder_in_the_cache(name: str, repo: str | None) -> None:
    assert repo_of_cache_folder(name) == repo


def test_a_hub_cache(tmp_path: Path) -> None:
    cache_file(tmp_path, "owner/name-GGUF", "name-Q4_K_M.gguf", b"1")
    cache_file(tmp_path, "owner/name-GGUF", "name-Q8_0.gguf", b"2")
    cache_file(tmp_path, "owner/name-GGUF", "mmproj-F16.gguf", b"3")
    cache_file(tmp_path, "owner/name-GGUF", "other-Q8_0.gguf", b"4")
    cache_file(tmp_path, "owner/name-GGUF", "README.md", b"5")
    for part, name in enumerate(part_names("Q6_K/big-Q6_K-00001-of-00002.gguf")):
        cache_file(tmp_path, "other/big", name, b"part %d" % part)
    put(tmp_path / "datasets--owner--name" / "snapshots" / "x" / "a.gguf", b"")
    put(tmp_path / "models--broken" / "snapshots" / "x" / "a.gguf", b"")
    put(tmp_path / "loose.gguf", b"")
    found = found_in(Place.HUGGING_FACE, tmp_path)
    assert [each.name for each in found] == [
        "other/big:Q6_K",
        "owner/name-GGUF:F16",
        "owner/name-GGUF:Q4_K_M",
        "owner/name-GGUF/name-Q8_0.gguf",
        "owner/name-GGUF/other-Q8_0.gguf",
    ]
    assert (found[0].repo, found[0].file) == ("other/big", "Q6_K/big-Q6_K-00001-of-00002.gguf")
    assert len(found[0].files) == 2
    assert found[2].files[0].read_bytes() == b"1"


def test_an_older_revision_counts_where_its_file_is_another(tmp_path: Path) -> None:
    cache_file(tmp_path, "o/n", "a-Q8_0.gguf", b"new")
    cache_file(tmp_path, "o/n", "a-Q8_0.gguf", b"old", OLD_REVISION, main=False)
    cache_file(tmp_path, "o/n", "b-Q4_0.gguf", b"same")
    cache_file(tmp_path, "o/n", "b-Q4_0.gguf", b"same", OLD_REVISION, main=False)
    found = found_in(Place.HUGGING_FACE, tmp_path)
    assert [each.name for each in found] == ["o/n:Q8_0", f"o/n:Q8_0@{OLD_REVISION[:8]}", "o/n:Q4_0"]
    assert [each.files[0].read_bytes() for each in found] == [b"new", b"old", b"same"]


def test_llama_cpp_has_both_layouts(tmp_path: Path) -> None:
    cache_file(tmp_path, "o/n", "a-Q8_0.gguf", b"")
    put(tmp_path / "o_n_a-Q4_K_M.gguf", b"")
    assert names_in(Place.LLAMA_CPP, tmp_path) == ["o/n:Q8_0", "o_n_a-Q4_K_M"]


def test_lm_studio(tmp_path: Path) -> None:
    put(tmp_path / "publisher" / "name" / "a-Q8_0.gguf", b"")
    put(tmp_path / "stray.gguf", b"")
    stray, found = found_in(Place.LM_STUDIO, tmp_path)
    assert (found.name, found.long_name, found.repo) == ("a-Q8_0", "publisher/name/a-Q8_0", "publisher/name")
    assert stray.repo is None


def test_ollama(tmp_path: Path) -> None:
    blob = ollama_model(tmp_path, "registry.ollama.ai/library/llama3.2/1b", b"1")
    ollama_model(tmp_path, "registry.ollama.ai/someone/mine/latest", b"2")
    ollama_model(tmp_path, "hf.co/owner/name-GGUF/Q8_0", b"3")
    ollama_model(tmp_path, "too/short", b"4")
    put(tmp_path / "manifests/registry.ollama.ai/library/empty/latest", b'{"layers": []}')
    found = found_in(Place.OLLAMA, tmp_path)
    assert {each.name for each in found} == {"llama3.2:1b", "someone/mine:latest", "hf.co/owner/name-GGUF:Q8_0"}
    assert next(each for each in found if each.name == "llama3.2:1b").files == (blob,)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b" " * (2 << 20), "larger than"),
        (
            json.dumps({"layers": [{"mediaType": folder_scan._OLLAMA_MODEL, "digest": "sha256:../../x"}]}).encode(),
            "none",
        ),
        (json.dumps({"layers": [{"mediaType": folder_scan._OLLAMA_MODEL}]}).encode(), "none"),
    ],
)
def test_broken_manifests_are_listed_with_their_reason(tmp_path: Path, content: bytes, words: str) -> None:
    put(tmp_path / "manifests" / "registry.ollama.ai" / "library" / "bad" / "1b", content)
    (found,) = found_in(Place.OLLAMA, tmp_path)
    assert found.name == "bad:1b"
    assert words in found.problem


@pytest.mark.parametrize("content", [b"[]", b"3", b'{"layers": 3}', b'{"layers": [3, {}]}'])
def test_manifests_without_a_model_are_none(tmp_path: Path, content: bytes) -> None:
    put(tmp_path / "manifests" / "registry.ollama.ai" / "library" / "other" / "1b", content)
    assert found_in(Place.OLLAMA, tmp_path) == []


# --- folders that are not as they should be ---------------------------------------------------------------------------


@posix
def test_links_in_circles_end(tmp_path: Path) -> None:
    put(tmp_path / "a" / "b" / "x.gguf", b"")
    (tmp_path / "a" / "b" / "up").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "itself").symlink_to(tmp_path / "a" / "itself")
    (tmp_path / "again").symlink_to(tmp_path / "a")
    assert names_in(Place.OWN, tmp_path) == ["x"]
    (tmp_path / "loop.gguf").symlink_to(tmp_path / "loop.gguf")
    assert names_in(Place.OWN, tmp_path) == ["loop", "x"]


@posix
def test_pipes_and_links_to_nowhere_are_found_and_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "gone.gguf").symlink_to(tmp_path / "nowhere")
    assert names_in(Place.OWN, tmp_path) == ["gone", "pipe"]


@posix
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="the superuser may read everything")
def test_a_folder_that_may_not_be_searched_is_named(tmp_path: Path) -> None:
    put(tmp_path / "open.gguf", b"")
    secret = tmp_path / "secret"
    secret.mkdir(mode=0)
    try:
        found = found_in(Place.OWN, tmp_path)
    finally:
        secret.chmod(0o700)
    assert [(each.name, each.problem) for each in found] == [
        ("open", ""),
        (str(secret), "the folder cannot be searched: Permission denied"),
    ]


def test_a_folder_that_cannot_be_searched_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    put(tmp_path / "a.gguf", b"")
    monkeypatch.setattr(folder_scan.os, "scandir", refuse)
    (found,) = found_in(Place.OWN, tmp_path)
    assert (found.files, found.problem) == ((), "the folder cannot be searched: Permission denied")


def test_a_search_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        put(tmp_path / f"{number:02}" / "a.gguf", b"")
    monkeypatch.setattr(folder_scan, "MAX_FOLDERS", 10)
    *found, end = found_in(Place.OWN, tmp_path)
    assert len(found) == 9
    assert "more than 10 folders" in end.problem
    monkeypatch.setattr(folder_scan, "MAX_FOLDERS", 100)
    monkeypatch.setattr(folder_scan, "MAX_MODELS", 5)
    *found, end = found_in(Place.OWN, tmp_path)
    assert len(found) == 5
    assert "more than 5 models" in end.problem


@posix
def test_names_that_are_not_utf_8(tmp_path: Path) -> None:
    raw = os.fsencode(tmp_path) + b"/caf\xe9.gguf"
    try:
        with open(raw, "wb") as file:  # noqa: PTH123
            file.write(writer("a"))
    except OSError:
        pytest.skip("the file system wants UTF-8")
    (found,) = found_in(Place.OWN, tmp_path)
    assert found.files[0].exists()


def test_two_sets_with_one_name_are_both_listed(tmp_path: Path) -> None:
    files = [each for count in (2, 3) for each in part_names(f"m-00001-of-{count:05d}.gguf")]
    for file in [*files, "m.gguf"]:
        put(tmp_path / file, b"")
    found = found_in(Place.OWN, tmp_path)
    assert sorted(tuple(path.name for path in each.files) for each in found) == [
        tuple(files[:2]),
        tuple(files[2:]),
        ("m.gguf",),
    ]


@given(
    st.sets(
        st.builds(
            "{}-{:05d}{}{:05d}{}".format,
            st.sampled_from("ab"),
            st.integers(0, 4),
            st.sampled_from(["-of-", "-OF-"]),
            st.integers(0, 4),
            st.sampled_from([".gguf", ".GGUF"]),
        )
    )
)
def test_every_file_is_in_one_model(names: set[str]) -> None:
    """Its own parts are with it, and nothing else."""
    models = list(folder_scan._models_in(names))
    assert sorted(name for model in models for name in model) == sorted(names)
    for model in models:
        assert all(tuple(part for part in part_names(name) if part in names) == model for name in model)


def test_names_that_promise_thousands_of_parts_cost_little() -> None:
    started = time.process_time()
    names = [f"x{number}-00001-of-01000.gguf" for number in range(20_000)]
    assert len(list(folder_scan._models_in(names))) == 20_000
    assert time.process_time() - started < 5  # 0.1 s; by their product, 40 s
