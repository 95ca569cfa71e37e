"""Windows of drafts, and the closed lists that cohorts are made of."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.events import Step
from localspec.engine.requests import Mode
from localspec.server.cohorts import (
    GENERATING_ENDPOINTS,
    OTHER_ENDPOINT,
    TEMPERATURE_BANDS,
    AcceptanceWindow,
    Cohort,
    CohortTable,
    endpoint_label,
    temperature_band,
)
from localspec.speculative.drafter import DraftSource

drafts = st.integers(1, 32).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))


@given(st.lists(drafts, max_size=60), st.integers(1, 100))
def test_window_holds_the_fewest_latest_drafts_that_fill_it(judged: list[tuple[int, int]], size: int) -> None:
    window = AcceptanceWindow(size)
    for n_drafted, n_accepted in judged:
        window.add(n_drafted, n_accepted)

    held: list[tuple[int, int]] = []
    for draft in reversed(judged):
        if sum(n for n, _ in held) >= size:
            break
        held.append(draft)
    assert window.n_drafted == sum(n for n, _ in held)
    assert window.n_accepted == sum(n for _, n in held)
    assert window.is_full == (sum(n for n, _ in judged) >= size)
    assert window.rate == (window.n_accepted / window.n_drafted if judged else None)


def test_bands_end_where_their_labels_say() -> None:
    given_temperatures = (0.0, 0.01, 0.5, 0.51, 1.0, 1.01, 100.0)
    bands = ["0", "0-0.5", "0-0.5", "0.5-1", "0.5-1", "above 1", "above 1"]

    assert [temperature_band(each) for each in given_temperatures] == bands


def test_a_short_path_counts_as_the_full_one() -> None:
    assert endpoint_label("/chat/completions") == "/v1/chat/completions"
    assert endpoint_label("/infill") == "/infill"


@given(st.floats(0, 100), st.text())
def test_nothing_that_a_client_sends_makes_a_label(temperature: float, path: str) -> None:
    assert temperature_band(temperature) in TEMPERATURE_BANDS
    assert endpoint_label(path) in {*GENERATING_ENDPOINTS, OTHER_ENDPOINT}


@given(st.lists(st.tuples(st.sampled_from(list(Mode)), st.integers(0, 5), st.sampled_from(list(DraftSource)))))
def test_records_add_up_to_the_steps(steps: list[tuple[Mode, int, DraftSource]]) -> None:
    table = CohortTable(50)
    for mode, n_draft, source in steps:
        cohort = Cohort("/v1/completions", "0", mode)
        table[cohort].add(Step((1, 2), (), n_draft, n_draft // 2, 0.1, source if n_draft else None))

    cohorts = [cohort for cohort, _ in table]
    assert cohorts == sorted(cohorts)
    assert set(cohorts) == {Cohort("/v1/completions", "0", mode) for mode, _, _ in steps}
    assert sum(record.n_drafted for _, record in table) == sum(n for _, n, _ in steps)
    assert sum(record.n_accepted for _, record in table) == sum(n // 2 for _, n, _ in steps)
    assert sum(record.n_tokens for _, record in table) == 2 * len(steps)
    assert sum(record.n_drafts for _, record in table) == sum(n > 0 for _, n, _ in steps)
    copies = sum(n > 0 and source is DraftSource.LOOKUP for _, n, source in steps)
    assert sum(record.n_copies for _, record in table) == copies
