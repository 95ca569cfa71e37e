"""llama.cpp's log, line by line into `logging`, with the recent complaints kept for error messages."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

import llama_cpp

logger = logging.getLogger("localspec.llama.native")

# ggml_log_level (debug 1, info 2, warn 3, error 4) -> logging level. Its INFO is a hundred lines a load: DEBUG here.
_LEVELS: Final = {3: logging.INFO, 4: logging.WARNING}
_ERROR: Final = 4
_CONTINUED: Final = 5
_MAX_LINE: Final = 2_000

# Gets ggml's level and a line.
Observer = Callable[[int, str], None]


class _NativeLog:
    """Joins the pieces that llama.cpp writes into lines."""

    def __init__(self) -> None:
        self._level = 1
        self._pending = ""
        self._observers: list[Observer] = []

    def write(self, level: int, text: str) -> None:
        if level != _CONTINUED:
            self._level = level
        *lines, rest = (self._pending + text).split("\n")
        self._pending = rest[-_MAX_LINE:]
        for line in lines:
            self._line(self._level, line[:_MAX_LINE].rstrip())

    def _line(self, level: int, line: str) -> None:
        if not line:
            return
        logger.log(_LEVELS.get(level, logging.DEBUG), "%s", line)
        for observer in self._observers:
            observer(level, line)

    @contextmanager
    def observed(self, observer: Observer) -> Iterator[None]:
        self._observers.append(observer)
        try:
            yield
        finally:
            self._observers.remove(observer)


_log = _NativeLog()


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator, unused-ignore]
def _callback(level: int, text: bytes | None, _user_data: ctypes.c_void_p) -> None:
    # An exception must not travel into C.
    try:
        _log.write(level, (text or b"").decode("utf-8", "replace"))
    except Exception:
        logger.exception("A line of llama.cpp's log was lost")


def install() -> None:
    """Take over llama.cpp's log. Its default writes to stderr, which tears a terminal interface."""
    llama_cpp.llama_log_set(_callback, ctypes.c_void_p(0))


def observed(observer: Observer) -> AbstractContextManager[None]:
    """Call `observer` with every line that llama.cpp writes inside the block."""
    return _log.observed(observer)


@contextmanager
def captured_errors() -> Iterator[deque[str]]:
    """Collect the error lines that llama.cpp writes inside the block (the last 20)."""
    lines: deque[str] = deque(maxlen=20)
    with _log.observed(lambda level, line: lines.append(line) if level == _ERROR else None):
        yield lines


@contextmanager
def captured_stderr() -> Iterator[list[str]]:
    """Collect what native code prints to file descriptor 2 inside the block; the list is filled when it ends."""
    lines: list[str] = []
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            file.seek(0)
            lines.extend(file.read(64 * _MAX_LINE).decode("utf-8", "replace").splitlines())
