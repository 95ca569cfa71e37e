"""The law: fingerprints relate exactly those vocabularies that `judge_pair` does not refuse."""

import itertools
import time
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localspec.models.compat import Verdict, judge_pair
from localspec.models.gguf import read_header
from localspec.models.header import GgufHeader
from localspec.models.vocabulary import read_vocabulary
from localspec.models.vocabulary_fingerprint import VocabularyFingerprint, compatible_groups, fingerprint_of
from tests.models.gguf_bytes import flag, number
from tests.models.small_models import model
from tests.models.vocabularies import VOCABULARIES


def fingerprint(header: GgufHeader) -> VocabularyFingerprint:
    vocabulary = read_vocabulary(header)
    assert vocabulary is not None
    return fingerprint_of(vocabulary)


def assert_law(headers: list[GgufHeader]) -> None:
    fingerprints = [fingerprint(header) for header in headers]
    groups = compatible_groups(fingerprints)
    for (ours, mine), (theirs, yours) in itertools.product(zip(headers, fingerprints, strict=True), repeat=2):
        is_refused = judge_pair(ours, theirs).verdict is Verdict.REFUSED
        assert (yours in groups[mine]) == (not is_refused)


TOKENS = [f"t{number}" for number in range(300)]
VARIANTS = st.lists(
    st.tuples(
        st.integers(1, 300),  # size
        st.sampled_from([None, 0, 3, 4, 5, 6, 100, 170, 171, 172, 200, 298]),  # the token that differs
        st.sampled_from(["gpt2", "llama"]),
        st.sampled_from([None, False, True]),
        st.sampled_from([None, 1, 2, 10_000]),
    ),
    min_size=2,
    max_size=5,
)


@given(VARIANTS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_groups_are_the_pairs_that_are_not_refused(
    tmp_path: Path, variants: list[tuple[int, int | None, str, bool | None, int | None]]
) -> None:
    headers = []
    for size, other, tokenizer, add_bos, bos in variants:
        tokens = TOKENS[:size]
        if other is not None and other < size:
            tokens[other] = "other"
        entries = [] if add_bos is None else [flag("tokenizer.ggml.add_bos_token", add_bos)]
        entries += [] if bos is None else [number("tokenizer.ggml.bos_token_id", bos)]
        headers.append(model(tmp_path, *entries, tokenizer=tokenizer, tokens=tokens))
    assert_law(headers)


def test_sizes_up_to_128_apart(tmp_path: Path) -> None:
    assert_law([model(tmp_path, tokens=TOKENS[:size]) for size in (3, 5, 6, 131, 133, 171, 172, 173, 300)])


def test_a_token_that_only_the_padding_has_in_common(tmp_path: Path) -> None:
    ours, theirs = [*TOKENS[:200], "a"], [*TOKENS[:200], "b"]
    assert_law([model(tmp_path, tokens=tokens) for tokens in (TOKENS[:200], ours, theirs, [*ours, "c"])])


def test_real_vocabularies(tmp_path: Path) -> None:
    assert_law([read_header(path) for path in VOCABULARIES.values()])


def test_a_thousand_vocabularies_are_grouped_at_once(tmp_path: Path) -> None:
    base = fingerprint(model(tmp_path))
    many = [
        VocabularyFingerprint(base.kind, 1000 + each % 128, None, None, f"{each:032x}" * 129) for each in range(1_000)
    ]
    started = time.process_time()
    assert {len(group) for group in compatible_groups(many).values()} == {1}
    assert time.process_time() - started < 2
