"""Every formula of docs/metrics.md, on a clock that the test sets."""

from __future__ import annotations

import json

import pytest

from localspec.engine.metrics import MetricsRecorder
from localspec.speculative.drafter import DraftSource


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recorder(clock: Clock) -> MetricsRecorder:
    return MetricsRecorder(clock)


TIMES = {"draft_s": 0.010, "draft_pass_s": 0.006, "verify_s": 0.020, "judge_s": 0.001, "step_s": 0.032}


def step(
    recorder: MetricsRecorder,
    *,
    n_draft: int = 0,
    n_accepted: int = 0,
    n_tokens: int | None = None,
    source: DraftSource | None = None,
    **times: float,
) -> None:
    recorder.step(
        n_tokens=n_accepted + 1 if n_tokens is None else n_tokens,
        n_draft=n_draft,
        n_accepted=n_accepted,
        source=source or (DraftSource.MODEL if n_draft else None),
        **{**TIMES, **times},
    )


def test_before_the_first_token_there_are_no_rates(recorder: MetricsRecorder):
    metrics = recorder.snapshot()
    assert metrics.ttft_s is metrics.tpot_s is metrics.tokens_per_second is metrics.itl_p50_s is None
    assert metrics.draft_acceptance_rate is metrics.mean_acceptance_length is metrics.overhead_share is None


def test_time_to_first_token_counts_from_acceptance(recorder: MetricsRecorder, clock: Clock):
    clock.now += 0.75
    step(recorder)
    assert recorder.snapshot().ttft_s == pytest.approx(0.75)


def test_plain_decoding_has_the_textbook_tpot(recorder: MetricsRecorder, clock: Clock):
    for _ in range(5):
        clock.now += 0.1
        step(recorder)
    metrics = recorder.snapshot()
    assert metrics.tpot_s == pytest.approx(0.4 / (5 - 1))
    assert metrics.tokens_per_second == pytest.approx(10.0)
    assert metrics.n_plain_steps == metrics.n_steps == 5


def test_tokens_of_the_first_emission_do_not_count_as_instant(recorder: MetricsRecorder, clock: Clock):
    step(recorder, n_draft=5, n_accepted=5)
    clock.now += 0.2
    step(recorder, n_draft=5, n_accepted=3)
    metrics = recorder.snapshot()
    assert metrics.n_tokens == 10
    assert metrics.tpot_s == pytest.approx(0.2 / 4)


def test_a_reply_of_one_emission_has_no_speed(recorder: MetricsRecorder):
    step(recorder, n_draft=5, n_accepted=5)
    assert recorder.snapshot().tokens_per_second is None


def test_acceptance(recorder: MetricsRecorder):
    for n_draft, n_accepted in [(4, 4), (4, 0), (4, 2), (4, 2), (0, 0)]:
        step(recorder, n_draft=n_draft, n_accepted=n_accepted)
    metrics = recorder.snapshot()
    assert (metrics.n_drafted, metrics.n_accepted, metrics.n_steps, metrics.n_plain_steps) == (16, 8, 5, 1)
    assert metrics.draft_acceptance_rate == pytest.approx(0.5)
    assert metrics.mean_acceptance_length == pytest.approx(1 + 8 / 5)
    assert metrics.acceptance_histogram == (1, 0, 2, 0, 1)
    assert sum(metrics.acceptance_histogram) == metrics.n_steps - metrics.n_plain_steps


def test_a_rejection_is_told_from_a_draft_that_ended(recorder: MetricsRecorder):
    """Both accepted two tokens; only one of them says anything about the third."""
    step(recorder, n_draft=2, n_accepted=2)
    step(recorder, n_draft=5, n_accepted=2)
    metrics = recorder.snapshot()
    assert metrics.acceptance_histogram == (0, 0, 2)
    assert metrics.rejection_histogram == (0, 0, 1)
    assert metrics.acceptance_by_position == (1.0, 1.0, 0.0)


def test_acceptance_by_position_counts_the_tests_that_were_made(recorder: MetricsRecorder):
    for n_draft, n_accepted in [(3, 0), (3, 1), (3, 3), (1, 1), (1, 1), (0, 0)]:
        step(recorder, n_draft=n_draft, n_accepted=n_accepted)
    metrics = recorder.snapshot()
    assert metrics.rejection_histogram == (1, 1, 0, 0)
    # First token: 4 of 5 drafts. Second: of these 4, two had none and one kept it. Third: the one that was left.
    assert metrics.acceptance_by_position == (4 / 5, 1 / 2, 1.0, None)
    assert sum(metrics.rejection_histogram) <= sum(metrics.acceptance_histogram)


