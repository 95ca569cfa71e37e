"""The engine interface, spoken to an OpenAI-style server: whoever can chat with a local pair can chat with that.

Everything that waits for the network runs in one event loop on a thread of its own, where listeners are called too.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import re
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from localspec.engine.client import AnswerListener, LoadListener, RequestListener, SwapListener
from localspec.engine.events import Cancelled, Failed, Finished, Loaded, LoadEvent, LoadFailed, Loading, SwapFailed
from localspec.engine.questions import Question, Refusal
from localspec.engine.requests import GenerateRequest, ModelSpec, PairSpec
from localspec.errors import EndpointError, EngineError, LoadCancelledError, LocalspecError, UsageError
from localspec.remote.connection import Connection, Patience
from localspec.remote.endpoint import Endpoint
from localspec.remote.reply import RemoteReply
from localspec.remote.server_facts import ServerFacts, ServerKind, ask_server

__all__ = ["RemoteEngine", "stand_in"]

_log = logging.getLogger(__name__)

_CLOSE_TIMEOUT_S: Final = 5.0
_LOADING_PATIENCE_S: Final = 600.0


def stand_in(endpoint: Endpoint) -> PairSpec:
    """For whoever asks which pair is loaded: the models are the server's, so there are no files to name."""
    return PairSpec(endpoint.url, ModelSpec(Path(endpoint.url)))


