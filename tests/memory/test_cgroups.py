"""Limits of containers, from trees of files as the kernel shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.memory.cgroups import MemoryLimit, memory_limit

GIB = 2**30
UNLIMITED_V1 = 9223372036854771712


def write(folder: Path, **values: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (folder / name.replace("__", ".")).write_text(f"{value}\n")


@pytest.fixture
def process(tmp_path: Path) -> Path:
    return tmp_path / "cgroup"


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    return tmp_path / "sys"


def test_this_machine_has_a_limit_or_none():
    limit = memory_limit()
    assert limit is None or 0 <= limit.free_bytes <= limit.total_bytes


def test_a_system_without_groups_has_no_limit(process: Path, mount: Path):
    assert memory_limit(process, mount) is None
    process.write_text("0::/user.slice\n")
    assert memory_limit(process, mount) is None


class TestVersion2:
    def test_page_cache_counts_as_free(self, process: Path, mount: Path):
        process.write_text("0::/app\n")
        stat = f"anon {GIB}\nactive_file {GIB}\ninactive_file {2 * GIB}\nslab 17"
        write(mount / "app", memory__max=8 * GIB, memory__current=5 * GIB, memory__stat=stat)
        assert memory_limit(process, mount) == MemoryLimit(8 * GIB, 6 * GIB)

    def test_the_tightest_group_around_the_process_counts(self, process: Path, mount: Path):
        process.write_text("0::/user.slice/session.scope/app\n")
        write(mount / "user.slice", memory__max=4 * GIB, memory__current=3 * GIB)
        write(mount / "user.slice/session.scope", memory__max="max", memory__current=1 * GIB)
        write(mount / "user.slice/session.scope/app", memory__max=6 * GIB, memory__current=0)
        assert memory_limit(process, mount) == MemoryLimit(4 * GIB, 1 * GIB)

    def test_the_limit_at_which_a_group_is_slowed_counts_too(self, process: Path, mount: Path):
        process.write_text("0::/app\n")
        write(mount / "app", memory__max="max", memory__high=2 * GIB, memory__current=GIB)
        assert memory_limit(process, mount) == MemoryLimit(2 * GIB, GIB)

    def test_inside_a_container_the_root_is_its_own_group(self, process: Path, mount: Path):
        process.write_text("0::/\n")
        write(mount, memory__max=2 * GIB, memory__current=0)
        assert memory_limit(process, mount) == MemoryLimit(2 * GIB, 2 * GIB)

    @pytest.mark.parametrize("path", ["/../../other", "/docker/0123/that/is/not/here"])
    def test_a_path_of_the_system_outside_falls_back_to_the_root(self, process: Path, mount: Path, path: str):
        process.write_text(f"0::{path}\n")
        write(mount, memory__max=3 * GIB, memory__current=GIB)
        assert memory_limit(process, mount) == MemoryLimit(3 * GIB, 2 * GIB)

    def test_more_used_than_allowed_leaves_nothing(self, process: Path, mount: Path):
        process.write_text("0::/app\n")
        write(mount / "app", memory__max=GIB, memory__current=2 * GIB)
        assert memory_limit(process, mount) == MemoryLimit(GIB, 0)


class TestVersion1:
    LINES = "9:name=systemd:/x\n4:cpu,memory:/docker/ab\n0::/\n"

    def test_its_own_names_are_read(self, process: Path, mount: Path):
        process.write_text(self.LINES)
        write(
            mount / "memory/docker/ab",
            memory__limit_in_bytes=4 * GIB,
            memory__usage_in_bytes=3 * GIB,
            memory__stat=f"active_file 5\ntotal_active_file {GIB}\ntotal_inactive_file {GIB}",
        )
        assert memory_limit(process, mount) == MemoryLimit(4 * GIB, 3 * GIB)

    def test_no_limit_is_a_very_large_one(self, process: Path, mount: Path):
        process.write_text(self.LINES)
        write(mount / "memory", memory__limit_in_bytes=UNLIMITED_V1, memory__usage_in_bytes=GIB)
        limit = memory_limit(process, mount)
        assert limit is not None
        assert limit.total_bytes == UNLIMITED_V1


@pytest.mark.parametrize("text", ["", "nonsense", ":::", "0::", "\x00\xff"])
def test_lines_of_another_kind_are_no_limit(process: Path, mount: Path, text: str):
    process.write_text(text, encoding="utf-8")
    assert memory_limit(process, mount) is None


def test_values_of_another_kind_are_no_limit(process: Path, mount: Path):
    process.write_text("0::/app\n")
    write(mount / "app", memory__max="a lot", memory__current="some", memory__stat="inactive_file many")
    assert memory_limit(process, mount) is None
    write(mount / "app", memory__max=GIB)
    assert memory_limit(process, mount) == MemoryLimit(GIB, GIB)
