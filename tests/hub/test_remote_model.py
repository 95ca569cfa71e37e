"""Answers of the Hub are untrusted: nothing that they say leads out of the cache, or breaks with a traceback."""

from __future__ import annotations

from contextlib import suppress
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import HubError
from localspec.hub.remote_model import RemoteFile, RemoteModel, repositories, repository

SHA = "a" * 64
COMMIT = "b" * 40

HOSTILE = [
    "../../x.gguf",
    "a/../../../x.gguf",
    "/etc/x.gguf",
    "..\\..\\x.gguf",
    "a\\b.gguf",
    "C:\\x.gguf",
    "C:/x.gguf",
    "x.gguf:stream",
    "./x.gguf",
    "a//x.gguf",
    "a/./x.gguf",
    "",
    "..",
    "x\0.gguf",
    "x\x1b[2J.gguf",
    "\ud800.gguf",
    "x" * 300 + ".gguf",
    "a/" * 600 + "x.gguf",
]


def answer(*siblings: dict[str, Any], sha: str = COMMIT) -> dict[str, Any]:
    return {"id": "o/r", "sha": sha, "siblings": list(siblings)}


def sibling(name: str = "m-Q8_0.gguf", size: Any = 5, sha256: Any = SHA) -> dict[str, Any]:
    return {"rfilename": name, "size": size, "lfs": {"sha256": sha256, "size": size, "pointerSize": 1}}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(HubError, match="refused") as refused:
        RemoteFile(name, 1, SHA)
    assert "trust" in refused.value.hint
    assert refused.value.message.isprintable()


@given(st.text(alphabet="ab./\\: C~\0\n\u202e", max_size=12))
def test_whatever_name_is_accepted_stays_in_its_folder(name: str) -> None:
    try:
        RemoteFile(name, 1, SHA)
    except HubError:
        return
    for kind, root in ((PurePosixPath, "/cache"), (PureWindowsPath, "D:\\cache")):
        path = kind(root, name)
        assert path.is_relative_to(root)
        assert ".." not in path.parts
        assert path != kind(root)


@pytest.mark.parametrize(
    "values",
    [
        {"n_bytes": -1},
        {"n_bytes": 1 << 60},
        {"sha256": "../" + "a" * 61},
        {"sha256": "A" * 64},
        {"sha256": None, "git_id": "../../x"},
        {"sha256": None, "git_id": None},
    ],
)
def test_sizes_and_hashes_are_checked(values: dict[str, Any]) -> None:
    with pytest.raises(HubError):
        RemoteFile(**({"name": "m.gguf", "n_bytes": 1, "sha256": SHA} | values))


def test_one_hostile_name_condemns_the_repository() -> None:
    with pytest.raises(HubError, match="refused"):
        repository("o/r", answer(sibling(), sibling("../x.gguf")))


def test_other_files_are_none_of_our_business() -> None:
    strange = {"rfilename": "C:\\strange", "size": None}
    found = repository("o/r", answer(strange, sibling()))
    assert list(found.files) == ["m-Q8_0.gguf"]
    assert found.models() == [RemoteModel("o/r", COMMIT, "Q8_0", (RemoteFile("m-Q8_0.gguf", 5, SHA),))]


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        "text",
        {},
        answer(sha="main"),
        answer(sha="../../x"),
        answer(sibling(size="many")),
        answer(sibling(size=None)),
        answer(sibling(sha256=5)),
        answer(sibling(sha256=None)),
        answer({"size": 1}),
        {"sha": COMMIT, "siblings": 7},
        {"sha": COMMIT, "siblings": [None]},
    ],
)
def test_an_answer_of_another_form_is_an_error_that_helps(wrong: Any) -> None:
    with pytest.raises(HubError) as refused:
        repository("o/r", wrong)
    assert refused.value.exit_code == 1
    assert "o/r" in refused.value.message or "m-Q8_0.gguf" in refused.value.message


