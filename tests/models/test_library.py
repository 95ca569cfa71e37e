import os
import time
from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.models import header_cache
from localspec.models.header_cache import HeaderCache
from localspec.models.library import LocalModel, find_models, model_named, possible_drafts
from localspec.models.model_folders import ModelFolder, Place
from localspec.models.split import part_names
from tests.models.gguf_bytes import name
from tests.models.local_models import cache_file, every_place, ollama_model, put, writer
from tests.models.small_models import TOKENS, model_bytes
from tests.models.test_split import write_set

posix = pytest.mark.skipif(os.name == "nt", reason="links and pipes of POSIX")


def models_in(root: Path) -> dict[str, LocalModel]:
    found = find_models(every_place(root), HeaderCache(root / "headers.json"))
    assert len({each.name for each in found}) == len(found)
    return {each.name: each for each in found}


def test_every_place_is_listed(tmp_path: Path) -> None:
    put(tmp_path / "own" / "a-Q8_0.gguf", writer("A"))
    link = cache_file(tmp_path / "hub", "owner/b-GGUF", "b-Q4_K_M.gguf", writer("B"))
    put(tmp_path / "llama.cpp" / "c.gguf", writer("C"))
    put(tmp_path / "lmstudio" / "publisher" / "d" / "d.gguf", writer("D"))
    ollama_model(tmp_path / "ollama", "registry.ollama.ai/library/e/1b", writer("E"))
    found = models_in(tmp_path)
    assert {(each.name, each.place.value) for each in found.values()} == {
        ("a-Q8_0", "localspec"),
        ("owner/b-GGUF:Q4_K_M", "Hugging Face"),
        ("c", "llama.cpp"),
        ("d", "LM Studio"),
        ("e:1b", "Ollama"),
    }
    assert all(each.is_model and each.summary.description for each in found.values())
    of_hub = found["owner/b-GGUF:Q4_K_M"]
    assert (of_hub.path, of_hub.repo, of_hub.repo_file) == (link, "owner/b-GGUF", "b-Q4_K_M.gguf")
    assert of_hub.n_bytes == len(writer("B"))


