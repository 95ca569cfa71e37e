"""Where log messages go: stderr for the command line, a rotating file while the chat owns the terminal.

Loggers are named after their modules (`localspec.engine.worker` ...). What belongs on which level:

    WARNING   something is not as it was asked for: a draft that cannot be used, speculation that was turned off
    INFO      what was done, in numbers: a pair loaded, a process started
    DEBUG     everything else. Prompts and model output are written on this level only, or not at all.

stdout is never logged to: it belongs to generated text.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from localspec.printable import printable

_LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG)
_FILE_BYTES: Final = 1_000_000
_N_OLD_FILES: Final = 3
_HANDLER_NAME: Final = "localspec"

_STDERR_FORMAT: Final = "%(levelname)s %(name)s: %(message)s"
_FILE_FORMAT: Final = "%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"

_log = logging.getLogger(__name__)


def configure(verbosity: int = 0, *, file: Path | None = None) -> Path | None:
    """Send the log to stderr or, with `file`, to that file only. Call it again to change either.

    `verbosity` 0 shows warnings, 1 also INFO, 2 and more DEBUG. A file gets INFO at least: nobody is disturbed by it,
    and it is read after something went wrong. Warnings of other libraries go the same way.

    Returns the file that is written, or None: stderr was asked for, or the file cannot be written. That is warned of
    where the log went until then, and the program goes on without one: a full disk or a read-only home is no reason
    not to chat.
    """
    level = _LEVELS[max(0, min(verbosity, len(_LEVELS) - 1))]
    if file is None:
        _install(logging.StreamHandler(), _STDERR_FORMAT, level)
        logging.captureWarnings(False)
        return None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handler: logging.Handler = _PrivateFileHandler(
            file, maxBytes=_FILE_BYTES, backupCount=_N_OLD_FILES, encoding="utf-8"
        )
    except OSError as error:
        _log.warning("There will be no log: %s cannot be written (%s)", file, error.strerror)
        handler = logging.NullHandler()
    _install(handler, _FILE_FORMAT, min(level, logging.INFO))
    logging.captureWarnings(True)  # on stderr they would tear the screen
    return None if isinstance(handler, logging.NullHandler) else file


def _install(handler: logging.Handler, line_format: str, level: int) -> None:
    handler.setFormatter(_PlainTextFormatter(line_format))
    handler.name = _HANDLER_NAME
    root = logging.getLogger()
    for old in [each for each in root.handlers if each.name == _HANDLER_NAME]:
        root.removeHandler(old)
        old.close()
    # On the root, so that warnings of libraries are kept too; their INFO and DEBUG are not ours to show.
    root.addHandler(handler)
    logging.getLogger("localspec").setLevel(level)


class _PlainTextFormatter(logging.Formatter):
    """Names out of model files end up in messages; no escape sequence among them must reach a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class _PrivateFileHandler(RotatingFileHandler):
    """A log that only its owner can read, and whose failures stay silent: stderr shows a screen by then."""

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT, mode=0o600)
        return os.fdopen(descriptor, "a", encoding=self.encoding, errors="backslashreplace")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # the name is logging's
        pass

    def close(self) -> None:
        with suppress(OSError):  # flushing what a full disk did not take
            super().close()
