"""What to run: contenders x cells x repetitions, in an order that is fair to all contenders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from localspec.bench.paired import in_turn
from localspec.bench.workloads import Workload
from localspec.engine.requests import MAX_NUM_SPECULATIVE_TOKENS, GenerateRequest, Mode, RawPrompt, SamplingParams
from localspec.errors import UsageError

_SPELLING: Final = re.compile(r"(?P<mode>[a-z]+)(?::(?P<low>\d{1,4})(?:\.\.(?P<high>\d{1,4}))?)?")
_HINT: Final = (
    "auto, draft, lookup or plain; draft:6 for drafts of always 6 tokens; draft:0..12 for every length from 0 to 12."
)


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to generate: a mode that adapts its draft length, or with `fixed_length` one that always drafts so many."""

    mode: Mode
    fixed_length: int | None = None

    def __str__(self) -> str:
        return self.mode.value if self.fixed_length is None else f"{self.mode.value}:{self.fixed_length}"

    @property
    def uses_draft_model(self) -> bool:
        """Whether a draft model, where there is one, takes part."""
        return self.mode in {Mode.AUTO, Mode.DRAFT}


PLAIN: Final = Contender(Mode.PLAIN)
"""The contender that every speedup is against."""


def parse_contenders(texts: Iterable[str]) -> tuple[Contender, ...]:
    """Contenders as they are written, such as "auto" and "draft:0..12", each once. Plain is always among them.

    Raises:
        UsageError: something is not a contender; the message names it.
    """
    contenders = dict.fromkeys((PLAIN,))
    for text in texts:
        contenders |= dict.fromkeys(_contenders(text))
    return tuple(contenders)


def default_contenders(*, has_draft_model: bool) -> tuple[Contender, ...]:
    """Every adaptive mode that is of its own: without a draft model, auto and draft would both be lookup."""
    modes = (Mode.PLAIN, Mode.AUTO, Mode.DRAFT, Mode.LOOKUP) if has_draft_model else (Mode.PLAIN, Mode.AUTO)
    return tuple(Contender(mode) for mode in modes)


def _contenders(text: str) -> Iterator[Contender]:
    parts = _SPELLING.fullmatch(text)
    if parts is None or parts["mode"] not in set(Mode):
        raise UsageError(f"{text!r} is no mode to measure.", hint=_HINT)
    mode = Mode(parts["mode"])
    if parts["low"] is None:
        yield Contender(mode)
        return
    if mode not in {Mode.DRAFT, Mode.LOOKUP}:
        raise UsageError(f"{text!r} fixes a draft length, which mode {mode} does not have.", hint=_HINT)
    low, high = int(parts["low"]), int(parts["high"] or parts["low"])
    if not low <= high <= MAX_NUM_SPECULATIVE_TOKENS:
        raise UsageError(
            f"{text!r}: a draft has 0 to {MAX_NUM_SPECULATIVE_TOKENS} tokens, and a sweep goes from few to many.",
            hint=_HINT,
        )
    for n in range(low, high + 1):
        yield Contender(mode, n)


@dataclass(frozen=True, slots=True)
class Cell:
    """What is compared: a prompt at a temperature. `n_context`: tokens that prompt and reply fill; None: unpadded."""

    workload: Workload
    temperature: float
    n_context: int | None = None

    def __str__(self) -> str:
        return f"{self.prompt_name}, temperature {self.temperature:g}"

    @property
    def prompt_name(self) -> str:
        """The workload, and its context where it was padded."""
        return str(self.workload) if self.n_context is None else f"{self.workload} @{self.n_context}"


@dataclass(frozen=True, slots=True)
class Round:
    """One cell, once by every contender, in the order of their turns."""

    cell: Cell
    repetition: int
    contenders: tuple[Contender, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Everything that is measured. `PLAIN` must be among the contenders: every speedup is against it.

    Requests take `sampling` with the temperature of their cell, and `seed` plus the number of the repetition as seed.
    `num_speculative_tokens` is the ceiling of contenders that adapt; None: what suits the source of the draft. Unless
    `keeps_cache`, every prompt is computed anew, so that TTFT is that of a new prompt.
    """

    contenders: tuple[Contender, ...]
    cells: tuple[Cell, ...]
    sampling: SamplingParams
    num_speculative_tokens: int | None
    repetitions: int = 3
    seed: int = 1
    keeps_cache: bool = False

    @property
    def n_runs(self) -> int:
        """Replies to measure."""
        return self.repetitions * len(self.cells) * len(self.contenders)

    def rounds(self) -> Iterator[Round]:
        """All cells, then all again: what drifts over the hours drifts for every cell, and an early stop saw them all.

        In each round another contender begins, and for each cell in each repetition.
        """
        for repetition in range(self.repetitions):
            for number, cell in enumerate(self.cells):
                yield Round(cell, repetition, in_turn(self.contenders, repetition + number))

    def request(self, contender: Contender, cell: Cell, repetition: int) -> GenerateRequest:
        """The request of one run."""
        ceiling = self.num_speculative_tokens if contender.fixed_length is None else contender.fixed_length
        return GenerateRequest(
            cell.workload.chat,
            sampling=replace(self.sampling, temperature=cell.temperature, seed=self.seed + repetition),
            mode=contender.mode,
            num_speculative_tokens=ceiling,
            fixed_length=contender.fixed_length is not None,
            max_tokens=cell.workload.max_tokens,
        )

    def forgetting_request(self) -> GenerateRequest:
        """A request after which neither model's cache holds the prompt before it: a new prompt drops what it lacks."""
        mode = Mode.DRAFT if any(contender.uses_draft_model for contender in self.contenders) else Mode.PLAIN
        return GenerateRequest(
            RawPrompt("."),
            sampling=SamplingParams(temperature=0),
            mode=mode,
            fixed_length=True,  # the adaptive policy, which counts requests, does not notice this one
            max_tokens=1,
        )


def cells_of(
    workloads: Sequence[Workload], temperatures: Sequence[float], n_context: int | None = None
) -> tuple[Cell, ...]:
    """Every workload at every temperature; the temperatures of one prompt follow each other."""
    return tuple(Cell(workload, temperature, n_context) for workload in workloads for temperature in temperatures)
