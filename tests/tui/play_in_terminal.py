"""A chat with a scripted engine, for a real terminal: python -m tests.tui.play_in_terminal"""

from __future__ import annotations

import threading
from collections.abc import Callable

from localspec.engine.client import RequestListener
from localspec.engine.requests import ChatPrompt, GenerateRequest
from tests.tui.chat_driver import make_app
from tests.tui.scripted_engine import ScriptedEngine, complete

# Sets the title, moves the cursor, leaves the alternate screen, resets the terminal.
HOSTILE = "before \x1b]0;owned\x07 \x1b[1;1Hmoved \x1b[?1049l \x1bc \x9b31m after"


class Answering(ScriptedEngine):
    """Answers every prompt at once with hostile text and the prompt itself."""

    def submit(self, request: GenerateRequest, listener: RequestListener) -> None:
        super().submit(request, listener)
        assert isinstance(request.prompt, ChatPrompt)
        self.play(complete(f"{HOSTILE}\n\nprompt: {request.prompt.messages[-1].content}"))


def on_a_thread(function: Callable[[], None]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


if __name__ == "__main__":
    make_app(Answering(caller=on_a_thread)).run()
