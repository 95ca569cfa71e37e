import os
from pathlib import Path

import pytest

from localspec.errors import LocalspecError, UsageError
from localspec.models.header_cache import HeaderCache
from localspec.models.library import LocalModel, find_models
from localspec.models.model_folders import ModelFolder, Place
from localspec.models.removal import plan_removal, remove_files
from tests.models.local_models import cache_file, every_place, ollama_model, put, writer
from tests.models.test_split import write_set

pytestmark = pytest.mark.skipif(os.name == "nt", reason="links of POSIX")


def the_model(root: Path, folders: list[ModelFolder]) -> LocalModel:
    (model,) = find_models(folders, HeaderCache(root / "headers.json"))
    return model


def removed(root: Path) -> LocalModel:
    model = the_model(root, every_place(root))
    remove_files(plan_removal(model, every_place(root)))
    return model


def test_all_parts_go_and_nothing_else(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    paths = write_set(own, [["a"], ["b"]])
    put(own / "notes.txt", b"")
    plan = plan_removal(the_model(tmp_path, every_place(tmp_path)), every_place(tmp_path))
    assert plan.n_bytes == sum(path.stat().st_size for path in paths)
    remove_files(plan)
    assert [each.name for each in own.iterdir()] == ["notes.txt"]


def test_a_damaged_model_goes_too(tmp_path: Path) -> None:
    path = put(tmp_path / "own" / "cut.gguf", writer("cut")[:-4])
    removed(tmp_path)
    assert not path.exists()


def test_a_link_goes_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    real = put(tmp_path / "elsewhere" / "a.gguf", writer("a"))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "a.gguf").symlink_to(real)
    plan = plan_removal(the_model(tmp_path, every_place(tmp_path)), every_place(tmp_path))
    assert (plan.n_links, plan.n_bytes) == (1, 0)
    remove_files(plan)
    assert real.exists()
    assert list((tmp_path / "own").iterdir()) == []


def test_a_file_with_another_name_frees_nothing(tmp_path: Path) -> None:
    path = put(tmp_path / "own" / "a.gguf", writer("a"))
    os.link(path, tmp_path / "other.gguf")
    plan = plan_removal(the_model(tmp_path, every_place(tmp_path)), every_place(tmp_path))
    assert (plan.n_links, plan.n_bytes) == (0, 0)


def test_a_linked_folder_is_not_entered(tmp_path: Path) -> None:
    real = put(tmp_path / "elsewhere" / "a.gguf", writer("a"))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sub").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="reached through a link"):
        removed(tmp_path)
    assert real.exists()


def test_the_own_folder_may_itself_be_a_link(tmp_path: Path) -> None:
    real = put(tmp_path / "disk" / "a.gguf", writer("a"))
    (tmp_path / "own").symlink_to(tmp_path / "disk")
    removed(tmp_path)
    assert not real.exists()


@pytest.mark.parametrize("own", ["lmstudio", "lmstudio/publisher", "."])
@pytest.mark.parametrize("by_link", [False, True])
def test_a_folder_of_another_program_is_never_ours(tmp_path: Path, own: str, by_link: bool) -> None:
    real = put(tmp_path / "lmstudio" / "publisher" / "a" / "a.gguf", writer("a"))
    ours = tmp_path / own
    if by_link:
        ours = tmp_path.parent / f"{tmp_path.name}-link"
        ours.symlink_to(tmp_path / own)
    folders = [ModelFolder(Place.OWN, ours), *every_place(tmp_path)[1:]]
    model = the_model(tmp_path, folders)
    assert model.place is Place.OWN
    with pytest.raises(UsageError, match="folder of LM Studio") as caught:
        plan_removal(model, folders)
    assert caught.value.hint
    assert real.exists()


def test_models_of_other_places_are_refused(tmp_path: Path) -> None:
    for number, fill in enumerate(
        (
            lambda root: cache_file(root / "hub", "o/n", "a-Q8_0.gguf", writer("a")),
            lambda root: put(root / "llama.cpp" / "a.gguf", writer("a")),
            lambda root: put(root / "lmstudio" / "p" / "n" / "a.gguf", writer("a")),
            lambda root: ollama_model(root / "ollama", "registry.ollama.ai/library/a/1b", writer("a")),
        )
    ):
        root = tmp_path / str(number)
        path = fill(root)
        with pytest.raises(UsageError, match="own folder"):
            plan_removal(the_model(root, every_place(root)), every_place(root))
        assert path.exists()


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="the superuser may delete everything")
def test_a_folder_that_may_not_be_changed(tmp_path: Path) -> None:
    path = put(tmp_path / "own" / "a.gguf", writer("a"))
    path.parent.chmod(0o500)
    try:
        with pytest.raises(LocalspecError, match="Permission denied"):
            removed(tmp_path)
    finally:
        path.parent.chmod(0o700)
    assert path.exists()


def test_what_is_gone_already_is_no_error(tmp_path: Path) -> None:
    path = put(tmp_path / "own" / "a.gguf", writer("a"))
    plan = plan_removal(the_model(tmp_path, every_place(tmp_path)), every_place(tmp_path))
    path.unlink()
    remove_files(plan)
