"""The field `samplers`: names, letters, order, and what is switched off."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.requests import SamplingParams
from localspec.server.samplers import ALL_SAMPLERS, only_samplers, parse_samplers

# Every transform does something.
BUSY = SamplingParams(
    temperature=0.7,
    dynatemp_range=0.2,
    top_k=12,
    top_p=0.9,
    min_p=0.1,
    typical_p=0.8,
    top_n_sigma=2.0,
    xtc_probability=0.5,
    repeat_penalty=1.2,
    frequency_penalty=0.1,
    presence_penalty=0.2,
    dry_multiplier=0.8,
)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ([], ()),
        ("", ()),
        (["top_k", "top_p", "infill"], ("top_k", "top_p")),
        (["min_p", "temperature"], ("min_p", "temperature")),
        (["dry", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"], ALL_SAMPLERS[1:2] + ALL_SAMPLERS[3:]),
        (["Top-K", "nucleus", "temp"], ("top_k", "top_p", "temperature")),
        ("kypmt", ("top_k", "typ_p", "top_p", "min_p", "temperature")),
        ("edskypmxt", ALL_SAMPLERS),
        (["infill", "top_k", "adaptive_p"], ("top_k",)),
    ],
)
def test_names_and_letters(given: object, names: tuple[str, ...]) -> None:
    assert parse_samplers(given) == names


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["top_p", "top_k"], "order"),
        (["temperature", "min_p"], "order"),
        ("tk", "order"),
        (["top_k", "top-k"], "twice"),
        (["mirostat"], "no sampler 'mirostat'"),
        ("q", "no sampler 'q'"),
        (["top_k", 5], "array of names"),
        ({"top_k": 1}, "array of names"),
        (["top_k"] * 1000, "twice"),
    ],
)
def test_what_is_no_chain_is_refused(given: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_samplers(given)


@given(st.sets(st.sampled_from(ALL_SAMPLERS)))
def test_exactly_those_that_are_not_named_are_off(chosen: set[str]) -> None:
    names = parse_samplers([name for name in ALL_SAMPLERS if name in chosen])
    left = only_samplers(BUSY, names)
    assert (left.top_k == 12) == ("top_k" in chosen)
    assert (left.top_p == 0.9) == ("top_p" in chosen)
    assert (left.min_p == 0.1) == ("min_p" in chosen)
    assert (left.typical_p == 0.8) == ("typ_p" in chosen)
    assert (left.top_n_sigma == 2.0) == ("top_n_sigma" in chosen)
    assert (left.xtc_probability == 0.5) == ("xtc" in chosen)
    assert (left.dry_multiplier == 0.8) == ("dry" in chosen)
    assert (left.temperature, left.dynatemp_range) == ((0.7, 0.2) if "temperature" in chosen else (1.0, 0.0))
    penalties = (left.repeat_penalty, left.frequency_penalty, left.presence_penalty)
    assert penalties == ((1.2, 0.1, 0.2) if "penalties" in chosen else (1.0, 0.0, 0.0))


def test_a_chain_in_any_order_but_the_own_is_refused() -> None:
    some = ("top_k", "top_p", "temperature")
    for order in itertools.permutations(some):
        if order == some:
            assert parse_samplers(list(order)) == some
        else:
            with pytest.raises(ValueError, match="order"):
                parse_samplers(list(order))
