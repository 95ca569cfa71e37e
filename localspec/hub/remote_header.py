"""The header of a model on the Hub, by ranged reads: a few MB of a file of any size, and only once."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from localspec.errors import HubUnreachableError, ModelError
from localspec.hub.header_store import HeaderStore
from localspec.hub.patience import Patience
from localspec.hub.remote_model import RemoteFile, RemoteModel
from localspec.hub.session import Session, in_time
from localspec.models.gguf import parse_header
from localspec.models.header import GgufHeader
from localspec.models.split import merge_parts, tensors_alone

__all__ = ["RemoteHeader", "read_remote_header", "stored_header"]

MAX_PIECE_BYTES: Final = 2 * 1024 * 1024
_N_AT_ONCE: Final = 4
_N_FAILURES: Final = 3
_LONGEST_ASKED_S: Final = 10.0
_PIECE_TIME_S: Final = 180.0


@dataclass(frozen=True, slots=True)
class RemoteHeader:
    """A header and how many bytes of files were transferred for it; 0: it was here."""

    header: GgufHeader
    n_bytes_read: int


def read_remote_header(session: Session, store: HeaderStore, model: RemoteModel) -> RemoteHeader:
    """Read the header of a model, of all its parts where it has several, without its weights; what was read is kept.

    Raises:
        HubError: a part cannot be had.
        ModelFileError: it is no GGUF file, damaged, or not as long as it promises; the parts do not belong together.
        UnsupportedModelError: as `models.gguf.read_header`.
    """
    readers = [_RangedFile(session, store, model, file) for file in model.files]
    headers = _headers(readers)
    header = headers[0] if len(headers) == 1 else merge_parts(headers)
    return RemoteHeader(header, sum(reader.n_bytes_read for reader in readers))


def stored_header(store: HeaderStore, model: RemoteModel) -> GgufHeader | None:
    """The same from what was read before; None where that is not all of it.

    Raises:
        ModelFileError: the parts do not belong together.
    """
    headers: list[GgufHeader] = []
    for file in model.files:
        header = _stored(store, model, file)
        if header is None:
            return None
        headers.append(tensors_alone(header) if headers else header)
    return headers[0] if len(headers) == 1 else merge_parts(headers)


def _stored(store: HeaderStore, model: RemoteModel, file: RemoteFile) -> GgufHeader | None:
    content = store.get(model.repo, file)
    if content is None:
        return None

    def read(offset: int, n_bytes: int) -> bytes:
        end = min(offset + n_bytes, file.n_bytes)
        return content[offset:end].ljust(end - offset, b"\0")  # weights, of which nobody looks at the first

    try:
        return parse_header(PurePosixPath(model.repo, file.name), file.n_bytes, read)
    except ModelError:  # kept by another version, maybe
        return None


def _headers(readers: Sequence[_RangedFile]) -> list[GgufHeader]:
    first = readers[0].header()  # alone: where it is refused, the others need not be asked for
    if len(readers) == 1:
        return [first]
    return [first, *_at_once(readers[1:])]


def _at_once(readers: Sequence[_RangedFile]) -> list[GgufHeader]:
    """What later parts have, by several threads. An executor's would keep the program from ending until they end."""
    waiting: queue.SimpleQueue[tuple[_RangedFile, Future[GgufHeader]]] = queue.SimpleQueue()
    results: list[Future[GgufHeader]] = []
    for reader in readers:
        results.append(Future())
        waiting.put((reader, results[-1]))
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            try:
                reader, result = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                result.set_result(tensors_alone(reader.header(stop)))
            except BaseException as error:  # whoever waits for the result raises it
                result.set_exception(error)

    for _ in range(min(_N_AT_ONCE, len(readers))):
        threading.Thread(target=work, daemon=True).start()
    try:
        return [result.result() for result in results]
    finally:
        stop.set()


class _RangedFile:
    """One file on the Hub. `n_bytes_read` counts what was transferred of it, wanted or not."""

    def __init__(self, session: Session, store: HeaderStore, model: RemoteModel, file: RemoteFile) -> None:
        self._session = session
        self._store = store
        self._model = model
        self._file = file
        self._stop = threading.Event()
        self._content = bytearray()
        self.n_bytes_read = 0

    def header(self, stop: threading.Event | None = None) -> GgufHeader:
        """Read it; once `stop` is set, nothing is tried again."""
        self._stop = stop or self._stop
        if (header := _stored(self._store, self._model, self._file)) is not None:
            return header
        path = PurePosixPath(self._model.repo, self._file.name)
        header = parse_header(path, self._file.n_bytes, self._read)
        self._store.put(self._model.repo, self._file, bytes(self._content[: header.data_offset]))
        return header

    def _read(self, offset: int, n_bytes: int) -> bytes:
        end = min(offset + min(n_bytes, MAX_PIECE_BYTES), self._file.n_bytes)
        patience = Patience(_N_FAILURES, _LONGEST_ASKED_S, self._stop)
        while True:
            try:
                piece = self._once(offset, end)
            except HubUnreachableError as error:
                patience.wait(error)
                continue
            self._content += piece  # headers are read forward, without gaps
            return piece

    def _once(self, offset: int, end: int) -> bytes:
        wanted = bytearray()
        with self._session.content(self._model.repo, self._model.revision, self._file.name, offset, end) as content:
            position = content.offset  # 0 where the server knows no ranges: what lies before is read and dropped
            for piece in in_time(content.pieces, _PIECE_TIME_S):
                self.n_bytes_read += len(piece)
                wanted += piece[max(0, offset - position) : max(0, end - position)]
                position += len(piece)
                if position >= end:
                    break
        if not wanted:
            raise HubUnreachableError(f"The Hub sends nothing of {self._file.name}.", hint="Try again.")
        return bytes(wanted)
