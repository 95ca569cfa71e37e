"""Conversations as templates want them."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.requests import Message
from localspec.server.tool_calls.turns import merged

MESSAGES = st.lists(st.builds(Message, st.sampled_from(["system", "user", "assistant", "tool"]), st.text(max_size=4)))


@given(MESSAGES)
def test_neighbouring_user_turns_become_one_and_nothing_else_changes(messages: list[Message]) -> None:
    turns = merged(messages)
    assert not any(a.role == b.role == "user" for a, b in itertools.pairwise(turns))
    assert [turn for turn in turns if turn.role != "user"] == [each for each in messages if each.role != "user"]
    joined = "\n\n".join(turn.content for turn in turns if turn.role == "user")
    assert joined == "\n\n".join(each.content for each in messages if each.role == "user")
