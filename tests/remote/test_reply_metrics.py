"""The numbers of somebody else's reply: what is reported, what is measured, and a dash for the rest."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from localspec.engine.metrics import RequestMetrics
from localspec.remote.chunks import Chunk, Reported
from localspec.remote.reply_metrics import MEASURED, ReplyMeter


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def measured(*chunks: tuple[float, Chunk]) -> RequestMetrics:
    """After chunks that arrive at seconds after the request."""
    clock = Clock()
    meter = ReplyMeter(clock)
    for at, chunk in chunks:
        clock.now = 100.0 + at
        meter.take(chunk)
    return meter.snapshot()


def counted(n_tokens: int, **more: int | float) -> Chunk:
    return Chunk("x", reported=Reported(n_tokens=n_tokens, **more))


def test_a_server_that_tells_nothing_leaves_everything_but_its_first_word_unknown() -> None:
    metrics = measured((0.5, Chunk("a")), (1.0, Chunk("b")), (1.5, Chunk(finish_reason="stop")))
    assert metrics.ttft_s == 0.5
    assert metrics.tokens_per_second is metrics.recent_tokens_per_second is None
    assert metrics.draft_acceptance_rate is metrics.mean_acceptance_length is None
    assert metrics.n_tokens == metrics.n_context_tokens == metrics.n_steps == 0


def test_the_first_word_may_be_a_thought() -> None:
    assert measured((0.2, Chunk()), (0.7, Chunk(reasoning="hm")), (2.0, Chunk("a"))).ttft_s == pytest.approx(0.7)


def test_speed_is_measured_where_only_tokens_are_reported() -> None:
    usage = Chunk(reported=Reported(n_prompt_tokens=7, n_tokens=11))
    metrics = measured((1.0, Chunk("a")), (3.0, Chunk("b")), (9.0, usage))
    assert metrics.tokens_per_second == pytest.approx(5.0)  # the ten after the first, in two seconds
    assert metrics.n_context_tokens == 18
    assert metrics.draft_acceptance_rate is metrics.mean_acceptance_length is None


def test_the_servers_own_speed_goes_before_what_is_measured_from_afar() -> None:
    assert measured((1.0, counted(1)), (3.0, counted(11, tokens_per_second=50.0))).tokens_per_second == 50.0


def test_a_reply_that_arrives_at_once_has_no_speed() -> None:
    metrics = measured((1.0, Chunk("a")), (1.0, Chunk("b")), (1.0, Chunk(reported=Reported(n_tokens=100))))
    assert metrics.tokens_per_second is None


def test_speed_now_is_over_the_last_two_seconds() -> None:
    slow = [(1.0 + n, counted(1 + n)) for n in range(10)]
    fast = [(10.0 + n / 10, counted(10 + n)) for n in range(1, 31)]
    assert measured(*slow).recent_tokens_per_second == pytest.approx(1.0, rel=0.5)
    assert measured(*slow, *fast).recent_tokens_per_second == pytest.approx(10.0, rel=0.1)


def test_tokens_of_one_step_that_arrive_together_are_no_speed() -> None:
    burst = [(1.0 + n / 1000, counted(1 + n)) for n in range(5)]
    assert measured(*burst).recent_tokens_per_second is None
    later = [(4.0 + n / 1000, counted(6 + n)) for n in range(5)]
    assert measured(*burst, *later).recent_tokens_per_second == pytest.approx(2.5)


def of_steps(steps: Sequence[tuple[int, int]]) -> list[tuple[float, Chunk]]:
    """As llama-server reports steps (drafted, accepted): one chunk per token, drafts from their first token on."""
    n_tokens = n_drafted = n_accepted = 0
    chunks: list[tuple[float, Chunk]] = []
    for at, (drafted, accepted) in enumerate(steps):
        n_drafted, n_accepted = n_drafted + drafted, n_accepted + accepted
        drafts = {"n_drafted": n_drafted, "n_accepted": n_accepted} if n_drafted else {}
        for _ in range(accepted + 1):
            n_tokens += 1
            chunks.append((float(at), counted(n_tokens, **drafts)))
    return chunks


STEPS = [(0, 0), (3, 0), (3, 3), (0, 0), (3, 1), (3, 3)]


def test_steps_are_told_from_tokens_and_drafts() -> None:
    metrics = measured(*of_steps(STEPS))
    assert metrics.n_steps == len(STEPS)
    assert metrics.mean_acceptance_length == pytest.approx(1 + 7 / 6)
    assert metrics.draft_acceptance_rate == pytest.approx(7 / 12)


def test_tokens_per_step_are_right_in_the_middle_of_a_step_too() -> None:
    chunks = of_steps(STEPS)
    n_steps = [step for step, (_, accepted) in enumerate(STEPS, 1) for _ in range(accepted + 1)]
    for n, expected in enumerate(n_steps, 1):
        metrics = measured(*chunks[:n])
        assert metrics.n_steps in {0, expected, expected - 1}, n  # a plain step shows with its token
        if metrics.n_steps and STEPS[expected - 1][0]:
            assert metrics.n_steps == expected


def test_drafts_that_are_reported_at_the_end_say_as_much() -> None:
    drafts = Reported(n_tokens=53, n_drafted=129, n_accepted=10, n_draft_steps=40)
    metrics = measured((1.0, Chunk("a")), (2.0, Chunk(reported=drafts)))
    assert (metrics.n_steps, metrics.n_plain_steps) == (43, 3)
    assert metrics.mean_acceptance_length == pytest.approx(1 + 10 / 43)


def test_a_server_that_drafts_nothing_and_says_so() -> None:
    metrics = measured((1.0, counted(5, n_drafted=0, n_accepted=0)))
    assert metrics.draft_acceptance_rate is None
    assert metrics.mean_acceptance_length == 1.0


def test_the_names_of_what_can_be_known_exist() -> None:
    known = measured((1.0, Chunk("a"))).as_dict()
    assert set(MEASURED) <= known.keys()
