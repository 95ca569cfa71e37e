"""What `localspec tune` may change, and in which order it tries: what promises most, first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from localspec.bench.tune_search import Dimension
from localspec.config import CHOSEN_TOGETHER, Settings, TunedSettings
from localspec.engine.requests import (
    DEFAULT_NUM_SPECULATIVE_TOKENS,
    MAX_NUM_SPECULATIVE_TOKENS,
    KvType,
    Mode,
    ModelSpec,
    PairSpec,
)

_FIXED_LENGTHS: Final = (4, 2, 8)
_CEILINGS: Final = (8, MAX_NUM_SPECULATIVE_TOKENS, DEFAULT_NUM_SPECULATIVE_TOKENS)
_NGRAMS: Final = ((3, 6), (1, 3), (2, 8))
# Only on request is the target's varied: it decides what the reply is. A coarser draft costs acceptance at most, and a
# smaller cache saves time where a GPU reads it.
_DRAFT_KV_TYPES_ON_GPU: Final = (KvType.Q8_0,)
_USE_A_DRAFT_MODEL: Final = frozenset({Mode.AUTO, Mode.DRAFT})


@dataclass(frozen=True, slots=True)
class Point:
    """One way to run a pair: the fields of `TunedSettings`, and the file that drafts."""

    draft: Path | None
    mode: Mode
    num_speculative_tokens: int | None
    fixed_length: bool
    lookup_min_ngram: int
    lookup_max_ngram: int
    kv_type: KvType
    draft_kv_type: KvType
    threads: int | None

    @property
    def settings(self) -> TunedSettings:
        """All but the draft, as a profile holds it."""
        return TunedSettings(
            mode=self.mode.value,
            num_speculative_tokens=self.num_speculative_tokens,
            fixed_length=self.fixed_length,
            lookup_min_ngram=self.lookup_min_ngram,
            lookup_max_ngram=self.lookup_max_ngram,
            kv_type=self.kv_type.value,
            draft_kv_type=self.draft_kv_type.value,
            threads=self.threads,
        )

    @property
    def drafts_by_model(self) -> bool:
        """Whether the draft model is used."""
        return self.draft is not None and self.mode in _USE_A_DRAFT_MODEL

    @property
    def copies(self) -> bool:
        """Whether drafts are copied from the text."""
        return self.mode in {Mode.AUTO, Mode.LOOKUP}


def present_point(settings: Settings, draft: Path | None) -> Point:
    """What the settings say now."""
    return Point(
        draft=draft,
        mode=Mode(settings.mode),
        num_speculative_tokens=settings.num_speculative_tokens,
        fixed_length=settings.fixed_length,
        lookup_min_ngram=settings.lookup_min_ngram,
        lookup_max_ngram=settings.lookup_max_ngram,
        kv_type=KvType(settings.kv_type),
        draft_kv_type=KvType(settings.draft_kv_type),
        threads=settings.threads,
    )


def pair_at(point: Point, pair: PairSpec, draft_gpu_layers: int) -> PairSpec:
    """What to load for a point. A draft model that its mode has no use for is loaded too: modes change without."""
    return replace(
        pair,
        target=replace(pair.target, kv_type=point.kv_type),
        draft=None if point.draft is None else ModelSpec(point.draft, draft_gpu_layers, point.draft_kv_type),
        n_threads=point.threads,
        lookup_min_ngram=point.lookup_min_ngram,
        lookup_max_ngram=point.lookup_max_ngram,
    )


@dataclass(frozen=True, slots=True)
class Choices:
    """What there is to choose from, where that is not the same for every pair.

    `kv_types` are tried for the caches of both models; without any, what is usual for the draft's.
    """

    drafts: tuple[Path, ...] = ()
    threads: tuple[int, ...] = ()
    kv_types: tuple[KvType, ...] = ()


def usual_threads(default: int, n_logical: int) -> tuple[int, ...]:
    """Thread counts that may beat the `default`: half of it, and one per logical processor."""
    return tuple(n for n in dict.fromkeys((default // 2, n_logical)) if n not in {0, default})


class Space:
    """The dimensions around the settings of a user. What the user has set, by flag or file, is not varied.

    `present` is where the search would start if speculation did not have to earn its place: it starts at `plain`, the
    same without speculation, so that whatever it ends with was faster.
    """

    def __init__(self, present: Point, given: Collection[str], choices: Choices, *, on_gpu: bool) -> None:
        self.present = present
        # What a user said keeps the tuned values of its whole group from being used.
        self._given = set(given).union(*(group for group in CHOSEN_TOGETHER if not group.isdisjoint(given)))
        is_settled = "mode" in self._given
        self.plain = present if is_settled else replace(present, mode=Mode.PLAIN, fixed_length=False)
        self._choices = choices
        self._on_gpu = on_gpu

    @property
    def dimensions(self) -> list[Dimension[Point]]:
        """In the order in which they are tried. Threads hardly matter where a GPU does the work."""
        threads = self._dimension("threads", "threads", self._threads)
        middle = [
            self._dimension("target's KV cache", "kv_type", self._kv_types),
            self._dimension("draft's KV cache", "draft_kv_type", self._draft_kv_types),
            self._dimension("source and length", "mode", self._sources),
            self._dimension("ceiling", "num_speculative_tokens", self._ceilings),
            self._dimension("n-grams", "lookup_min_ngram", self._ngrams),
        ]
        first = [
            self._dimension("speculation", "mode", self._speculation),
            Dimension("draft", self._drafts),
        ]
        return [*first, *middle, threads] if self._on_gpu else [*first, threads, *middle]

    def _dimension(self, name: str, setting: str, alternatives: Callable[[Point], Iterator[Point]]) -> Dimension[Point]:
        return Dimension(name, (lambda _: ()) if setting in self._given else alternatives)

    def _speculating(self, point: Point) -> Point:
        if point.mode is not Mode.PLAIN:
            return point
        return replace(point, mode=self.present.mode, fixed_length=self.present.fixed_length)

    def _speculation(self, best: Point) -> Iterator[Point]:
        if best.mode is Mode.PLAIN:
            yield self._speculating(best)

    def _drafts(self, best: Point) -> Iterator[Point]:
        for draft in self._choices.drafts:
            yield replace(self._speculating(best), draft=draft)

    def _threads(self, best: Point) -> Iterator[Point]:
        for threads in self._choices.threads:
            yield replace(best, threads=threads)

    def _kv_types(self, best: Point) -> Iterator[Point]:
        for kv_type in self._choices.kv_types:
            yield replace(best, kv_type=kv_type)

    def _draft_kv_types(self, best: Point) -> Iterator[Point]:
        if best.drafts_by_model:
            for kv_type in self._choices.kv_types or (_DRAFT_KV_TYPES_ON_GPU if self._on_gpu else ()):
                yield replace(best, draft_kv_type=kv_type)

    def _sources(self, best: Point) -> Iterator[Point]:
        ceiling = self.present.num_speculative_tokens
        adaptive = replace(best, fixed_length=False, num_speculative_tokens=ceiling)
        if best.draft is not None:
            yield replace(adaptive, mode=Mode.AUTO)
            yield replace(adaptive, mode=Mode.DRAFT)
            yield replace(adaptive, mode=Mode.LOOKUP)  # without a draft model, auto is that
        for length in _FIXED_LENGTHS:
            mode = Mode.LOOKUP if best.draft is None else Mode.DRAFT
            yield replace(best, mode=mode, fixed_length=True, num_speculative_tokens=length)
        # Whatever else changed does not matter to plain decoding: with that alone it would be compared again.
        yield replace(self.plain, kv_type=best.kv_type, threads=best.threads)

    def _ceilings(self, best: Point) -> Iterator[Point]:
        for ceiling in self._other_ceilings(best):
            if 1 <= ceiling <= MAX_NUM_SPECULATIVE_TOKENS:
                yield replace(best, num_speculative_tokens=ceiling)

    def _other_ceilings(self, best: Point) -> tuple[int, ...]:
        """Neighbours of a fixed length. A ceiling bounds what a draft model costs; copies cost nothing to draft."""
        n = best.num_speculative_tokens
        if best.fixed_length:
            return _FIXED_LENGTHS if n is None else (n + 1, n - 1)
        if not best.drafts_by_model:
            return ()
        # In draft mode the last of them is what None means.
        return _CEILINGS[:-1] if best.mode is Mode.DRAFT and n is None else _CEILINGS

    def _ngrams(self, best: Point) -> Iterator[Point]:
        if best.copies:
            for low, high in _NGRAMS:
                yield replace(best, lookup_min_ngram=low, lookup_max_ngram=high)


def difference(before: Point, after: Point) -> str:
    """What is different after, in words."""
    words = []
    if after.draft != before.draft and after.draft is not None:
        words.append(f"draft {after.draft.name}")
    if after.mode is not before.mode or after.fixed_length != before.fixed_length:
        words.append(f"{after.mode} mode")
        words += [_length(after)] * after.fixed_length
    elif after.num_speculative_tokens != before.num_speculative_tokens:
        words.append(_length(after))
    ngram = after.lookup_min_ngram, after.lookup_max_ngram
    if ngram != (before.lookup_min_ngram, before.lookup_max_ngram):
        words.append(f"n-grams of {ngram[0]} to {ngram[1]}")
    if after.kv_type is not before.kv_type:
        words.append(f"{after.kv_type} for the target's KV cache")
    if after.draft_kv_type is not before.draft_kv_type:
        words.append(f"{after.draft_kv_type} for the draft's KV cache")
    if after.threads != before.threads:
        words.append(f"{after.threads or 'default'} thread{'s' if after.threads != 1 else ''}")
    return ", ".join(words)


def _length(point: Point) -> str:
    n = point.num_speculative_tokens
    if point.fixed_length:
        return "drafts of default length" if n is None else f"drafts of {n}"
    return "default ceiling" if n is None else f"ceiling {n}"
