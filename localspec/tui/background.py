"""Questions that take their time, on threads of their own, and their answers back on the screen's loop.

The threads are daemons and not Textual's workers: one that waits for a silent server must not keep the program from
ending.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from textual.message import Message

from localspec.errors import LocalspecError

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Answered(Message, bubble=False):
    """Something is to be told on the screen's loop: call `tell`."""

    def __init__(self, tell: Callable[[], None]) -> None:
        super().__init__()
        self.tell = tell


class OutdatedError(Exception):
    """Nobody waits for the answer any more."""


class Background:
    """Asks on threads. Of one subject only the newest question is answered; an older one ends when it tells something.

    `post` hands a message to the screen and must be safe to call from any thread.
    """

    def __init__(self, post: Callable[[Answered], object]) -> None:
        self._post = post
        self._newest: Counter[str] = Counter()

    def ask(
        self,
        subject: str,
        work: Callable[[Question], T],
        then: Callable[[T], None],
        failed: Callable[[LocalspecError], None],
    ) -> None:
        """Run `work` on a thread, and hand what it returns to `then`, or what it raises to `failed`, on the loop."""
        self._newest[subject] += 1
        question = Question(self, subject, self._newest[subject])

        def run() -> None:
            with contextlib.suppress(OutdatedError):
                try:
                    answer = work(question)
                except LocalspecError as error:
                    found = error
                    question.tell(lambda: failed(found))
                except OutdatedError:
                    raise
                except Exception as error:
                    _log.exception("Asking for %s failed", subject)
                    text = f"{type(error).__name__}: {error}"
                    question.tell(lambda: failed(LocalspecError(text, hint="The log has the details.")))
                else:
                    question.tell(lambda: then(answer))

        threading.Thread(target=run, name=f"ask-{subject}", daemon=True).start()

    def drop(self, subject: str) -> None:
        """Nobody wants to know any more."""
        self._newest[subject] += 1

    def is_newest(self, subject: str, number: int) -> bool:
        """Whether a question is the last one on its subject."""
        return self._newest[subject] == number

    def post(self, tell: Callable[[], None]) -> None:
        """Call `tell` on the loop."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody looks
            self._post(Answered(tell))


class Question:
    """One question, for the thread that works on it."""

    def __init__(self, background: Background, subject: str, number: int) -> None:
        self._background = background
        self._subject = subject
        self._number = number

    def tell(self, tell: Callable[[], None]) -> None:
        """Call `tell` on the loop, unless the question is outdated by then.

        Raises:
            OutdatedError: it is already: the work may end.
        """
        if not self._background.is_newest(self._subject, self._number):
            raise OutdatedError

        def tell_if_newest() -> None:
            if self._background.is_newest(self._subject, self._number):
                tell()

        self._background.post(tell_if_newest)
