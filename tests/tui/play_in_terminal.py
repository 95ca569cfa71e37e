"""A chat with a scripted engine, for a real terminal: python -m tests.tui.play_in_terminal"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from localspec.engine.client import RequestListener, SwapListener
from localspec.engine.requests import ChatPrompt, GenerateRequest, ModelSpec
from localspec.pairing.service import Listing
from tests.tui.chat_driver import PAIR, make_app
from tests.tui.scripted_engine import LOADED, ScriptedEngine, complete
from tests.tui.scripted_pairs import ScriptedPairs, draft, entry, target

# Sets the title, moves the cursor, leaves the alternate screen, resets the terminal.
HOSTILE = "before \x1b]0;owned\x07 \x1b[1;1Hmoved \x1b[?1049l \x1bc \x9b31m after"


class Answering(ScriptedEngine):
    """Answers every prompt at once with hostile text and the prompt itself, and exchanges the draft model at once."""

    def swap_draft(self, draft: ModelSpec | None, listener: SwapListener) -> None:
        super().swap_draft(draft, listener)
        self.report_swap(replace(LOADED, draft_name=HOSTILE))

    def submit(self, request: GenerateRequest, listener: RequestListener) -> None:
        super().submit(request, listener)
        assert isinstance(request.prompt, ChatPrompt)
        self.play(complete(f"{HOSTILE}\n\nprompt: {request.prompt.messages[-1].content}"))


def on_a_thread(function: Callable[[], None]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def some_pairs() -> ScriptedPairs:
    """The target of the chat, and others with hostile names."""
    loaded = target("first")
    loaded = replace(loaded, model=replace(loaded.model, path=PAIR.target.path))
    return ScriptedPairs(
        here=Listing((entry("first", loaded_as="target"), entry(f"second {HOSTILE}"))),
        target_of=lambda chosen, _: loaded if chosen.name == "first" else target("second"),
        drafts_of=lambda of: [draft("a draft", of)],
        notes=[HOSTILE],
    )


if __name__ == "__main__":
    make_app(Answering(caller=on_a_thread), pairs=some_pairs()).run()
