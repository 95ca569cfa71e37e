"""What is asked of the engine, and what the conversation keeps."""

from __future__ import annotations

from typing import Any

import pytest

from localspec.engine.client import Engine
from localspec.engine.events import Cancelled, Failed, Finished, FinishReason, LoadFailed, Loading, Queued, TextSpan
from localspec.engine.requests import ChatPrompt, Message, Mode, SamplingParams
from localspec.errors import EngineDiedError, EngineError, ModelFileError
from localspec.speculative.rejection import Origin
from localspec.tui.bridge import EngineEvent, merge
from localspec.tui.conversation import Outcome
from localspec.tui.options import ChatOptions
from localspec.tui.session import Readiness, Session
from tests.tui.chat_driver import PAIR
from tests.tui.scripted_engine import LOADED, ScriptedEngine, complete, metrics, reply_events

DIED = EngineDiedError("The engine process ended (signal 9).")


class Chat:
    """A session whose events are taken at once."""

    def __init__(self, engine: ScriptedEngine | None = None, **options: Any) -> None:
        self.engine = engine or ScriptedEngine()
        as_engine: Engine = self.engine
        self.session = Session(as_engine, PAIR, ChatOptions(**options), self._take)
        self.session.load()

    def _take(self, event: EngineEvent) -> None:
        for report in merge([event]):
            self.session.take(report)
            self.session.submit_waiting()

    def reply(self, prompt: str, text: str) -> None:
        self.session.send(prompt)
        self.engine.play(complete(text))

    def sent(self) -> tuple[Message, ...]:
        prompt = self.engine.requests[-1].prompt
        assert isinstance(prompt, ChatPrompt)
        return prompt.messages


def test_the_request_carries_what_the_chat_was_started_with() -> None:
    sampling = SamplingParams(temperature=0.2, seed=7)
    chat = Chat(sampling=sampling, mode=Mode.LOOKUP, num_speculative_tokens=8, max_tokens=99, system="Be brief.")
    chat.session.send("hi")
    (request,) = chat.engine.requests
    assert request.sampling == sampling
    assert (request.mode, request.num_speculative_tokens, request.max_tokens) == (Mode.LOOKUP, 8, 99)
    assert chat.sent() == (Message("system", "Be brief."), Message("user", "hi"))


@pytest.mark.parametrize("ceiling", [None, 0])
def test_no_ceiling_and_a_ceiling_of_zero_reach_the_engine_as_they_are(ceiling: int | None) -> None:
    chat = Chat(num_speculative_tokens=ceiling)
    chat.session.send("hi")
    assert chat.engine.requests[0].num_speculative_tokens == ceiling


def test_the_history_grows_by_what_was_said() -> None:
    chat = Chat()
    chat.reply("one", "first *reply*\x1b[31m")
    chat.session.send("two")
    # As the model wrote it: only the screen is protected from it.
    assert chat.sent() == (
        Message("user", "one"),
        Message("assistant", "first *reply*\x1b[31m"),
        Message("user", "two"),
    )


def test_text_held_back_until_the_end_belongs_to_the_reply() -> None:
    chat = Chat()
    exchange = chat.session.send("one")
    events = reply_events("almost ")
    tail = (TextSpan("done", Origin.COPIED),)
    chat.engine.play([*events, Finished("", tail, FinishReason.LENGTH, metrics())])
    assert exchange.reply.text == "almost done"
    assert tuple(exchange.reply.spans[-1:]) == tail
    assert exchange.reply.reason is FinishReason.LENGTH


def test_a_stopped_reply_is_history_with_what_it_has() -> None:
    chat = Chat()
    chat.session.send("one")
    chat.engine.play(reply_events("first words"))
    assert chat.session.stop() is None
    assert chat.engine.cancelled == [chat.engine.requests[0].request_id]
    assert chat.session.open is not None  # until the engine says so
    chat.engine.play([Cancelled("", (TextSpan(" more", Origin.DRAFT),), metrics())])
    chat.session.send("two")
    assert chat.sent()[1] == Message("assistant", "first words more")


def test_a_reply_stopped_before_its_first_word_is_not_history() -> None:
    chat = Chat()
    exchange = chat.session.send("one")
    chat.session.stop()
    chat.engine.play([Cancelled("", (), metrics())])
    assert not exchange.is_history
    chat.session.send("two")
    assert chat.sent() == (Message("user", "two"),)


def test_an_empty_reply_is_history() -> None:
    """Templates want turns to alternate, and the model should see that it said nothing."""
    chat = Chat()
    chat.session.send("one")
    chat.engine.play([Finished("", (), FinishReason.STOP, metrics())])
    chat.session.send("two")
    assert chat.sent()[1] == Message("assistant", "")


