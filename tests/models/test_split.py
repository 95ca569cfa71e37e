from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import ModelFileError
from localspec.models.gguf import read_header
from localspec.models.header import GgufHeader
from localspec.models.split import merge_parts, part_names, part_number, read_model, without_part
from tests.models.gguf_bytes import U16, entry, gguf, name, number, strings, tensor, write


def part_bytes(part: int, n_parts: int, tensors: list[str], *, n_tensors: int | None = None) -> bytes:
    entries = [
        entry("split.no", U16, part.to_bytes(2, "little")),
        entry("split.count", U16, n_parts.to_bytes(2, "little")),
    ]
    if n_tensors is not None:
        entries.append(number("split.tensors.count", n_tensors))
    if part == 0:
        entries += [name("general.architecture", "llama"), strings("tokenizer.ggml.tokens", ["a", "b"])]
    table = [tensor(each, (8,), offset=32 * place) for place, each in enumerate(tensors)]
    return gguf(entries, table, b"\1" * 32 * len(tensors))


def write_set(folder: Path, tensors: list[list[str]], stem: str = "big-Q4_K_M") -> list[Path]:
    names = part_names(f"{stem}-00001-of-{len(tensors):05d}.gguf")
    count = sum(map(len, tensors))
    return [
        write(folder / each, part_bytes(part, len(tensors), tensors[part], n_tensors=count))
        for part, each in enumerate(names)
    ]


def refusal(path: Path) -> ModelFileError:
    with pytest.raises(ModelFileError) as caught:
        read_model(path)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("one", "others"),
    [
        ("a-00001-of-00003.gguf", [f"a-0000{n}-of-00003.gguf" for n in (1, 2, 3)]),
        ("dir/a-00002-of-00002.gguf", ["dir/a-00001-of-00002.gguf", "dir/a-00002-of-00002.gguf"]),
        ("a.gguf", ["a.gguf"]),
        ("a-00001-of-00001.gguf", ["a-00001-of-00001.gguf"]),
        ("a-00000-of-00002.gguf", ["a-00000-of-00002.gguf"]),
        ("a-00003-of-00002.gguf", ["a-00003-of-00002.gguf"]),
        ("a-00001-of-99999.gguf", ["a-00001-of-99999.gguf"]),
        ("a-1-of-3.gguf", ["a-1-of-3.gguf"]),
        ("a-00001-of-00002.bin", ["a-00001-of-00002.bin"]),
    ],
)
def test_names_of_parts(one: str, others: list[str]) -> None:
    assert part_names(one) == others


@given(st.text(min_size=1, max_size=20), st.integers(1, 1000), st.data())
def test_every_part_names_the_same_set(stem: str, n_parts: int, data: st.DataObject) -> None:
    part = data.draw(st.integers(1, n_parts))
    one = f"{stem}-{part:05d}-of-{n_parts:05d}.gguf"
    names = part_names(one)
    assert len(names) == n_parts
    assert names[part - 1] == one
    assert all(part_names(each) == names for each in (names[0], names[-1]))
    assert part_number(one) == part
    assert without_part(one) == f"{stem}.gguf"


def test_a_set_is_one_model(tmp_path: Path) -> None:
    paths = write_set(tmp_path, [["token_embd"], ["a", "b"], ["output"]])
    header = read_model(paths[0])
    assert header.path == paths[0]
    assert [each.name for each in header.tensors] == ["token_embd", "a", "b", "output"]
    assert header.file_size == sum(path.stat().st_size for path in paths)
    assert header.architecture == "llama"
    assert len(header.strings("tokenizer.ggml.tokens") or ()) == 2


def test_a_first_part_may_hold_no_tensors_and_one_file_is_itself(tmp_path: Path) -> None:
    assert len(read_model(write_set(tmp_path, [[], ["a"]])[0]).tensors) == 1
    path = write(tmp_path / "one.gguf", gguf([name("general.architecture", "llama")]))
    assert read_model(path) == read_header(path)


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    paths = write_set(tmp_path, [["a"], ["b"], ["c"]])
    paths[1].unlink()
    error = refusal(paths[0])
    assert "of which big-Q4_K_M-00002-of-00003.gguf is missing" in error.message
    assert str(tmp_path) in error.hint
    paths[2].unlink()
    assert "00002-of-00003.gguf and 1 more are missing" in refusal(paths[0]).message


def test_only_the_first_part_stands_for_the_model(tmp_path: Path) -> None:
    paths = write_set(tmp_path, [["a"], ["b"]])
    error = refusal(paths[1])
    assert "not the first of the 2 parts" in error.message
    assert paths[0].name in error.hint
    assert "cannot be found" in refusal(paths[0].rename(tmp_path / "renamed.gguf")).message
    assert "not the first" in refusal(paths[1].rename(tmp_path / "other-00001-of-00002.gguf")).message


def test_a_cut_part_is_named(tmp_path: Path) -> None:
    paths = write_set(tmp_path, [["a"], ["b"]])
    paths[1].write_bytes(paths[1].read_bytes()[:-40])
    assert f"{paths[1]} is cut" in refusal(paths[0]).message


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (part_bytes(1, 3, ["b"]), "is not part 2 of 2"),
        (part_bytes(0, 2, ["b"]), "is not part 2 of 2"),
        (gguf([name("general.architecture", "llama")]), "is not part 2 of 2"),
        (part_bytes(1, 2, ["a"]), "has the tensor 'a', which an earlier part has too"),
        (part_bytes(1, 2, ["b", "c"]), "promises 2 tensors in all its parts, which have 3"),
    ],
)
def test_parts_of_different_models(tmp_path: Path, second: bytes, words: str) -> None:
    paths = write_set(tmp_path, [["a"], ["b"]])
    paths[1].write_bytes(second)
    assert words in refusal(paths[0]).message


def test_links_to_parts_elsewhere_as_in_a_hub_cache(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    for place, path in enumerate(write_set(tmp_path, [["a"], ["b"]])):
        blob = path.rename(tmp_path / "blobs" / f"blob{place}")
        (tmp_path / "snapshot" / path.name).symlink_to(blob)
    assert len(read_model(tmp_path / "snapshot" / "big-Q4_K_M-00001-of-00002.gguf").tensors) == 2


def test_remote_parts_merge_too(tmp_path: Path) -> None:
    headers = [read_header(path) for path in write_set(tmp_path, [["a"], ["b"]])]
    remote = [
        GgufHeader(
            PurePosixPath("o/r", each.path.name), 3, each.metadata, each.tensors, each.data_offset, each.file_size
        )
        for each in headers
    ]
    assert [each.name for each in merge_parts(remote).tensors] == ["a", "b"]
    with pytest.raises(ModelFileError, match="o/r/big"):
        merge_parts(remote[::-1])


@pytest.mark.parametrize("ending", ["-00001-of-00002.GGUF", "-00001-OF-00002.gguf"])
def test_capitals_that_llama_cpp_does_not_know_are_refused(tmp_path: Path, ending: str) -> None:
    for path in write_set(tmp_path, [["a"], ["b"]], "q"):
        new = path.name.replace(".gguf", ".GGUF") if "GGUF" in ending else path.name.replace("-of-", "-OF-")
        path.rename(tmp_path / new)
    assert "does not end in -00001-of-00002.gguf" in refusal(tmp_path / f"q{ending}").message
