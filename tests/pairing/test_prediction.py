"""The forecast of a pair's speed: its limits, and what must move it which way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.pairing.prediction import ModelTraffic, assumed_acceptance, predict

BIG = ModelTraffic(8 * 10**9, 5 * 10**9, 0, 0, 0, 0, 400e9, on_gpu=True, is_quantized=True)
SMALL = replace(BIG, n_parameters=10**9, dense_bytes=10**9)

models = st.builds(
    ModelTraffic,
    n_parameters=st.integers(10**6, 10**11),
    dense_bytes=st.integers(10**6, 10**11),
    expert_bytes=st.integers(0, 10**11),
    n_experts=st.integers(0, 256),
    n_experts_used=st.integers(0, 16),
    kv_bytes=st.integers(0, 10**10),
    bandwidth=st.floats(1e9, 4e12),
    on_gpu=st.booleans(),
    is_quantized=st.booleans(),
)


@given(models, models, st.floats(0, 1))
def test_a_forecast_is_never_slower_than_no_draft_nor_faster_than_all_accepted(target, draft, acceptance):
    prediction = predict(target, draft, acceptance)
    assert 1.0 <= prediction.speedup <= prediction.n_draft + 1
    assert prediction.plain_tokens_per_s == pytest.approx(1 / target.pass_s(1))


@given(models, models, st.floats(0, 0.99), st.floats(0, 0.2))
def test_more_acceptance_is_never_worse(target, draft, acceptance, more):
    assert predict(target, draft, min(1.0, acceptance + more)).speedup >= predict(target, draft, acceptance).speedup


@given(models, st.integers(1, 17))
def test_more_tokens_in_a_pass_take_no_less_time(target, n_tokens):
    assert target.pass_s(n_tokens + 1) >= target.pass_s(n_tokens)


def test_a_draft_as_large_as_its_target_does_not_pay():
    assert predict(BIG, BIG, 0.9).n_draft == 0


def test_a_small_draft_on_a_gpu_pays_and_less_on_a_cpu_with_quantized_weights():
    on_gpu = predict(BIG, SMALL, 0.7)
    on_cpu = predict(replace(BIG, on_gpu=False, bandwidth=40e9), replace(SMALL, on_gpu=False, bandwidth=40e9), 0.7)
    assert on_gpu.speedup > 1.4 > on_cpu.speedup


def test_tokens_of_one_pass_share_experts_only_in_part():
    experts = replace(BIG, dense_bytes=10**9, expert_bytes=16 * 10**9, n_experts=128, n_experts_used=8)
    one, five = experts.pass_s(1), experts.pass_s(5)
    assert one < five < 5 * one
    dense = replace(BIG, dense_bytes=2 * 10**9)
    assert dense.pass_s(1) == pytest.approx(one, rel=0.01)
    assert (
        predict(dense, replace(SMALL, dense_bytes=10**8)).speedup
        > predict(experts, replace(SMALL, dense_bytes=10**8)).speedup
    )


@given(st.integers(1, 10**12), st.integers(1, 10**12))
def test_assumed_acceptance_is_a_share_and_grows_with_the_draft(target, draft):
    assumed = assumed_acceptance(target, draft)
    assert 0.3 <= assumed <= 0.9
    assert assumed_acceptance(target, 2 * draft) >= assumed


def test_the_reports_that_it_goes_by():
    assert assumed_acceptance(8_000, 1_000) == pytest.approx(0.72)
    assert assumed_acceptance(24_000, 500) == pytest.approx(0.607, abs=0.01)