def test_a_failed_reply_is_not_history() -> None:
    chat = Chat()
    chat.session.send("one")
    chat.engine.play([*reply_events("some"), Failed("", DIED)])
    assert chat.session.open is None
    chat.session.send("one again")
    assert chat.sent() == (Message("user", "one again"),)


def test_the_mode_of_a_reply_is_that_of_its_start() -> None:
    chat = Chat()
    exchange = chat.session.send("one")
    chat.session.mode = Mode.PLAIN
    assert exchange.reply.mode is Mode.AUTO
    chat.engine.play(complete("text"))
    chat.session.send("two")
    assert [request.mode for request in chat.engine.requests] == [Mode.AUTO, Mode.PLAIN]


def test_a_fixed_length_is_for_the_modes_with_one_source() -> None:
    chat = Chat(fixed_length=True, num_speculative_tokens=6)
    for mode in (Mode.DRAFT, Mode.AUTO, Mode.LOOKUP):
        chat.session.mode = mode
        chat.session.send("text")
        chat.engine.play(complete("text"))
    assert [request.fixed_length for request in chat.engine.requests] == [True, False, True]


def test_the_engine_says_which_mode_runs() -> None:
    chat = Chat()
    exchange = chat.session.send("one")
    chat.engine.play([Queued("", 7, Mode.PLAIN, "the draft model cannot take back tokens")])
    assert exchange.reply.mode is Mode.PLAIN
    assert chat.session.mode is Mode.AUTO


def test_one_reply_at_a_time() -> None:
    chat = Chat()
    chat.session.send("one")
    with pytest.raises(RuntimeError):
        chat.session.send("two")
    assert len(chat.engine.requests) == 1


def test_a_prompt_sent_while_the_models_load_waits() -> None:
    chat = Chat(ScriptedEngine(load_events=[Loading("Loading the target", 0.1)]))
    chat.session.send("early")
    assert chat.engine.requests == []
    chat.engine.report_load(LOADED)
    assert chat.sent() == (Message("user", "early"),)
    chat.engine.report_load(LOADED)  # a second load does not submit it twice
    assert len(chat.engine.requests) == 1


def test_a_waiting_prompt_can_be_stopped() -> None:
    chat = Chat(ScriptedEngine(load_events=[]))
    exchange = chat.session.send("early")
    assert chat.session.stop() is exchange
    assert exchange.reply.outcome is Outcome.STOPPED
    chat.engine.report_load(LOADED)
    assert chat.engine.requests == []


def test_a_waiting_prompt_fails_with_the_load_and_the_next_one_loads_again() -> None:
    chat = Chat(ScriptedEngine(load_events=[]))
    exchange = chat.session.send("early")
    chat.engine.report_load(LoadFailed(ModelFileError("target.gguf is empty.")))
    assert chat.session.readiness is Readiness.FAILED
    assert chat.session.withdraw() is exchange
    chat.session.send("again")
    assert chat.engine.n_loads == 2
    chat.engine.report_load(LOADED)
    assert chat.sent() == (Message("user", "again"),)


def test_a_reply_that_the_engine_runs_is_not_withdrawn() -> None:
    chat = Chat()
    chat.session.send("one")
    assert chat.session.withdraw() is None
    assert chat.session.open is not None


def test_a_request_that_is_refused_changes_nothing() -> None:
    chat = Chat(ScriptedEngine(refuses_submit=EngineError("closed")))
    with pytest.raises(EngineError):
        chat.session.send("one")
    assert chat.session.open is None
    assert chat.session.conversation.exchanges == []


def test_a_new_chat_forgets_the_history_and_what_still_runs() -> None:
    chat = Chat(system="Be brief.")
    chat.reply("one", "first")
    chat.session.send("two")
    chat.session.forget()
    assert chat.engine.cancelled == [chat.engine.requests[1].request_id]
    chat.session.send("three")
    assert chat.sent() == (Message("system", "Be brief."), Message("user", "three"))
    chat.engine.play(complete("a late reply"), request=1)
    assert chat.session.open is not None
    assert chat.session.open.reply.is_empty


def test_the_last_exchange_can_be_taken_back_once_it_has_ended() -> None:
    chat = Chat()
    assert chat.session.take_back() is None
    chat.reply("one", "first")
    chat.session.send("two")
    assert chat.session.take_back() is None
    chat.engine.play(complete("second"))
    taken = chat.session.take_back()
    assert taken is not None
    assert taken.prompt == "two"
    chat.session.send("two, other words")
    assert chat.sent() == (Message("user", "one"), Message("assistant", "first"), Message("user", "two, other words"))