def test_before_the_first_draft_no_position_has_a_rate(recorder: MetricsRecorder):
    step(recorder)
    assert recorder.snapshot().acceptance_by_position == ()


def test_work_thrown_away_is_a_share_of_the_rows_that_were_evaluated(recorder: MetricsRecorder):
    assert recorder.snapshot().discarded_share is None
    for n_draft, n_accepted in [(4, 4), (4, 1), (0, 0)]:
        step(recorder, n_draft=n_draft, n_accepted=n_accepted)
    metrics = recorder.snapshot()
    assert metrics.n_raw_tokens == 5 + 5 + 1
    assert metrics.discarded_share == pytest.approx(3 / 11)
    assert metrics.n_raw_tokens * (1 - metrics.discarded_share) == pytest.approx(metrics.n_tokens)


def test_copied_drafts_are_also_counted_apart(recorder: MetricsRecorder):
    step(recorder, n_draft=3, n_accepted=2, source=DraftSource.MODEL)
    step(recorder, n_draft=7, n_accepted=5, source=DraftSource.LOOKUP)
    step(recorder, n_draft=2, n_accepted=0, source=DraftSource.LOOKUP)
    step(recorder)
    metrics = recorder.snapshot()
    assert (metrics.n_drafted, metrics.n_accepted, metrics.n_plain_steps) == (12, 7, 1)
    assert (metrics.n_lookup_steps, metrics.n_lookup_drafted, metrics.n_lookup_accepted) == (2, 9, 5)


def test_itl_is_a_distribution_over_emissions(recorder: MetricsRecorder, clock: Clock):
    step(recorder)
    for gap in [0.01] * 18 + [0.5, 0.9]:
        clock.now += gap
        step(recorder)
    metrics = recorder.snapshot()
    assert metrics.itl_p50_s == pytest.approx(0.01)
    assert metrics.itl_p95_s == pytest.approx(0.9)


def test_the_recent_rate_forgets_what_is_older_than_two_seconds(recorder: MetricsRecorder, clock: Clock):
    step(recorder)
    for _ in range(100):
        clock.now += 0.1
        step(recorder)
    for _ in range(8):
        clock.now += 0.5
        step(recorder)
    metrics = recorder.snapshot()
    assert metrics.recent_tokens_per_second == pytest.approx(2.0, rel=0.3)
    assert metrics.tokens_per_second == pytest.approx(108 / 14)


def test_overhead_is_step_time_outside_forward_passes(recorder: MetricsRecorder):
    for _ in range(3):
        step(recorder, draft_s=0.012, draft_pass_s=0.010, verify_s=0.020, judge_s=0.0005, step_s=0.034)
    metrics = recorder.snapshot()
    assert metrics.overhead_s == pytest.approx(3 * (0.034 - 0.020 - 0.010))
    assert metrics.overhead_share == pytest.approx(0.004 / 0.034)


def test_the_parts_of_a_step_add_up(recorder: MetricsRecorder):
    for _ in range(2):
        step(recorder, n_draft=4, n_accepted=1, draft_s=0.012, draft_pass_s=0.010, judge_s=0.0005)
    metrics = recorder.snapshot()
    assert metrics.draft_s == pytest.approx(0.024)
    assert metrics.draft_pass_s == pytest.approx(0.020)
    assert metrics.verify_s == pytest.approx(0.040)
    assert metrics.judge_s == pytest.approx(0.001)
    assert metrics.step_s == pytest.approx(0.064)


def test_prompt_counts(recorder: MetricsRecorder):
    recorder.prompt(40, 12)
    recorder.prefilled(0.3)
    recorder.prefilled(0.2)
    step(recorder, n_draft=2, n_accepted=1)
    metrics = recorder.snapshot()
    assert (metrics.n_prompt_tokens, metrics.n_cached_tokens, metrics.n_context_tokens) == (40, 12, 42)
    assert metrics.prefill_s == pytest.approx(0.5)


def test_a_snapshot_is_plain_json(recorder: MetricsRecorder):
    step(recorder, n_draft=2, n_accepted=1)
    read = json.loads(json.dumps(recorder.snapshot().as_dict()))
    assert read["draft_acceptance_rate"] == 0.5
    assert read["acceptance_histogram"] == [0, 1]
    assert read["rejection_histogram"] == [0, 1]
    assert read["acceptance_by_position"] == [1.0, 0.0]
    assert read["mean_acceptance_length"] == 2.0
    assert (read["n_raw_tokens"], read["discarded_share"]) == (3, 1 / 3)
