"""What is tried: only what the user left open, only what can run, and in the order of promise."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.bench.tune_search import Search
from localspec.bench.tune_space import Choices, Point, Space, difference, pair_at, present_point, usual_threads
from localspec.config import Settings, TunedSettings, left_to, load_settings
from localspec.engine.requests import GenerateRequest, KvType, Mode, ModelSpec, PairSpec, RawPrompt

TARGET, DRAFT, OTHER = Path("/m/target.gguf"), Path("/m/draft.gguf"), Path("/m/other.gguf")
PAIR = PairSpec("pair", ModelSpec(TARGET, n_gpu_layers=7), ModelSpec(DRAFT), n_ctx=512)
WITH_DRAFT = present_point(Settings(), DRAFT)
WITHOUT = present_point(Settings(), None)
EVERYTHING = Choices(drafts=(OTHER,), threads=(1, 4), kv_types=(KvType.Q8_0, KvType.Q4_0))
FIELDS = tuple(TunedSettings.model_fields)


def points_of(space: Space) -> list[Point]:
    """All that two changes in a row can reach."""
    dimensions = space.dimensions
    reached = {space.plain: None, space.present: None}
    for _ in range(2):
        for point in list(reached):
            reached |= dict.fromkeys(each for dimension in dimensions for each in dimension.alternatives(point))
    return list(reached)


def names(space: Space, point: Point) -> list[str]:
    return [dimension.name for dimension in space.dimensions if list(dimension.alternatives(point))]


@pytest.mark.parametrize("present", [WITH_DRAFT, WITHOUT], ids=["draft", "none"])
@pytest.mark.parametrize("on_gpu", [False, True])
def test_every_point_can_be_asked_for_loaded_and_stored(present: Point, on_gpu: bool):
    points = points_of(Space(present, (), EVERYTHING, on_gpu=on_gpu))
    assert len(points) > 50
    for point in points:
        request = GenerateRequest(
            RawPrompt("x"),
            mode=point.mode,
            num_speculative_tokens=point.num_speculative_tokens,
            fixed_length=point.fixed_length,
        )
        settings = point.settings
        assert TunedSettings.model_validate_json(settings.model_dump_json()) == settings
        assert present_point(Settings(**settings.model_dump()), point.draft) == point
        spec = pair_at(point, PAIR, 3)
        assert (spec.n_ctx, spec.target.n_gpu_layers, spec.target.kv_type) == (512, 7, point.kv_type)
        assert (spec.n_threads, spec.lookup_min_ngram) == (point.threads, point.lookup_min_ngram)
        assert spec.draft == (ModelSpec(point.draft, 3, point.draft_kv_type) if point.draft else None)
        assert request.mode is not Mode.DRAFT or point.draft is not None


@pytest.mark.parametrize(
    "given", [{name} for name in FIELDS] + [set(each) for each in itertools.combinations(FIELDS, 2)]
)
def test_what_the_user_has_set_stays_and_what_belongs_to_it_too(given: set[str]):
    present = replace(WITH_DRAFT, lookup_min_ngram=3, lookup_max_ngram=5, threads=2)
    flags = {name: value for name, value in present.settings.model_dump().items() if name in given}
    if given & {"mode", "fixed_length", "num_speculative_tokens"}:
        flags |= {"mode": "draft", "fixed_length": True, "num_speculative_tokens": 5}
    present = present_point(load_settings(None, {}, flags), DRAFT)
    for point in points_of(Space(present, given, EVERYTHING, on_gpu=True)):
        assert {name: getattr(point, name) for name in given} == {name: getattr(present, name) for name in given}
        # What was measured is what a profile of it comes to under the same flags.
        settings = load_settings(None, {}, flags)
        tuned = settings.model_copy(update=left_to(point.settings, settings.model_fields_set))
        assert present_point(tuned, point.draft) == point


def test_speculation_has_to_earn_its_place_first():
    space = Space(WITH_DRAFT, (), Choices(), on_gpu=False)
    assert space.plain == replace(WITH_DRAFT, mode=Mode.PLAIN)
    first = space.dimensions[0]
    assert list(first.alternatives(space.plain)) == [WITH_DRAFT]
    assert list(first.alternatives(WITH_DRAFT)) == []


def test_the_order_follows_the_promise():
    choices = Choices(drafts=(OTHER,), threads=(1,))
    on_cpu = names(Space(WITH_DRAFT, (), choices, on_gpu=False), WITH_DRAFT)
    assert on_cpu == ["draft", "threads", "source and length", "ceiling", "n-grams"]
    on_gpu = names(Space(WITH_DRAFT, (), choices, on_gpu=True), WITH_DRAFT)
    assert on_gpu == ["draft", "draft's KV cache", "source and length", "ceiling", "n-grams", "threads"]


def test_the_targets_cache_decides_the_reply_and_is_left_alone_unless_asked_for():
    for point in points_of(Space(WITH_DRAFT, (), Choices(), on_gpu=True)):
        assert point.kv_type is KvType.F16
    asked = points_of(Space(WITH_DRAFT, (), Choices(kv_types=(KvType.Q8_0,)), on_gpu=False))
    assert {(point.kv_type, point.draft_kv_type) for point in asked} == set(
        itertools.product((KvType.F16, KvType.Q8_0), repeat=2)
    )


def test_without_a_draft_model_there_is_lookup_only_until_one_is_tried():
    alone = points_of(Space(WITHOUT, (), Choices(threads=(1,)), on_gpu=True))
    assert {point.mode for point in alone} == {Mode.AUTO, Mode.LOOKUP, Mode.PLAIN}
    # Auto is lookup then: comparing the two would compare nothing.
    assert all(point.fixed_length for point in alone if point.mode is Mode.LOOKUP)
    with_other = points_of(Space(WITHOUT, (), Choices(drafts=(OTHER,)), on_gpu=False))
    assert any(point.mode is Mode.DRAFT and point.draft == OTHER for point in with_other)


def test_plain_is_tried_again_only_where_it_is_another():
    """N-grams and ceilings do not matter to plain decoding; threads do."""
    space = Space(WITH_DRAFT, (), Choices(threads=(1,)), on_gpu=False)
    sources = next(each for each in space.dimensions if each.name == "source and length")

    def plain_of(point: Point) -> Point:
        return next(each for each in sources.alternatives(point) if each.mode is Mode.PLAIN)

    other = replace(WITH_DRAFT, lookup_min_ngram=3, lookup_max_ngram=6, num_speculative_tokens=4, draft=OTHER)
    assert plain_of(other) == space.plain
    assert plain_of(replace(other, threads=1)) == replace(space.plain, threads=1)


@pytest.mark.parametrize(
    ("present", "ceilings"),
    [
        (WITH_DRAFT, {8, 16, 32}),
        (replace(WITH_DRAFT, mode=Mode.DRAFT), {8, 32}),  # 16 is what it has
        (WITHOUT, set()),
        (replace(WITH_DRAFT, mode=Mode.LOOKUP), set()),
        (replace(WITH_DRAFT, mode=Mode.PLAIN), set()),
        (replace(WITH_DRAFT, mode=Mode.DRAFT, fixed_length=True), {2, 4, 8}),
        (replace(WITHOUT, mode=Mode.LOOKUP, fixed_length=True, num_speculative_tokens=32), {31}),
    ],
)
def test_ceilings_are_tried_where_they_matter(present: Point, ceilings: set[int]):
    space = Space(WITH_DRAFT, (), Choices(), on_gpu=False)
    (dimension,) = [each for each in space.dimensions if each.name == "ceiling"]
    assert {each.num_speculative_tokens for each in dimension.alternatives(present)} == ceilings


def test_a_fixed_length_climbs_by_ones():
    fixed = replace(WITH_DRAFT, mode=Mode.DRAFT, fixed_length=True, num_speculative_tokens=4)
    (ceiling,) = [each for each in Space(WITH_DRAFT, (), Choices(), on_gpu=False).dimensions if each.name == "ceiling"]

    def measure(incumbent: Point, challenger: Point, number: int) -> list[float]:
        def loss(point: Point) -> float:
            assert point.num_speculative_tokens is not None
            return abs(point.num_speculative_tokens - 9) / 10

        return [loss(incumbent) - loss(challenger)] * 4

    outcome = Search(fixed, [ceiling], measure, now=lambda: 0.0, deadline=1.0).run()
    assert outcome.best.num_speculative_tokens == 9


@pytest.mark.parametrize(
    ("default", "n_logical", "usual"),
    [(8, 16, (4, 16)), (8, 8, (4,)), (2, 2, (1,)), (1, 1, ()), (1, 2, (2,)), (4, 4, (2,))],
)
def test_usual_threads_leave_out_the_default(default: int, n_logical: int, usual: tuple[int, ...]):
    assert usual_threads(default, n_logical) == usual


def test_differences_in_words():
    def words(**changes: object) -> str:
        return difference(WITH_DRAFT, replace(WITH_DRAFT, **changes))

    assert words(mode=Mode.PLAIN) == "plain mode"
    assert words(mode=Mode.DRAFT, fixed_length=True, num_speculative_tokens=4) == "draft mode, drafts of 4"
    assert words(num_speculative_tokens=8) == "ceiling 8"
    assert difference(replace(WITH_DRAFT, num_speculative_tokens=8), WITH_DRAFT) == "default ceiling"
    assert words(threads=1, kv_type=KvType.Q8_0) == "q8_0 for the target's KV cache, 1 thread"
    assert words(draft=OTHER) == "draft other.gguf"
    assert difference(replace(WITH_DRAFT, threads=4), WITH_DRAFT) == "default threads"


def test_no_alternative_goes_without_a_word():
    space = Space(WITH_DRAFT, (), EVERYTHING, on_gpu=True)
    for point in points_of(space):
        for dimension in space.dimensions:
            for other in dimension.alternatives(point):
                assert bool(difference(point, other)) == (other != point) or other.mode is Mode.PLAIN