_KEYS = st.sampled_from(["id", "sha", "siblings", "rfilename", "size", "blobId", "lfs", "sha256", "gguf", "gated", "x"])
_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", COMMIT, SHA, "a.gguf", "o/r"])
_JSON = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=6), max_leaves=20
)


@given(_JSON)
def test_no_answer_breaks_anything(said: Any) -> None:
    for read in (repositories, lambda each: repository("o/r", each).models()):
        with suppress(HubError):
            read(said)


def test_a_file_without_size_names_the_likely_reason() -> None:
    with pytest.raises(HubError, match="how large") as refused:
        repository("o/r", answer({"rfilename": "m.gguf"}))
    assert "HF_ENDPOINT" in refused.value.hint


def test_files_outside_of_lfs_are_known_by_their_git_id() -> None:
    found = repository("o/r", answer({"rfilename": "m.gguf", "size": 3, "blobId": "c" * 40}))
    assert found.files["m.gguf"].blob == "c" * 40


def test_what_a_search_finds_is_kept_where_it_is_sound() -> None:
    good = {
        "id": "o/good",
        "downloads": 7,
        "likes": 1,
        "gated": "manual",
        "lastModified": "2026-03-01T10:00:00.000Z",
        "gguf": {"total": 135_000_000, "architecture": "llama", "context_length": 8192, "more": {}},
    }
    bad: list[Any] = [None, {}, {"id": "../../x"}, {"id": "o/r", "downloads": "many"}, {"id": "\x1b[2J/x"}, 5]
    bad += [{"id": each} for each in ("o/r--x", "o/r..x", "o/r.")]  # no reference could name them
    (found,) = repositories([*bad, good])
    assert (found.repo, found.n_downloads, found.is_gated) == ("o/good", 7, True)
    assert (found.architecture, found.n_parameters, found.n_ctx_train) == ("llama", 135_000_000, 8192)
    assert found.last_modified == "2026-03-01"
    with pytest.raises(HubError):
        repositories({"error": "x"})


def test_a_model_names_itself_again() -> None:
    file = RemoteFile("a/m.gguf", 5, SHA)
    assert RemoteModel("o/r", COMMIT, "Q8_0", (file,)).reference == "o/r:Q8_0"
    assert RemoteModel("o/r", COMMIT, "", (file,)).reference == "o/r/a/m.gguf"


def test_a_second_model_of_a_quantization_is_named_by_its_file() -> None:
    found = repository("o/r", answer(sibling("a-Q8_0.gguf"), sibling("b-Q8_0.gguf"), sibling("c-Q4_0.gguf")))
    assert [each.reference for each in found.models()] == ["o/r:Q8_0", "o/r/b-Q8_0.gguf", "o/r:Q4_0"]
    assert [found.model(each).reference for each in found.sets()] == ["o/r:Q8_0", "o/r/b-Q8_0.gguf", "o/r:Q4_0"]


def test_a_repository_with_too_many_files_costs_no_time() -> None:
    with pytest.raises(HubError, match="6,000 GGUF files"):
        repository("o/r", answer(*(sibling(f"{number}-00001-of-01000.gguf") for number in range(6_000))))
    found = repository("o/r", answer(*(sibling(f"{number}-00001-of-01000.gguf") for number in range(1_000))))
    assert found.models() == []


@pytest.mark.parametrize("number", [-1, 1 << 63, 10**400, 10**4_000])
def test_numbers_that_no_program_can_hold_are_refused(number: int) -> None:
    for found in (
        {"downloads": number},
        {"likes": number},
        {"gguf": {"total": number}},
        {"gguf": {"context_length": number}},
    ):
        assert repositories([{"id": "o/r"} | found, {"id": "o/s"}])[0].repo == "o/s"
    for each in (sibling(size=number), {"rfilename": "m.gguf", "size": number, "blobId": COMMIT}):
        with pytest.raises(HubError) as refused:
            repository("o/r", answer(each))
        assert len(refused.value.message) < 300
