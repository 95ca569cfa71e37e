"""The chat over a server: the same screen, with what the server tells, and a dash for what it does not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from textual.pilot import Pilot

from localspec.engine.requests import Mode
from localspec.remote.endpoint import Endpoint
from localspec.remote.engine import RemoteEngine, stand_in
from localspec.tui.app import ChatApp
from localspec.tui.options import ChatOptions
from localspec.tui.widgets.statistics import Statistics
from tests.remote.server import Answer, FakeServer, chunk, event, json_answer, refusal, reply
from tests.tui.chat_driver import NARROW, WIDE, prompt, screen_text, send, until, until_shown

TIMINGS = {"cache_n": 4, "prompt_n": 9, "predicted_n": 24, "predicted_per_second": 40.0}
HOSTILE = "before \x1b]0;owned\x07 \x1b[1;1Hmoved \u202e &#x1b;[2J after"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer().running() as server:
        yield server


@asynccontextmanager
async def chat_with(
    server: FakeServer, size: tuple[int, int] = WIDE, **options: Any
) -> AsyncIterator[tuple[ChatApp, Pilot[None]]]:
    endpoint = Endpoint(options.pop("url", server.url))
    engine = RemoteEngine(endpoint)
    app = ChatApp(engine, stand_in(endpoint), ChatOptions(server=endpoint.url, **options))
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(pilot, lambda: app.chat.session.loaded is not None or app.screen is not app.chat)
        yield app, pilot


async def replied(pilot: Pilot[None], app: ChatApp, text: str) -> None:
    await send(pilot, text)
    await until(pilot, lambda: app.chat.session.open is None)


def rows(app: ChatApp) -> dict[str, str]:
    """The numbers beside the chat, by their labels."""
    lines = app.chat.query_one(Statistics).render().plain.splitlines()
    return {" ".join(words[:-1]): words[-1] for line in lines if (words := line.replace(" %", "%").split())}


async def test_the_screen_says_who_answers(server: FakeServer) -> None:
    server.speaks_llama_cpp()
    async with chat_with(server) as (app, _):
        text = screen_text(app)
        assert f"server   {server.url}" in text
        assert "model    tiny.gguf" in text
        assert "context  512 tokens" in text
        assert "weights" not in text
        assert "draft    " not in text
        assert rows(app)["context"] == "0/512"
        assert "memory" not in rows(app)


async def test_what_a_server_reports_is_shown(server: FakeServer) -> None:
    server.speaks_llama_cpp()
    server.answers = [reply("A ", "*short* ", "reply.", timings=TIMINGS | {"draft_n": 20, "draft_n_accepted": 18})]
    async with chat_with(server) as (app, pilot):
        await replied(pilot, app, "hi")
        assert "A short reply." in screen_text(app)
        assert "24 tokens · 40.0 tokens/s · 90.0 % accepted" in screen_text(app)
        seen = rows(app)
        assert (seen["tokens/s"], seen["accepted"], seen["tokens per step"]) == ("40.0", "90.0%", "4.00")
        assert (seen["reply tokens"], seen["context"]) == ("24", "37/512")
        assert (seen["last reply"], seen["draft length"]) == ("–", "–")  # its mode, and what nobody tells


@pytest.mark.parametrize("size", [WIDE, NARROW])
async def test_what_a_server_does_not_report_is_a_dash(server: FakeServer, size: tuple[int, int]) -> None:
    server.answers = [reply(*["word "] * 40)]
    async with chat_with(server, size) as (app, pilot):
        await replied(pilot, app, "hi")
        readings = app.chat.query_one(Statistics).readings
        unknown = (readings.rate, readings.accepted, readings.per_step, readings.draft_length, readings.reply)
        assert (*unknown, readings.context, readings.mode) == ("–",) * 7
        assert readings.first_token.endswith(" s")
        assert (readings.contributions, readings.rest_note, list(readings.steps)) == ([], "", [])
        text = screen_text(app)
        assert "resting" not in text
        assert "mode ·" not in text
        assert "0 %" not in text
        assert "·" not in app.chat.query_one(Statistics).render().plain  # no step without a draft was seen


async def test_keys_that_need_models_here_say_so(server: FakeServer) -> None:
    server.speaks_llama_cpp()
    async with chat_with(server) as (app, pilot):
        for key, said in [
            ("f2", "Its models are chosen where"),
            ("ctrl+t", "It drafts, or not"),
            ("ctrl+o", "It does not tell where"),
        ]:
            await pilot.press(key)
            await until_shown(pilot, said)
        assert app.screen is app.chat
        assert app.chat.session.mode is Mode.AUTO
        titles = [command.title for command in app.get_system_commands(app.screen)]
        assert not [title for title in titles if title.startswith(("Mode", "Pair", "Token"))]


async def test_localspecs_own_server_takes_modes(server: FakeServer) -> None:
    server.speaks_localspec()
    async with chat_with(server) as (app, pilot):
        assert "draft    a draft" in screen_text(app)
        assert rows(app)["next reply"] == "auto"
        await pilot.press("ctrl+t")
        await replied(pilot, app, "hi")
        assert server.chats[0].body["localspec"] == {"mode": "draft"}
        assert rows(app)["last reply"] == "draft"
        await pilot.press("ctrl+t", "ctrl+t", "ctrl+t")
        await replied(pilot, app, "hi")
        assert server.chats[1].body["localspec"] == {"mode": "auto"}


async def test_localspecs_server_without_a_draft_model_has_two_modes(server: FakeServer) -> None:
    server.speaks_localspec(draft=None)
    async with chat_with(server) as (app, pilot):
        await pilot.press("ctrl+t")
        assert app.chat.session.mode is Mode.PLAIN
        await pilot.press("ctrl+t")
        assert app.chat.session.mode is Mode.AUTO


async def test_thoughts_stand_above_the_reply_and_are_not_sent_back(server: FakeServer) -> None:
    thoughts = [event(chunk(delta={"reasoning_content": text})) for text in ("First ", "this.\n", "Then that.")]
    server.answers = [Answer([*thoughts, *reply("The ", "answer.").pieces]), reply("Another.")]
    async with chat_with(server) as (app, pilot):
        await replied(pilot, app, "why")
        text = screen_text(app)
        assert "▎ First this.\n" in text.replace("  ▎", "▎")
        assert "▎ Then that." in text
        assert "▎ The answer" not in text
        assert "The answer." in text
        await replied(pilot, app, "and")
        assert server.chats[1].body["messages"] == [
            {"role": "user", "content": "why"},
            {"role": "assistant", "content": "The answer."},
            {"role": "user", "content": "and"},
        ]


async def test_while_it_thinks_the_screen_says_so(server: FakeServer) -> None:
    server.answers = [Answer([event(chunk(delta={"reasoning_content": "hm"}))], holds=True)]
    async with chat_with(server) as (_, pilot):
        await send(pilot, "why")
        await until_shown(pilot, "hm", "thinking")


async def test_text_of_a_server_cannot_steer_the_terminal(server: FakeServer) -> None:
    server.models = [{"id": HOSTILE}]
    server.answers = [
        Answer([event(chunk(delta={"reasoning_content": HOSTILE})), *reply(HOSTILE).pieces]),
        refusal(400, HOSTILE),
    ]
    async with chat_with(server) as (app, pilot):
        for _ in range(2):
            await replied(pilot, app, "hi")
            text = screen_text(app)
            assert "before ␛]0;owned␇" in text
            assert not {"\x1b", "\x07", "\u202e"} & set(text)


async def test_a_server_that_cannot_be_reached_may_be_tried_again(server: FakeServer) -> None:
    server.pages["/v1/models"] = [refusal(502, "gone"), json_answer({"data": server.models})]
    async with chat_with(server) as (app, pilot):
        assert "The server refuses" in screen_text(app)
        assert "Try again" in screen_text(app)
        await pilot.press("enter")
        await until_shown(pilot, "model    a-model")
        await replied(pilot, app, "hi")
        assert "Hello there" in screen_text(app)


async def test_a_prompt_that_failed_comes_back_and_can_be_sent_again(server: FakeServer) -> None:
    server.answers = [Answer([event(chunk("some"))])]
    async with chat_with(server) as (app, pilot):
        await replied(pilot, app, "hi")
        assert "No whole answer from the server" in screen_text(app)
        assert "has ended its answer" in screen_text(app)
        await pilot.press("escape")
        assert prompt(app) == "hi"
        await pilot.press("enter")
        await until_shown(pilot, "Hello there")


async def test_a_chat_that_is_too_long_offers_a_new_one(server: FakeServer) -> None:
    said = {"message": "too long", "type": "exceed_context_size_error", "n_prompt_tokens": 900, "n_ctx": 512}
    server.answers = [json_answer({"error": said}, 400)]
    async with chat_with(server) as (app, pilot):
        await replied(pilot, app, "hi")
        assert "New chat" in screen_text(app)


async def test_escape_closes_the_stream(server: FakeServer) -> None:
    server.answers = [Answer([event(chunk("some words"))], holds=True)]
    async with chat_with(server) as (_, pilot):
        await send(pilot, "hi")
        await until_shown(pilot, "some words")
        await pilot.press("escape")
        await until_shown(pilot, "stopped")
        assert await asyncio.to_thread(server.left.wait, 5)


async def test_quitting_closes_the_stream(server: FakeServer) -> None:
    server.answers = [Answer([event(chunk("some words"))], holds=True)]
    async with chat_with(server) as (_, pilot):
        await send(pilot, "hi")
        await until_shown(pilot, "some words")
        await pilot.press("ctrl+q")
    assert await asyncio.to_thread(server.left.wait, 5)
