"""A reply's numbers by others' names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.metrics import RequestMetrics
from localspec.server.statistics import reply_metrics, timings, together, usage
from tests.server.scripted_engine import metrics

NOTHING = metrics(
    n_tokens=0,
    n_steps=0,
    n_plain_steps=0,
    n_drafted=0,
    n_accepted=0,
    acceptance_histogram=(),
    rejection_histogram=(),
    ttft_s=None,
    tpot_s=None,
    tokens_per_second=None,
    prefill_s=0.0,
    elapsed_s=0.0,
)


def test_a_reply_of_nothing_divides_by_nothing() -> None:
    told = timings(NOTHING)
    assert (told["predicted_n"], told["predicted_per_second"], told["prompt_per_second"]) == (0, 0.0, 0.0)
    speculation = reply_metrics(NOTHING)["speculative_decoding"]
    assert (speculation["draft_acceptance_rate"], speculation["mean_acceptance_length"]) == (None, None)
    assert speculation["acceptance_rate_per_position"] == []


def test_waiting_is_no_part_of_reading_the_prompt() -> None:
    assert timings(metrics(ttft_s=5.0, prefill_s=0.1, elapsed_s=6.0), queue_s=4.5)["prompt_ms"] == pytest.approx(500)
    # The wait is measured on another clock: what the engine says it took stands.
    assert timings(metrics(ttft_s=5.0, prefill_s=0.1, elapsed_s=6.0), queue_s=5.5)["prompt_ms"] == pytest.approx(100)


def test_positions_are_told_as_shares_of_all_drafts() -> None:
    told = reply_metrics(metrics(n_drafted=30, n_accepted=9, acceptance_histogram=(1, 2, 2, 1)))["speculative_decoding"]
    assert told["num_spec_steps"] == 6
    assert told["acceptance_rate_per_position"] == pytest.approx([5 / 6, 3 / 6, 1 / 6])
    # Their sum is what a draft brings on average, as in vLLM.
    assert sum(told["acceptance_rate_per_position"]) == pytest.approx(told["mean_acceptance_length"] - 1)


_REPLIES = st.builds(
    metrics,
    n_tokens=st.integers(0, 99),
    n_drafted=st.integers(0, 99),
    acceptance_histogram=st.lists(st.integers(0, 9), max_size=5).map(tuple),
    tokens_per_second=st.none() | st.floats(1, 100),
    elapsed_s=st.floats(0, 100),
)


@given(st.lists(_REPLIES, min_size=1, max_size=4))
def test_choices_add_up_and_share_their_prompt(choices: list[RequestMetrics]) -> None:
    all_of_them = together(choices)
    assert usage(all_of_them)["prompt_tokens"] == 42
    assert usage(all_of_them)["completion_tokens"] == sum(each.n_tokens for each in choices)
    assert all_of_them.n_drafted == sum(each.n_drafted for each in choices)
    assert sum(all_of_them.acceptance_histogram) == sum(sum(each.acceptance_histogram) for each in choices)
    assert all_of_them.elapsed_s == max(each.elapsed_s for each in choices)
    speed = sum(each.tokens_per_second or 0 for each in choices)
    assert timings(all_of_them)["predicted_per_second"] == pytest.approx(speed)
    prompts = together([*choices, *choices], n_prompts=2)
    assert usage(prompts)["prompt_tokens"] == 84
