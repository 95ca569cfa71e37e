"""The engine as a front end sees it: submit, cancel, events. The models live in a process of their own.

llama.cpp ends its process on a failed assertion; here that ends replies, not the program. When the engine process
dies, every open request gets `Failed`, and the next one starts a new process and loads the same pair again.
"""

from __future__ import annotations

import logging
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO, BinaryIO, Final, Protocol, Self, cast

from localspec.engine import protocol
from localspec.engine.events import Cancelled, Failed, Finished, Loaded, LoadEvent, LoadFailed, RequestEvent
from localspec.engine.protocol import Cancel, Close, Command, Load, LoadReport, Submit
from localspec.engine.requests import GenerateRequest, PairSpec
from localspec.errors import EngineDiedError, EngineError, LocalspecError, UsageError

logger = logging.getLogger(__name__)

RequestListener = Callable[[RequestEvent], None]
LoadListener = Callable[[LoadEvent], None]

_CLOSE_TIMEOUT_S: Final = 5.0
# What the user sets goes before these. No debugger on a failed assertion; numpy's own threads, which the engine has no
# use for, stay off its cores; and OpenMP threads that wait for each other yield as soon as on a machine that is shared
# (libgomp's own figure for one): beside busy processes decoding on two cores was 1.1 to 3 times as fast for it, alone
# the same.
_WORKER_ENVIRONMENT: Final = {"GGML_NO_BACKTRACE": "1", "OPENBLAS_NUM_THREADS": "1", "GOMP_SPINCOUNT": "1000"}
# How the worker's log lines begin; what becomes an error for the user is not also a line on the screen.
_LOG_LEVELS: Final = {"INFO": logging.INFO, "WARNING": logging.INFO, "ERROR": logging.WARNING}


class Engine(Protocol):
    """What every front end talks to. Listeners are called from a thread of the engine's own, in order."""

    def load(self, pair: PairSpec, listener: LoadListener) -> None:
        """Start loading a pair, replacing the one before; returns at once."""

    def submit(self, request: GenerateRequest, listener: RequestListener) -> None:
        """Queue a request; returns at once. The listener gets exactly one terminal event."""

    def cancel(self, request_id: str) -> None:
        """Stop a request within one step. Unknown and ended requests are ignored."""

    def close(self) -> None:
        """End the engine; open requests get a terminal event first. May be called twice."""

    @property
    def process_id(self) -> int | None:
        """The process that holds the models, for memory figures; None while there is none."""


class EngineClient:
    """Runs the engine in a child process. Implements `Engine`; safe to call from any thread.

    Example:
        with EngineClient() as engine:
            engine.load_and_wait(pair)
            for event in engine.stream(GenerateRequest(RawPrompt("Once upon a time"), max_tokens=50)):
                if isinstance(event, StepDecoded):
                    print("".join(span.text for span in event.spans), end="")
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a listener may submit the next request
        self._process: _EngineProcess | None = None
        self._pair: PairSpec | None = None
        self._load_listener: LoadListener | None = None
        self._load_id = 0
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def process_id(self) -> int | None:
        """The engine process, or None while there is none."""
        process = self._process
        return process.pid if process is not None and process.is_alive else None

    def load(self, pair: PairSpec, listener: LoadListener) -> None:
        """Start loading a pair, replacing the one before; `listener` gets `Loading`, then `Loaded` or `LoadFailed`."""
        with self._lock:
            self._pair, self._load_listener = pair, listener
            self._start_load()

    def submit(self, request: GenerateRequest, listener: RequestListener) -> None:
        """Queue a request. When the engine process has died, a new one is started and loads the pair first."""
        with self._lock:
            if self._pair is None:
                raise EngineError("No model is loaded.", hint="Load a pair first.")
            if self._process is None or not self._process.is_alive:
                self._start_load()
            assert self._process is not None
            self._process.submit(request, listener)

    def cancel(self, request_id: str) -> None:
        """Stop a request within one step."""
        process = self._process
        if process is not None:
            process.send(Cancel(request_id))

    def close(self) -> None:
        """End the engine process; open requests get `Failed` first."""
        with self._lock:
            self._closed = True
            process, self._process = self._process, None
        if process is not None:
            process.close()

    def _start_load(self) -> None:
        if self._closed:
            raise EngineError("The engine was closed.")
        assert self._pair is not None
        assert self._load_listener is not None
        if self._process is None or not self._process.is_alive:
            self._process = _EngineProcess()
        self._load_id += 1
        self._process.load(Load(self._load_id, self._pair), self._load_listener)

    # --- for callers that wait -----------------------------------------------------------------------------------

    def load_and_wait(self, pair: PairSpec, listener: LoadListener = lambda _: None) -> Loaded:
        """Load a pair and return when it is ready.

        Raises:
            LocalspecError: why it is not.
        """
        events: queue.SimpleQueue[LoadEvent] = queue.SimpleQueue()
        self.load(pair, events.put)
        while True:
            event = events.get()
            listener(event)
            if isinstance(event, LoadFailed):
                raise event.error
            if isinstance(event, Loaded):
                return event

    def stream(self, request: GenerateRequest) -> Iterator[RequestEvent]:
        """The events of a request, up to and including `Finished` or `Cancelled`. Leaving the loop early cancels it.

        Raises:
            LocalspecError: the request failed.
        """
        events: queue.SimpleQueue[RequestEvent] = queue.SimpleQueue()
        self.submit(request, events.put)
        ended = False
        try:
            while not ended:
                event = events.get()
                ended = isinstance(event, Finished | Cancelled | Failed)
                if isinstance(event, Failed):
                    raise event.error
                yield event
        finally:
            if not ended:
                self.cancel(request.request_id)


class _EngineProcess:
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
        self._loads: dict[int, LoadListener] = {}
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
            self._loads[command.load_id] = listener
        self._send_or_fail(command)

    def submit(self, request: GenerateRequest, listener: RequestListener) -> None:
        with self._lock:
            if request.request_id in self._requests:
                raise UsageError(
                    f"Request {request.request_id} is already running.", hint="Give every request an id of its own."
                )
            self._requests[request.request_id] = listener
        self._send_or_fail(Submit(request))

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
                ended = isinstance(event, Loaded | LoadFailed)
                listener = self._loads.pop(report.load_id, None) if ended else self._loads.get(report.load_id)
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
        for load_listener in loads.values():
            _call(load_listener, LoadFailed(error))
        for request_id, listener in requests.items():
            _call(listener, Failed(request_id, error))

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
