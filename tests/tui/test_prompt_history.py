"""The way back through earlier prompts."""

from __future__ import annotations

from localspec.tui.prompt_history import PromptHistory


def test_up_and_down_walk_through_the_prompts_and_back_to_what_was_being_written() -> None:
    history = PromptHistory()
    for prompt in ("one", "two"):
        history.add(prompt)
    assert history.older("unsent") == "two"
    assert history.older("two") == "one"
    assert history.older("one") is None
    assert history.newer() == "two"
    assert history.newer() == "unsent"
    assert history.newer() is None


def test_without_prompts_there_is_nowhere_to_go() -> None:
    history = PromptHistory()
    assert history.older("unsent") is None
    assert history.newer() is None


def test_a_prompt_sent_twice_is_kept_once() -> None:
    history = PromptHistory()
    for prompt in ("one", "one", "two", "one"):
        history.add(prompt)
    assert [history.older(""), history.older(""), history.older(""), history.older("")] == ["one", "two", "one", None]


def test_sending_ends_the_walk() -> None:
    history = PromptHistory()
    history.add("one")
    history.add("two")
    history.older("")
    history.older("")
    history.add("three")
    assert history.older("new") == "three"
