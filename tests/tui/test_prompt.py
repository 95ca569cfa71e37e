"""Writing a prompt: every key of the input, in the order in which they were pressed."""

from __future__ import annotations

from textual import events
from textual.app import App, ComposeResult

from localspec.tui.messages import PromptSent
from localspec.tui.widgets.prompt import Prompt


class PromptApp(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.prompt = Prompt()
        self.sent: list[str] = []
        self.pages: list[int] = []

    def compose(self) -> ComposeResult:
        yield self.prompt

    def on_prompt_sent(self, message: PromptSent) -> None:
        self.sent.append(message.text)

    def on_prompt_scrolled(self, message: Prompt.Scrolled) -> None:
        self.pages.append(message.pages)


async def test_enter_sends_and_empties_the_input() -> None:
    app = PromptApp()
    async with app.run_test() as pilot:
        await pilot.press("h", "i", "enter")
        await pilot.pause()
        assert app.sent == ["hi"]
        assert app.prompt.text == ""


async def test_a_blank_prompt_is_not_sent() -> None:
    app = PromptApp()
    async with app.run_test() as pilot:
        await pilot.press("space", "ctrl+j", "enter")
        await pilot.pause()
        assert app.sent == []
        assert app.prompt.text == " \n"


async def test_three_keys_start_a_line() -> None:
    app = PromptApp()
    async with app.run_test() as pilot:
        await pilot.press("a", "ctrl+j", "b", "shift+enter", "c", "alt+enter", "d", "enter")
        await pilot.pause()
        assert app.sent == ["a\nb\nc\nd"]


async def test_keys_that_wait_in_the_queue_are_taken_in_their_order() -> None:
    """A terminal hands over a burst of keys at once; Enter must not overtake the letters before it."""
    app = PromptApp()
    async with app.run_test() as pilot:
        for key, character in [*((letter, letter) for letter in "one"), ("enter", "\r"), ("x", "x"), ("ctrl+j", "\n")]:
            app.post_message(events.Key(key, character))
        await pilot.pause()
        assert app.sent == ["one"]
        assert app.prompt.text == "x\n"


async def test_up_and_down_move_between_lines_and_at_the_edges_between_prompts() -> None:
    app = PromptApp()
    async with app.run_test() as pilot:
        await pilot.press("o", "n", "e", "enter", "t", "ctrl+j", "w", "enter", "n", "e", "w")
        await pilot.press("up")
        assert app.prompt.text == "t\nw"
        await pilot.press("up")  # from its second line to its first
        assert app.prompt.text == "t\nw"
        await pilot.press("up")
        assert app.prompt.text == "one"
        await pilot.press("up")
        assert app.prompt.text == "one"
        await pilot.press("down", "down")
        assert app.prompt.text == "new"


async def test_a_wrapped_line_is_walked_through_before_its_prompt_is_left() -> None:
    app = PromptApp()
    async with app.run_test(size=(30, 10)) as pilot:
        await pilot.press("o", "enter")
        app.prompt.insert("word " * 10)
        await pilot.pause()
        await pilot.press("up")
        assert app.prompt.text != "o"
        await pilot.press("up", "up")
        assert app.prompt.text == "o"


async def test_pages_scroll_the_transcript() -> None:
    app = PromptApp()
    async with app.run_test() as pilot:
        await pilot.press("pageup", "pagedown")
        await pilot.pause()
        assert app.pages == [-1, 1]


async def test_a_prompt_that_comes_back_goes_before_what_was_written_since() -> None:
    app = PromptApp()
    async with app.run_test() as pilot:
        app.prompt.give_back("failed")
        assert app.prompt.text == "failed"
        app.prompt.text = "next"
        app.prompt.give_back("failed")
        assert app.prompt.text == "failed\n\nnext"
        await pilot.press("!")
        assert app.prompt.text == "failed\n\nnext!"
        app.prompt.take_out("failed")
        assert app.prompt.text == "failed\n\nnext!"
        app.prompt.text = "failed"
        app.prompt.take_out("failed")
        assert app.prompt.text == ""


async def test_a_paste_keeps_its_lines_and_loses_its_control_characters() -> None:
    app = PromptApp()
    async with app.run_test() as pilot:
        app.post_message(events.Paste("one\r\n\x1b[31mtwo\n"))
        await pilot.pause()
        assert app.prompt.text == "one\n␛[31mtwo\n"
        assert app.sent == []


async def test_a_pasted_file_is_taken_whole() -> None:
    app = PromptApp()
    text = "a line of a file that is long enough to wrap around\n" * 4000
    async with app.run_test(size=(40, 10)) as pilot:
        app.post_message(events.Paste(text))
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        assert app.sent == [text]