def test_a_set_is_one_model_with_the_size_of_all(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    paths = write_set(tmp_path / "own", [["a"], ["b"]])
    (model,) = models_in(tmp_path).values()
    assert model.name == "big-Q4_K_M"
    assert model.n_bytes == sum(path.stat().st_size for path in paths)
    paths[1].unlink()
    (model,) = models_in(tmp_path).values()
    assert paths[1].name in model.problem


def test_damaged_and_unreadable_ones_are_listed_with_their_reason(tmp_path: Path) -> None:
    own = tmp_path / "own"
    put(own / "good.gguf", writer("good"))
    put(own / "cut.gguf", writer("cut")[:-8])
    put(own / "empty.gguf", b"")
    put(own / "page.gguf", b"<html>")
    put(own / "image.gguf", model_bytes(architecture="clip"))
    put(own / "vocabulary.gguf", model_bytes(tensors=False))
    found = models_in(tmp_path)
    assert [each for each in found if found[each].is_model] == ["good"]
    for each, words in (("cut", "is cut"), ("empty", "is empty"), ("page", "looks like a web page")):
        assert words in found[each].problem
        assert found[each].refusal == ""
    for each, words in (("image", "image encoder"), ("vocabulary", "vocabulary only")):
        assert words in found[each].refusal
        assert found[each].problem == ""


@posix
def test_what_is_no_file_never_blocks(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    os.mkfifo(own / "pipe.gguf")
    (own / "gone.gguf").symlink_to(own / "nowhere")
    (own / "loop.gguf").symlink_to(own / "loop.gguf")
    found = models_in(tmp_path)
    assert "not a regular file" in found["pipe"].problem
    assert f"is a link to {own / 'nowhere'}, which does not exist" in found["gone"].problem
    assert "loop" in found["loop"].problem


def test_a_file_that_several_names_lead_to_is_listed_once(tmp_path: Path) -> None:
    link = cache_file(tmp_path / "hub", "o/n", "a-Q8_0.gguf", writer("a"))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.gguf").symlink_to(link)
    os.link(link.resolve(), tmp_path / "own" / "too.gguf")
    assert list(models_in(tmp_path)) == ["mine"]


def test_names_that_clash_get_longer(tmp_path: Path) -> None:
    for folder in ("own", "own/sub", "llama.cpp"):
        put(tmp_path / folder / "a.gguf", writer(folder))
    assert set(models_in(tmp_path)) == {
        str(tmp_path / "own" / "a.gguf"),
        "sub/a",
        str(tmp_path / "llama.cpp" / "a.gguf"),
    }


def test_headers_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        put(tmp_path / "own" / f"{number}.gguf", writer(str(number)))
    first = models_in(tmp_path)
    monkeypatch.setattr(header_cache, "read_model", None)
    assert models_in(tmp_path) == first


def test_progress_counts_what_has_to_be_read(tmp_path: Path) -> None:
    folders = every_place(tmp_path)
    told: list[tuple[int, int]] = []

    def find() -> None:
        find_models(folders, HeaderCache(tmp_path / "headers.json"), lambda done, all_: told.append((done, all_)))

    put(tmp_path / "own" / "0.gguf", writer("0"))
    find()
    put(tmp_path / "own" / "1.gguf", writer("1"))
    put(tmp_path / "own" / "2.gguf", writer("2"))
    find()
    assert told == [(0, 1), (0, 2), (1, 2)]


def test_an_interruption_keeps_what_was_read(tmp_path: Path) -> None:
    def interrupt(n_done: int, n_all: int) -> None:
        if n_done == 2:
            raise KeyboardInterrupt

    for number in range(3):
        put(tmp_path / "own" / f"{number}.gguf", writer(str(number)))
    with pytest.raises(KeyboardInterrupt):
        find_models(every_place(tmp_path), HeaderCache(tmp_path / "headers.json"), interrupt)
    told: list[tuple[int, int]] = []
    find_models(
        every_place(tmp_path), HeaderCache(tmp_path / "headers.json"), lambda done, all_: told.append((done, all_))
    )
    assert told == [(0, 1)]


# --- who can draft for whom -------------------------------------------------------------------------------------------


def test_drafts_are_smaller_and_share_the_vocabulary(tmp_path: Path) -> None:
    own = tmp_path / "own"
    for title, n_weights in (("large", 800), ("middle", 80), ("small", 8), ("same", 8)):
        put(own / f"{title}.gguf", writer(title, n_weights))
    put(own / "padded.gguf", writer("padded", 16, [*TOKENS, "<pad>"]))
    put(own / "stranger.gguf", writer("stranger", 8, [f"other {number}" for number in range(305)]))
    put(own / "image.gguf", model_bytes(architecture="clip"))
    put(own / "cut.gguf", writer("cut")[:-1])
    drafts = {
        each: [draft.name for draft in found]
        for each, found in possible_drafts(list(models_in(tmp_path).values())).items()
    }
    assert drafts == {
        "large": ["same", "small", "padded", "middle"],
        "middle": ["same", "small", "padded"],
        "padded": ["same", "small"],
        "small": [],
        "same": [],
        "stranger": [],
    }


def test_a_thousand_files_are_listed_in_less_than_a_second(tmp_path: Path) -> None:
    for number in range(1_000):
        put(tmp_path / "own" / f"{number % 10}" / f"model-{number}-Q8_0.gguf", writer(f"m {number}", 8 + number % 50))
    models_in(tmp_path)
    started = time.perf_counter()
    found = list(models_in(tmp_path).values())
    drafts = possible_drafts(found)
    taken_s = time.perf_counter() - started
    assert len(found) == 1_000
    assert sum(map(len, drafts.values())) == sum(20 * 20 * n_smaller for n_smaller in range(50))
    assert taken_s < 5  # 0.2 s where nothing else runs


# --- names ------------------------------------------------------------------------------------------------------------


def test_a_model_is_named_by_name_file_or_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache_file(tmp_path / "hub", "owner/b-GGUF", "b-Q4_K_M.gguf", writer("B"))
    put(tmp_path / "own" / "sub" / "a-Q8_0.gguf", writer("A"))
    put(tmp_path / "llama.cpp" / "c.gguf", writer("C"))
    found = list(models_in(tmp_path).values())
    monkeypatch.chdir(tmp_path / "own")
    for text in ("a-Q8_0", "A-q8_0", "a-Q8_0.gguf", "sub/a-Q8_0.gguf", str(tmp_path / "own/sub/a-Q8_0.gguf")):
        assert model_named(found, text).name == "a-Q8_0"
    for text in ("owner/b-GGUF:Q4_K_M", "owner/b-gguf:q4_k_m", "b-Q4_K_M"):
        assert model_named(found, text).place is Place.HUGGING_FACE
    with pytest.raises(UsageError) as caught:
        model_named(found, "a-Q8")
    assert "a-Q8_0" in caught.value.hint
    with pytest.raises(UsageError, match="no model named 'zzz'"):
        model_named(found, "zzz")


def test_a_name_of_several_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "own" / "x" / "a.gguf", writer("A"))
    put(tmp_path / "own" / "y" / "a.gguf", writer("B"))
    with pytest.raises(UsageError, match="names 2 models") as caught:
        model_named(list(models_in(tmp_path).values()), "a")
    assert "x/a" in caught.value.hint


def test_parts_name_their_model(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    write_set(tmp_path / "own", [["a"], ["b"]])
    found = list(models_in(tmp_path).values())
    assert model_named(found, part_names("big-Q4_K_M-00001-of-00002.gguf")[1]).name == "big-Q4_K_M"


def test_the_cache_folder_is_used_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    put(tmp_path / "own" / "a.gguf", model_bytes(name("general.name", "a")))
    find_models([ModelFolder(Place.OWN, tmp_path / "own")])
    assert (tmp_path / "home" / "cache" / "headers.json").is_file()


@posix
@pytest.mark.parametrize("alias", ["alias.gguf", "zz.gguf", "sub/big-Q4_K_M-00001-of-00002.GGUF"])
def test_another_name_for_a_part_does_not_hide_the_set(tmp_path: Path, alias: str) -> None:
    (tmp_path / "own" / "sub").mkdir(parents=True)
    paths = write_set(tmp_path / "own", [["a"], ["b"]])
    (tmp_path / "own" / alias).symlink_to(paths[0])
    usable = [each for each in models_in(tmp_path).values() if not each.problem]
    assert [each.files for each in usable] == [tuple(paths)]


@posix
@pytest.mark.parametrize("folder", ["aa", "zz"])
def test_of_two_names_for_a_set_the_one_that_can_be_read_counts(tmp_path: Path, folder: str) -> None:
    own = tmp_path / "own"
    (own / "mm").mkdir(parents=True)
    (own / folder).mkdir()
    paths = write_set(own / "mm", [["a"], ["b"]])
    for path in paths:
        (own / folder / path.name).with_suffix(".GGUF").symlink_to(path)
    (model,) = models_in(tmp_path).values()
    assert model.files == tuple(paths)
    assert not model.problem
