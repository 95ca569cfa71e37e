"""What a container may take of the system's memory: the limits of control groups, version 1 and 2 (Linux)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

_SELF: Final = Path("/proc/self/cgroup")
_MOUNT: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """`total_bytes` may be taken in all; `free_bytes` of it are not taken, page cache counted as free."""

    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class _Files:
    """Where a version keeps what: the limits, what is used, and the page cache in it that can be dropped."""

    limits: tuple[str, ...]
    usage: str
    cache: tuple[str, ...]


# https://docs.kernel.org/admin-guide/cgroup-v2.html (beyond memory.high a group is slowed until it gives memory back)
_VERSION_2: Final = _Files(("memory.max", "memory.high"), "memory.current", ("active_file", "inactive_file"))
# https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
_VERSION_1: Final = _Files(
    ("memory.limit_in_bytes",), "memory.usage_in_bytes", ("total_active_file", "total_inactive_file")
)


def memory_limit(process: Path = _SELF, mount: Path = _MOUNT) -> MemoryLimit | None:
    """The tightest limit of this process's group and of those around it; None: there is none.

    `process` and `mount` are where Linux shows the groups of the process, and the tree of groups.
    """
    tightest: MemoryLimit | None = None
    for folder, files in _groups(process, mount):
        total = min((each for each in (_number(folder / name) for name in files.limits) if each), default=None)
        if total is None:
            continue
        used = (_number(folder / files.usage) or 0) - _cache_bytes(folder / "memory.stat", files.cache)
        free = max(0, total - max(0, used))
        if tightest is None:
            tightest = MemoryLimit(total, free)
        else:
            tightest = MemoryLimit(min(tightest.total_bytes, total), min(tightest.free_bytes, free))
    return tightest


def _groups(process: Path, mount: Path) -> Iterator[tuple[Path, _Files]]:
    """Every folder that may hold a limit of this process, from its own group outwards.

    Inside a container the path may be that of the system outside; the root of the mount is then the container's own.
    """
    try:
        lines = process.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            root, files = mount, _VERSION_2
        elif "memory" in controllers.split(","):
            root, files = mount / "memory", _VERSION_1
        else:
            continue
        # ".." means: outside of what this container can see.
        below = PurePosixPath("/") / path
        parts = () if ".." in below.parts else below.parts[1:]
        for n in range(len(parts), -1, -1):
            yield root.joinpath(*parts[:n]), files


def _number(file: Path) -> int | None:
    """What the file says; None where it does not exist, or says "max"."""
    with suppress(OSError, ValueError):
        return int(file.read_text(encoding="ascii"))
    return None


def _cache_bytes(file: Path, names: tuple[str, ...]) -> int:
    total = 0
    with suppress(OSError, ValueError):
        for line in file.read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(" ")
            total += int(value) if name in names else 0
    return total
