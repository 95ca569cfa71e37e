"""Numbers keep their width, so that nothing beside them moves or is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.tui import figures


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.0, "0.0"), (52.34, "52.3"), (999.94, "999.9"), (999.96, "1,000"), (12345.0, "12.3k")],
)
def test_rate(value: float | None, text: str) -> None:
    assert figures.rate(value) == text


@pytest.mark.parametrize(("value", "text"), [(None, "–"), (0.0, "0.0 %"), (0.9312, "93.1 %"), (1.0, "100.0 %")])
def test_percent(value: float | None, text: str) -> None:
    assert figures.percent(value) == text


@pytest.mark.parametrize(("value", "text"), [(None, "–"), (0.0, "0 %"), (0.626, "63 %"), (1.0, "100 %")])
def test_share(value: float | None, text: str) -> None:
    assert figures.share(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.004, "0.00 s"), (0.42, "0.42 s"), (9.996, "10.0 s"), (99.96, "100 s")]
)
def test_seconds(value: float | None, text: str) -> None:
    assert figures.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1234, "1,234"),
        (9999, "9,999"),
        (10_000, "10.0k"),
        (99_949, "99.9k"),
        (99_950, "100k"),
        (131_072, "131k"),
        (999_499, "999k"),
        (999_500, "1.00M"),
        (1_048_576, "1.05M"),
    ],
)
def test_count(value: int, text: str) -> None:
    assert figures.count(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (999, "999 B"),
        (1000, "0.98 KiB"),
        (642_777_088, "613 MiB"),
        (1024**3 - 1, "1.00 GiB"),
        (12 * 1024**3, "12.0 GiB"),
        (2000 * 1024**5, "2000 PiB"),
    ],
)
def test_size(value: int | None, text: str) -> None:
    assert figures.size(value) == text


@given(st.integers(0, 999_000_000))
def test_a_count_takes_at_most_five_cells(value: int) -> None:
    assert len(figures.count(value)) <= 5


@given(st.integers(0, 900 * 1024**5))
def test_a_size_takes_at_most_eight_cells(value: int) -> None:
    assert len(figures.size(value)) <= 8


@given(st.floats(0, 9e8))
def test_a_rate_takes_at_most_five_cells(value: float) -> None:
    assert len(figures.rate(value)) <= 5
