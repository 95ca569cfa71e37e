"""One life of the engine process: commands in, events out to those who listen, and the news of its death."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import IO, BinaryIO, Final, cast

from localspec.engine import protocol
from localspec.engine.events import (
    Cancelled,
    Failed,
    Finished,
    Loaded,
    LoadEvent,
    LoadFailed,
    RequestEvent,
    SwapEvent,
    SwapFailed,
)
from localspec.engine.protocol import AnswerReport, Ask, Close, Command, Load, LoadReport, Submit, SwapDraft
from localspec.engine.questions import AnswerEvent, Refusal
from localspec.engine.requests import GenerateRequest
from localspec.errors import EngineDiedError, LocalspecError, UsageError

logger = logging.getLogger(__name__)

RequestListener = Callable[[RequestEvent], None]
LoadListener = Callable[[LoadEvent], None]
SwapListener = Callable[[SwapEvent], None]
AnswerListener = Callable[[AnswerEvent], None]

_CLOSE_TIMEOUT_S: Final = 5.0
# What the user sets goes before these. No debugger on a failed assertion; numpy's own threads, which the engine has no
# use for, stay off its cores; and OpenMP threads that wait for each other yield as soon as on a machine that is shared
# (libgomp's own figure for one): beside busy processes decoding on two cores was 1.1 to 3 times as fast for it, alone
# the same.
_WORKER_ENVIRONMENT: Final = {"GGML_NO_BACKTRACE": "1", "OPENBLAS_NUM_THREADS": "1", "GOMP_SPINCOUNT": "1000"}
# How the worker's log lines begin; what becomes an error for the user is not also a line on the screen.
_LOG_LEVELS: Final = {"INFO": logging.INFO, "WARNING": logging.INFO, "ERROR": logging.WARNING}


class EngineProcess:
    """One life of the engine process, and who listens to it."""

    def __init__(self) -> None:
        options = {"start_new_session": True} if os.name == "posix" else {"creationflags": 0x00000200}
        self._popen = subprocess.Popen(
            # -P: nothing in the folder that the user happens to be in may be imported in place of a library.
            [sys.executable, "-P", "-m", "localspec.engine.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_WORKER_ENVIRONMENT | os.environ,
            **options,
        )
        self.pid: int = self._popen.pid
        self._lock = threading.Lock()
        self._requests: dict[str, RequestListener] = {}
        # Listeners of loads and exchanges, and the event that tells them of the end of this process.
        self._loads: dict[int, tuple[Callable[..., None], type[LoadFailed] | type[SwapFailed]]] = {}
        self._questions: dict[int, AnswerListener] = {}
        self._last_words: deque[str] = deque(maxlen=8)
        self._is_closing = False
        self._death: EngineDiedError | None = None
        self._log_thread = self._start_thread(self._read_log, cast(IO[bytes], self._popen.stderr))
        self._report_thread = self._start_thread(self._read_reports, cast(IO[bytes], self._popen.stdout))

    def _start_thread(self, target: Callable[[IO[bytes]], None], stream: IO[bytes]) -> threading.Thread:
        thread = threading.Thread(target=target, args=(stream,), name=f"engine-{target.__name__}", daemon=True)
        thread.start()
        return thread

    @property
    def is_alive(self) -> bool:
        return self._death is None and self._popen.poll() is None

    def load(self, command: Load, listener: LoadListener) -> None:
        with self._lock:
            self._loads[command.load_id] = listener, LoadFailed
        self._send_or_fail(command)

    def swap_draft(self, command: SwapDraft, listener: SwapListener) -> None:
        with self._lock:
            self._loads[command.load_id] = listener, SwapFailed
        self._send_or_fail(command)

    def submit(self, request: GenerateRequest, listener: RequestListener) -> None:
        with self._lock:
            if request.request_id in self._requests:
                raise UsageError(
                    f"Request {request.request_id} is already running.", hint="Give every request an id of its own."
                )
            self._requests[request.request_id] = listener
        self._send_or_fail(Submit(request))

    def ask(self, command: Ask, listener: AnswerListener) -> None:
        with self._lock:
            self._questions[command.ask_id] = listener
        self._send_or_fail(command)

    def send(self, command: Command) -> None:
        """Send what nobody waits for."""
        with self._lock, suppress(OSError, ValueError):
            protocol.send(cast(BinaryIO, self._popen.stdin), command)

    def _send_or_fail(self, command: Command) -> None:
        """A process that has just died is noticed by the reader; one that is already mourned is noticed here."""
        self.send(command)
        if self._death is not None:
            self._fail_everything(self._death)

    def close(self) -> None:
        self._is_closing = True
        try:
            self.send(Close())
            self._popen.wait(_CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            # Also after a Ctrl-C in the middle of waiting: no engine outlives its client.
            if self._popen.poll() is None:
                self._popen.kill()
                self._popen.wait()
        if threading.current_thread() is not self._report_thread:
            self._report_thread.join(_CLOSE_TIMEOUT_S)

    # --- the threads ---------------------------------------------------------------------------------------------

    def _read_reports(self, stream: IO[bytes]) -> None:
        with stream:
            while True:
                try:
                    report = protocol.receive(cast(BinaryIO, stream))
                except EOFError:
                    break
                self._dispatch(report)
        self._popen.wait()
        with self._lock, suppress(OSError):
            cast(BinaryIO, self._popen.stdin).close()
        self._log_thread.join(1.0)
        self._death = self._describe_death()
        if not self._is_closing:
            logger.info("%s", self._death)  # whoever waits for it is told
        self._fail_everything(self._death)

    def _dispatch(self, report: object) -> None:
        listener: Callable[..., None] | None = None
        event: object = report
        with self._lock:
            if isinstance(report, LoadReport):
                event = report.event
                ended = isinstance(event, Loaded | LoadFailed | SwapFailed)
                known = self._loads.pop(report.load_id, None) if ended else self._loads.get(report.load_id)
                listener = known[0] if known is not None else None
            elif isinstance(report, AnswerReport):
                event = report.event
                listener = self._questions.pop(report.ask_id, None)
            elif isinstance(report, Finished | Cancelled | Failed):
                listener = self._requests.pop(report.request_id, None)
            else:
                listener = self._requests.get(getattr(report, "request_id", ""))
        if listener is not None:
            _call(listener, event)

    def _fail_everything(self, error: LocalspecError) -> None:
        with self._lock:
            requests, self._requests = self._requests, {}
            loads, self._loads = self._loads, {}
            questions, self._questions = self._questions, {}
        for load_listener, failed in loads.values():
            _call(load_listener, failed(error))
        for request_id, listener in requests.items():
            _call(listener, Failed(request_id, error))
        for answer_listener in questions.values():
            _call(answer_listener, Refusal(error))

    def _read_log(self, stream: IO[bytes]) -> None:
        with stream:
            for raw in stream:
                line = raw.decode("utf-8", "replace").rstrip()[:2_000]
                level = _LOG_LEVELS.get(line.partition(" ")[0], logging.DEBUG)
                logger.log(level, "engine: %s", line)
                # What native code prints before it aborts has no level.
                if line and not line.startswith(("DEBUG ", "INFO ")):
                    self._last_words.append(line)

    def _describe_death(self) -> EngineDiedError:
        code = self._popen.returncode
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        words = f" Its last words: {self._last_words[-1]}" if self._last_words else ""
        return EngineDiedError(
            f"The engine process {how}.{words}",
            hint="The next request starts it again. If it happens again, the log has the details.",
        )


def _call(listener: Callable[..., None], event: object) -> None:
    """A listener's failure must not end the thread that serves the others."""
    try:
        listener(event)
    except Exception:
        logger.exception("A listener failed on %s", type(event).__name__)
