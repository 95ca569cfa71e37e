"""Sizes, counts and times as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.quantities import file_size, memory_size, span, weights


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (98_300_000, "98 MB"),
        (999_500_000, "1.00 GB"),
        (4_920_000_000, "4.92 GB"),
        (750 * 10**9, "750 GB"),
    ],
)
def test_sizes_of_files(n_bytes: int, text: str):
    assert file_size(n_bytes) == text


@given(st.floats(0, 1e14))
def test_a_size_is_right_to_half_of_its_last_digit_and_short(n_bytes: float):
    value, unit = file_size(n_bytes).split()
    factor = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}[unit]
    last_digit = factor * 10.0 ** -len(value.partition(".")[2])
    assert abs(float(value) * factor - n_bytes) <= 0.5001 * last_digit
    assert len(value) <= 6


@given(st.integers(0, 2**59))
def test_a_size_of_memory_is_right_to_half_of_its_last_digit_and_short(n_bytes: int):
    value, unit = memory_size(n_bytes).split()
    factor = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}[unit]
    last_digit = factor * 10.0 ** -len(value.partition(".")[2])
    assert abs(float(value) * factor - n_bytes) <= 0.5001 * last_digit
    assert len(value) <= 4


@pytest.mark.parametrize(
    ("count", "text"),
    [(300, "300"), (999_499, "999,499"), (999_500, "1 M"), (134_515_008, "135 M"), (999_500_000, "1.00 B")],
)
def test_counts_of_weights(count: int, text: str):
    assert weights(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (59.6, "1:00 min"), (65, "1:05 min"), (7380, "2:03 h")])
def test_times(seconds: float, text: str):
    assert span(seconds) == text
