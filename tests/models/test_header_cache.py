import json
import os
import threading
from pathlib import Path

import pytest

from localspec import paths
from localspec.models import header_cache
from localspec.models.header_cache import FileStamp, HeaderCache, HeaderSummary, summarize
from tests.models.gguf_bytes import name, write
from tests.models.local_models import writer
from tests.models.small_models import model_bytes


def stamps(path: Path) -> tuple[FileStamp, ...]:
    return (FileStamp(path.stat().st_size, path.stat().st_mtime_ns),)


def looked_up(headers: Path, path: Path) -> tuple[HeaderSummary, bool]:
    """A summary, and whether it was known."""
    opened = HeaderCache(headers)
    knew = opened.knows(path, stamps(path))
    summary = opened.summary(path, stamps(path))
    opened.save()
    return summary, knew


@pytest.fixture
def headers(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "headers.json"


def test_a_summary_is_kept_whole(tmp_path: Path, headers: Path) -> None:
    for raw in (writer("A model"), model_bytes(name("general.type", "adapter")), b"GGUF", model_bytes(tokens=None)):
        path = write(tmp_path / "a.gguf", raw)
        first, knew = looked_up(headers, path)
        assert not knew
        assert first == summarize(path)
        assert looked_up(headers, path) == (first, True)


def test_what_a_summary_says(tmp_path: Path) -> None:
    good = summarize(write(tmp_path / "good.gguf", writer("A model")))
    assert good.description is not None
    assert (good.description.name, good.refusal, good.problem) == ("A model", "", "")
    assert good.vocabulary is not None
    adapter = summarize(write(tmp_path / "adapter.gguf", model_bytes(name("general.type", "adapter"))))
    assert adapter.description is not None
    assert "LoRA adapter" in adapter.refusal
    broken = summarize(write(tmp_path / "broken.gguf", b"GGUF"))
    assert broken.description is None
    assert "ends inside its header" in broken.problem
    assert broken.hint


def test_another_size_or_time_is_another_file(tmp_path: Path, headers: Path) -> None:
    path = write(tmp_path / "a.gguf", writer("first"))
    looked_up(headers, path)
    os.utime(path, ns=(1, 1))
    assert looked_up(headers, path)[1] is False
    assert looked_up(headers, path)[1] is True
    path.write_bytes(writer("the second one, which is longer"))
    os.utime(path, ns=(1, 1))
    summary, knew = looked_up(headers, path)
    assert not knew
    assert summary.description is not None
    assert summary.description.name == "the second one, which is longer"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 100,
        b"{",
        b"[" * 100_000,
        b'{"localspec": "0.1.0", "entries": []}',
        b'{"localspec": "0.1.0", "entries": {"a": {"stamps": [], "summary": {"refusal": 3}}}}',
        b'{"localspec": 1}',
    ],
)
def test_a_damaged_cache_counts_as_empty_and_is_replaced(tmp_path: Path, headers: Path, content: bytes) -> None:
    path = write(tmp_path / "a.gguf", writer("a"))
    headers.parent.mkdir()
    headers.write_bytes(content)
    assert looked_up(headers, path)[1] is False
    assert looked_up(headers, path)[1] is True


def test_a_damaged_entry_is_not_believed(tmp_path: Path, headers: Path) -> None:
    path = write(tmp_path / "a.gguf", writer("a"))
    looked_up(headers, path)
    kept = json.loads(headers.read_bytes())
    next(iter(kept["entries"].values()))["summary"]["description"]["n_parameters"] = "many"
    headers.write_text(json.dumps(kept))
    assert looked_up(headers, path)[1] is False


def test_another_version_of_localspec_reads_again(
    tmp_path: Path, headers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.gguf", b"GGUF")
    looked_up(headers, path)
    monkeypatch.setattr(header_cache, "__version__", "9.9.9")
    assert looked_up(headers, path)[1] is False


def test_what_may_change_without_the_file_is_not_kept(
    tmp_path: Path, headers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.gguf", writer("a"))
    known = stamps(path)
    path.unlink()
    opened = HeaderCache(headers)
    assert "does not exist" in opened.summary(path, known).problem
    opened.save()
    assert not headers.exists()


def test_a_cache_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    path = write(tmp_path / "a.gguf", writer("a"))
    in_the_way = write(tmp_path / "file", b"")
    assert looked_up(in_the_way / "headers.json", path)[0].description is not None
    assert looked_up(tmp_path, path)[0].description is not None


def test_entries_of_other_folders_stay_up_to_a_limit(
    tmp_path: Path, headers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = (write(tmp_path / f"{each}.gguf", writer(each)) for each in ("one", "two", "three"))
    looked_up(headers, one)
    looked_up(headers, two)
    assert looked_up(headers, one)[1] is True
    monkeypatch.setattr(header_cache, "_MAX_ENTRIES", 2)
    looked_up(headers, three)
    assert len(json.loads(headers.read_bytes())["entries"]) == 2
    assert looked_up(headers, three)[1] is True


def test_several_writers_leave_one_good_file(tmp_path: Path, headers: Path) -> None:
    files = [write(tmp_path / f"{number}.gguf", writer(str(number))) for number in range(8)]

    def work(path: Path) -> None:
        for _ in range(10):
            opened = HeaderCache(headers)
            opened.summary(path, stamps(path))
            opened._n_new = 1  # as if it were new each time
            opened.save()

    threads = [threading.Thread(target=work, args=(path,)) for path in files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert any(HeaderCache(headers).knows(path, stamps(path)) for path in files)
    assert [each.name for each in headers.parent.iterdir()] == ["headers.json"]


def test_it_is_in_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    path = write(tmp_path / "a.gguf", writer("a"))
    opened = HeaderCache()
    opened.summary(path, stamps(path))
    opened.save()
    assert (tmp_path / "cache" / "headers.json").is_file()
