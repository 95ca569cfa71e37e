"""The engine process: one loop that owns every llama.cpp handle.

    python -m localspec.engine.worker        commands on stdin, events on stdout, log lines on stderr

It ends when it is told to, or when its standard input does: a front end that dies takes it along.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import threading
from contextlib import suppress
from typing import BinaryIO

from localspec.engine import protocol
from localspec.engine.answers import Answers
from localspec.engine.draft_swap import swap_draft
from localspec.engine.events import Cancelled, Failed, LoadFailed, Loading, SwapFailed
from localspec.engine.loader import LoadedPair, load_pair
from localspec.engine.metrics import MetricsRecorder
from localspec.engine.protocol import (
    AnswerReport,
    Ask,
    Cancel,
    CancelSwap,
    Close,
    Command,
    Load,
    LoadReport,
    Report,
    Submit,
    SwapDraft,
)
from localspec.engine.questions import Refusal
from localspec.engine.requests import GenerateRequest
from localspec.engine.scheduler import Scheduler
from localspec.errors import EngineError, LoadCancelledError, LocalspecError

logger = logging.getLogger(__name__)


class Worker:
    """Commands in, events out. `run` returns after `Close`."""

    def __init__(self, commands: queue.SimpleQueue[Command], reports: BinaryIO) -> None:
        self._commands = commands
        self._reports = reports
        self._postponed: list[Command] = []
        self._pair: LoadedPair | None = None
        self._scheduler: Scheduler | None = None
        self._answers: Answers | None = None
        self._load_error: LocalspecError | None = None
        self._swap: SwapDraft | None = None  # waits for the replies that were asked for before it
        self._after_swap: list[Submit] = []  # and these wait for it
        self.is_loading = False  # read by the thread that receives commands

    def run(self) -> None:
        """Serve until told to close."""
        try:
            while self._serve():
                pass
        finally:
            self._unload(EngineError("The engine was closed before the reply was complete."))

    def _serve(self) -> bool:
        """Handle what has arrived, then take one step. False: close."""
        while (command := self._next_command()) is not None:
            if isinstance(command, Close):
                return False
            self._handle(command)
        if self._swap is not None and self._is_idle:
            self._swap_draft(self._swap)
        elif self._scheduler is not None:
            self._scheduler.step()
        return True

    @property
    def _is_idle(self) -> bool:
        return self._scheduler is None or self._scheduler.is_idle

    def _next_command(self) -> Command | None:
        """The next command; None when there is none and work is waiting. Blocks while there is nothing to do."""
        if self._postponed:
            return self._postponed.pop(0)
        try:
            return self._commands.get(block=self._is_idle and self._swap is None)
        except queue.Empty:
            return None

    def _handle(self, command: Command) -> None:
        match command:
            case Load():
                self.is_loading = True
                self._load(command)
                self.is_loading = False
            case SwapDraft():
                self._end_swap(LoadCancelledError("Another draft model was chosen meanwhile."))
                self._swap = command
            case CancelSwap(load_id):
                if self._swap is not None and self._swap.load_id == load_id:
                    self._end_swap(LoadCancelledError("The exchange of the draft model was cancelled."))
            case Submit(request):
                if self._swap is not None:
                    self._after_swap.append(command)
                else:
                    self._submit(request)
            case Cancel(request_id):
                self._cancel(request_id)
            case Ask():
                self._answer(command)
            case Close():
                pass

    def _submit(self, request: GenerateRequest) -> None:
        if self._scheduler is None:
            reason = self._load_error or EngineError("No model is loaded.", hint="Load a pair first.")
            self._report(Failed(request.request_id, reason))
        else:
            self._scheduler.submit(request)

    def _answer(self, command: Ask) -> None:
        if self._answers is None or self._scheduler is None:
            answer = Refusal(self._load_error or EngineError("No model is loaded.", hint="Load a pair first."))
            self._report(AnswerReport(command.ask_id, answer))
        else:
            self._report(AnswerReport(command.ask_id, self._answers.answer(command.question, self._scheduler)))

    def _cancel(self, request_id: str) -> None:
        for command in self._after_swap:
            if command.request.request_id == request_id:
                self._after_swap.remove(command)
                self._report(Cancelled(request_id, (), MetricsRecorder().snapshot()))
                return
        if self._scheduler is not None:
            self._scheduler.cancel(request_id)

    # --- loading -----------------------------------------------------------------------------------------------------

    def _load(self, command: Load) -> None:
        self._unload(EngineError("Another model was loaded before the reply was complete."))
        self._load_error = None

        def on_loading(event: Loading) -> bool:
            self._report(LoadReport(command.load_id, event))
            return not any(isinstance(each, Load | Close) for each in self._arrived())

        try:
            self._pair = load_pair(command.pair, on_loading)
        except LocalspecError as error:
            self._load_failed(command, error)
            return
        except Exception as error:
            logger.exception("Loading %s failed", command.pair.name)
            wrapped = EngineError(f"Loading {command.pair.name} failed: {type(error).__name__}: {error}.")
            self._load_failed(command, wrapped)
            return
        self._scheduler = Scheduler(self._pair, self._report, n_slots=command.pair.n_slots)
        self._answers = Answers(self._pair)
        self._report(LoadReport(command.load_id, self._pair.describe()))

    def _load_failed(self, command: Load, error: LocalspecError) -> None:
        self._load_error = error  # the answer to requests that were sent meanwhile
        self._report(LoadReport(command.load_id, LoadFailed(error)))

    def _arrived(self) -> list[Command]:
        """Commands that have come while something is loaded, and wait for the end of it."""
        with suppress(queue.Empty):
            while True:
                self._postponed.append(self._commands.get_nowait())
        return self._postponed

    def _swap_draft(self, command: SwapDraft) -> None:
        """Exchange the draft model; what was asked for after it comes next."""

        def on_loading(event: Loading) -> bool:
            self._report(LoadReport(command.load_id, event))
            return not any(
                isinstance(each, Load | Close | SwapDraft) or each == CancelSwap(command.load_id)
                for each in self._arrived()
            )

        if self._pair is None or self._scheduler is None:
            self._end_swap(self._load_error or EngineError("No model is loaded.", hint="Load a pair first."))
            return
        self.is_loading = True
        pair, error = swap_draft(self._pair, command.draft, on_loading)
        self.is_loading = False
        if pair is not self._pair:
            self._pair = pair
            self._scheduler.use(pair)
        self._end_swap(error)

    def _end_swap(self, error: LocalspecError | None) -> None:
        """Tell how the exchange ended, if there is one, and go on with the requests that waited for it."""
        swap, self._swap = self._swap, None
        if swap is None:
            return
        self._postponed[:0], self._after_swap = self._after_swap, []
        loaded = self._pair.describe() if self._pair is not None else None
        if error is None and loaded is not None:
            self._report(LoadReport(swap.load_id, loaded))
        else:
            assert error is not None
            self._report(LoadReport(swap.load_id, SwapFailed(error, loaded)))

    def _unload(self, reason: LocalspecError) -> None:
        scheduler, self._scheduler = self._scheduler, None
        pair, self._pair = self._pair, None
        waiting, self._after_swap = self._after_swap, []
        self._end_swap(LoadCancelledError("The models were unloaded before the draft model was exchanged."))
        if scheduler is not None:
            scheduler.fail_all(reason)
        for command in waiting:
            self._report(Failed(command.request.request_id, reason))
        answers, self._answers = self._answers, None
        if answers is not None:
            answers.close()
        if pair is not None:
            pair.close()

    def _report(self, report: Report) -> None:
        protocol.send(self._reports, report)


def _read_commands(stream: BinaryIO, worker: Worker, commands: queue.SimpleQueue[Command]) -> None:
    with suppress(EOFError):
        while True:
            command = protocol.receive(stream)
            if isinstance(command, Close) and worker.is_loading:
                break  # native code that reads or writes gigabytes stops in no other way
            commands.put(command)  # type: ignore[arg-type]
    # The front end is gone, or will not wait: nobody is left to take a reply.
    os._exit(0)


def main() -> None:
    """Run the engine on this process's standard streams."""
    # Ctrl-C goes to every process of the terminal; what it means is the front end's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A descriptor of its own: what native code prints to stderr is sometimes captured, our log is not meant then.
    log_stream = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace")
    logging.basicConfig(stream=log_stream, level=logging.DEBUG, format="%(levelname)s %(name)s: %(message)s")
    # A native library that prints must not write into the event stream.
    reports = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
    worker = Worker(commands, reports)
    threading.Thread(target=_read_commands, args=(sys.stdin.buffer, worker, commands), daemon=True).start()
    try:
        worker.run()
    except BrokenPipeError:
        os._exit(0)
    # The reader blocks in a read that nothing will end.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
