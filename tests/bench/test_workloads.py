"""Which prompts are measured, and what a file of one's own may hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.bench.workloads import DEFAULT_MAX_TOKENS, Workload, read_workloads, select_workloads
from localspec.engine.requests import Message
from localspec.errors import UsageError


def written(tmp_path: Path, text: str, name: str = "own.jsonl") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_standard_workloads_are_of_all_seven_kinds():
    workloads = read_workloads()
    kinds = dict.fromkeys(each.kind for each in workloads)
    assert list(kinds) == ["chat", "reasoning", "code", "edit", "summary", "extraction", "rag"]
    assert len({str(each) for each in workloads}) == len(workloads)
    assert all(each.prompt.strip() and each.max_tokens >= 100 for each in workloads)


def test_only_the_prompt_must_be_given(tmp_path: Path):
    bare, full = read_workloads(
        written(tmp_path, '\n{"prompt": "Hi"}\n\n{"kind":"k","name":"n","system":"s","prompt":"p","max_tokens":5}\n')
    )
    assert bare == Workload("Hi", "own", "line-2", None, DEFAULT_MAX_TOKENS)
    assert bare.chat.messages == (Message("user", "Hi"),)
    assert (str(full), full.max_tokens) == ("k/n", 5)
    assert full.chat.messages == (Message("system", "s"), Message("user", "p"))


def test_line_separators_inside_a_prompt_do_not_end_its_line(tmp_path: Path):
    (workload,) = read_workloads(written(tmp_path, '{"prompt": "a\u2028b\x85c"}'))
    assert workload.prompt == "a\u2028b\x85c"


def test_any_other_file_is_one_prompt(tmp_path: Path):
    path = written(tmp_path, '{"prompt": 1}\nis not JSON Lines here.\n', "my notes.txt")
    assert read_workloads(path) == [Workload('{"prompt": 1}\nis not JSON Lines here.', "own", "my notes")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "Invalid JSON"),
        ("[1]", "object"),
        ('{"kind": "k"}', "prompt"),
        ('{"prompt": ""}', "prompt"),
        ('{"prompt": 5}', "prompt"),
        ('{"prompt": "\\ud800"}', "JSON"),
        ('{"prompt": "x", "max_tokens": "5"}', "max_tokens"),
        ('{"prompt": "x", "max_tokens": true}', "max_tokens"),
        ('{"prompt": "x", "max_tokens": 0}', "max_tokens"),
        ('{"prompt": "x", "promt": "y"}', "promt"),
        ('{"prompt": "x", "name": "' + "n" * 41 + '"}', "name"),
    ],
)
def test_a_line_that_is_no_workload_is_named(tmp_path: Path, line: str, words: str):
    path = written(tmp_path, '{"prompt": "fine"}\n' + line)
    with pytest.raises(UsageError, match=rf"own\.jsonl, line 2: .*{words}"):
        read_workloads(path)


def test_two_prompts_of_one_name_are_refused(tmp_path: Path):
    with pytest.raises(UsageError, match=r"line 2.*own/a already"):
        read_workloads(written(tmp_path, '{"prompt": "x", "name": "a"}\n{"prompt": "y", "name": "a"}'))


@pytest.mark.parametrize("name", ["empty.jsonl", "empty.txt"])
def test_an_empty_file_is_refused(tmp_path: Path, name: str):
    with pytest.raises(UsageError, match="is empty"):
        read_workloads(written(tmp_path, " \n", name))


def test_files_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(UsageError, match="No such file"):
        read_workloads(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match="directory"):
        read_workloads(tmp_path)
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1"))
    with pytest.raises(UsageError, match="UTF-8"):
        read_workloads(tmp_path / "latin.txt")


def test_a_selection_is_by_kind_and_name():
    workloads = [Workload("x", "code", "a"), Workload("x", "code", "b"), Workload("x", "chat", "a")]
    assert select_workloads(workloads, [], []) == workloads
    assert select_workloads(workloads, ["code"], []) == workloads[:2]
    assert select_workloads(workloads, ["code"], ["a"]) == workloads[:1]
    assert select_workloads(workloads, [], ["a"]) == [workloads[0], workloads[2]]
    with pytest.raises(UsageError, match="kind poem") as refused:
        select_workloads(workloads, ["code", "poem"], [])
    assert "code, chat" in refused.value.hint
    with pytest.raises(UsageError, match="name c"):
        select_workloads(workloads, [], ["c"])
    with pytest.raises(UsageError, match="kind chat and named b"):
        select_workloads(workloads, ["chat"], ["b"])