class RemoteEngine:
    """Chats with one server. Implements `Engine`; safe to call from any thread.

    `model` None: the only one that the server has. `sampling_names`: the fields of a request's sampling that the user
    has set; no other is sent. `own_flags`: flags that only localspec's own server understands; another one is refused.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        model: str | None = None,
        sampling_names: Collection[str] = (),
        own_flags: Collection[str] = (),
        patience: Patience | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._model = model
        self._sampling_names = frozenset(sampling_names)
        self._own_flags = tuple(own_flags)
        self._patience = patience or Patience()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False
        # Of the loop's thread.
        self._connection: Connection | None = None
        self._facts: ServerFacts | None = None
        self._refused: set[str] = set()  # names of fields
        self._load_task: asyncio.Task[Loaded] | None = None
        self._replies: dict[str, asyncio.Task[Finished]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def process_id(self) -> int | None:
        """None: the models are in no process of this program."""
        return None

    def load(self, pair: PairSpec, listener: LoadListener) -> None:
        """Ask the server who it is; `pair` stands for its models. A call before that has not ended is cancelled."""
        del pair
        self._call(lambda: self._start_load(listener))

    def swap_draft(self, draft: ModelSpec | None, listener: SwapListener) -> None:
        """Refused: the draft model is the server's."""
        del draft
        error = UsageError("The models of a server cannot be exchanged from here.", hint="Start it with others.")

        def refuse() -> None:
            _tell(listener, SwapFailed(error, None if self._facts is None else _loaded(self._facts)))

        self._call(refuse)

    def cancel_swap(self) -> None:
        """There is none."""

    def submit(self, request: GenerateRequest, listener: RequestListener) -> None:
        """Ask for a reply; returns at once."""
        self._call(lambda: self._start_reply(request, listener))

    def cancel(self, request_id: str) -> None:
        """Close the stream of a reply: the server notices that nobody listens."""

        def cancel() -> None:
            if task := self._replies.get(request_id):
                task.cancel()

        with suppress(EngineError):
            self._call(cancel)

    def ask(self, question: Question, listener: AnswerListener) -> None:
        """Refused: OpenAI-style servers answer nothing but replies."""
        error = UsageError(f"{self.endpoint.url} cannot be asked for that ({type(question).__name__}).")
        self._call(lambda: _tell(listener, Refusal(error)))

    def load_and_wait(self, pair: PairSpec, listener: LoadListener = lambda _: None) -> Loaded:
        """Ask the server who it is, and return when that is known.

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

    def close(self) -> None:
        """End the connections; open requests get `Cancelled` first."""
        with self._lock:
            self._is_closed = True
            loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        with suppress(RuntimeError):  # the loop has ended already
            loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(_CLOSE_TIMEOUT_S)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _call(self, function: Callable[[], None]) -> None:
        with self._lock:
            if self._is_closed:
                raise EngineError("The connection to the server was closed.")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=(self._loop,), name="remote", daemon=True)
                self._thread.start()
            self._loop.call_soon_threadsafe(function)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.set_default_executor(_DaemonThreads())
        try:
            loop.run_forever()
            loop.run_until_complete(self._end())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    async def _end(self) -> None:
        tasks: list[asyncio.Task[Any]] = [*self._replies.values()]
        tasks += [self._load_task] if self._load_task is not None else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()

    def _start_load(self, listener: LoadListener) -> None:
        if self._load_task is not None:
            self._load_task.cancel()
        self._load_task = asyncio.get_running_loop().create_task(self._look(listener))
        self._load_task.add_done_callback(lambda task: _tell(listener, self._outcome(task)))

    def _outcome(self, task: asyncio.Task[Loaded]) -> LoadEvent:
        if task.cancelled():
            return LoadFailed(LoadCancelledError(f"{self.endpoint.url} was no longer wanted."))
        error = task.exception()
        return task.result() if error is None else LoadFailed(self._as_ours(error))

    async def _look(self, listener: LoadListener) -> Loaded:
        self._facts = None
        self._refused.clear()
        url = self.endpoint.url

        def tell(what: str) -> None:
            _tell(listener, Loading(what, 0.0))

        tell(f"Asking {url}")
        facts = await ask_server(
            self._connected(),
            self._model,
            patience_s=_LOADING_PATIENCE_S,
            on_wait=lambda: tell(f"{url} loads its model"),
        )
        if self._own_flags and facts.kind is not ServerKind.LOCALSPEC:
            raise UsageError(
                f"{' and '.join(self._own_flags)}: {url} is no server of localspec, and drafts as it was started.",
                hint="Leave it out.",
            )
        self._facts = facts
        return _loaded(facts)

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self.endpoint, self._patience)
        return self._connection

    def _start_reply(self, request: GenerateRequest, listener: RequestListener) -> None:
        request_id = request.request_id
        if self._facts is None:
            error = EngineError(f"{self.endpoint.url} was not asked who it is.", hint="Load first.")
            _tell(listener, Failed(request_id, error))
            return
        try:
            reply = RemoteReply(
                request, self._facts, self._sampling_names, self._refused, lambda event: _tell(listener, event)
            )
            work = reply.run(self._connected())
        except Exception as failure:
            _tell(listener, Failed(request_id, self._as_ours(failure)))
            return

        def end(task: asyncio.Task[Finished]) -> None:
            self._replies.pop(request_id, None)
            if task.cancelled():  # perhaps before it has begun
                _tell(listener, Cancelled(request_id, (), reply.metrics))
            elif (error := task.exception()) is not None:
                _tell(listener, Failed(request_id, self._as_ours(error)))
            else:
                _tell(listener, task.result())

        self._replies[request_id] = asyncio.get_running_loop().create_task(work)
        self._replies[request_id].add_done_callback(end)

    def _as_ours(self, error: BaseException) -> LocalspecError:
        """No answer of a server may leave somebody waiting for an end, whatever it has brought about."""
        if isinstance(error, LocalspecError):
            return error
        _log.error("Unexpected, from %s", self.endpoint.url, exc_info=error)
        return EndpointError(
            f"Something unexpected came from {self.endpoint.url}: {type(error).__name__}.",
            hint="This is a bug; the log has the details.",
        )


class _DaemonThreads(ThreadPoolExecutor):
    """Looks up names of hosts. That cannot be cut short, and must not hold up the end of the program."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run it on a thread of its own."""
        future: Future[Any] = Future()

        def run() -> None:
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # whatever it is, it is for the one who waits
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=run, name="remote-lookup", daemon=True).start()
        return future


def _loaded(facts: ServerFacts) -> Loaded:
    return Loaded(
        target_name=_shown_name(facts.model),
        draft_name=facts.draft_name,
        n_ctx=facts.n_ctx or 0,
        n_vocab=0,
        n_threads=0,
        weights_bytes=0,
        gpu_offload=False,
        has_chat_template=True,
        takes_modes=facts.kind is ServerKind.LOCALSPEC,
    )


def _shown_name(model: str) -> str:
    """llama-server calls a model by the path of its file, unless it was given a name."""
    is_path = model.startswith("/") or model.lower().endswith(".gguf")
    return re.split(r"[/\\]", model)[-1] or model if is_path else model


def _tell(listener: Callable[[Any], None], event: object) -> None:
    """A listener's failure must not end the thread that serves the others."""
    try:
        listener(event)
    except Exception:
        _log.exception("A listener failed on %s", type(event).__name__)
