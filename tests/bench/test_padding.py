"""Prompts that fill a context: to the token, with text that repeats no sentence."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.bench.padding import fill_context, filling, padded
from localspec.bench.workloads import Workload
from localspec.errors import UsageError

TASK = Workload("What is a lake?", "chat", "lake", max_tokens=100)


def words(workload: Workload) -> int:
    return len(workload.prompt.split())


def letters(workload: Workload) -> int:
    return len(workload.prompt)


def uneven(workload: Workload) -> int:
    """Words of up to three letters are one token, others two, as in a vocabulary that splits rare words."""
    return sum(1 + (len(word) > 3) for word in workload.prompt.split())


def test_the_filling_repeats_no_sentence_and_is_the_same_at_every_call():
    text = filling(9_000)
    sentences = [sentence for sentence in text.split(". ") if sentence]
    assert len(sentences) > 400
    assert len(set(sentences)) == len(sentences)
    assert filling(100) == filling(100)
    assert text.startswith(filling(100))
    assert len(text.split()) == 9_000


def test_the_task_comes_last():
    assert padded(TASK, 0) is TASK
    assert padded(TASK, 50).prompt.endswith(TASK.prompt)
    assert filling(50) in padded(TASK, 50).prompt


@given(n_context=st.integers(130, 9_000), count=st.sampled_from([words, letters, uneven]))
def test_prompt_and_reply_fill_the_context_and_no_more(n_context: int, count: Callable[[Workload], int]):
    filled = fill_context(TASK, n_context, count)
    n_total = count(filled) + TASK.max_tokens
    assert n_total <= n_context
    # One more word would be too many, or what is missing is less than a few words.
    n_frame = count(padded(TASK, 1)) - count(TASK)  # the sentence around the filling
    assert n_context - n_total <= max(8, n_frame, 20)


def test_few_counts_find_the_length():
    counted = []

    def count(workload: Workload) -> int:
        counted.append(workload)
        return uneven(workload)

    fill_context(TASK, 8_192, count)
    assert len(counted) <= 8


def test_a_prompt_that_is_too_long_is_refused_with_its_length():
    with pytest.raises(UsageError, match="chat/lake does not fit a context of 103: its prompt has 4 tokens"):
        fill_context(TASK, 103, words)
    assert fill_context(TASK, 104, words) == TASK
