"""The best way to load a pair that fits a machine, and what else could be done.

The rules, in order:
1. The context is as large as was asked for. A smaller one is offered, never chosen.
2. The target is whole on the GPU before anything is spent on a draft; if an F16 cache is in the way, with a Q8_0 one.
3. A target that does not fit there whole has as many layers there as fit, and no draft model beside it.
4. The draft model goes beside that whole, with a Q8_0 cache at need, or not at all. In which quantization it comes was
   chosen before (`pairing.quantizations`).
5. Without a GPU everything is in system memory, by the same rules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from localspec.errors import UsageError
from localspec.memory.choice import Choice, Margin, ModelChoice
from localspec.memory.context_shape import ContextShape
from localspec.memory.devices import Machine
from localspec.memory.estimate import Footprint
from localspec.memory.kv_cache import CELL_PADDING, kv_type_problem
from localspec.models.header import GgufHeader
from localspec.quantities import memory_size

__all__ = ["Alternative", "Change", "Plan", "best_choice", "plan"]

# A Q8_0 cache did not cost acceptance in one report where a Q4_0 one nearly halved it: only the first is ever chosen.
_KV_TYPES: Final = ("f16", "q8_0")
_SMALLER_KV_TYPES: Final = ("q8_0", "q4_0")
_N_DRAFT_OUTPUTS: Final = 1
_LEAST_CTX: Final = 512


class Change(StrEnum):
    """In what an alternative differs from the choice."""

    DRAFT = "draft"
    NO_DRAFT = "no draft"
    KV_TYPE = "kv type"
    SMALLER_CTX = "smaller context"
    LARGER_CTX = "larger context"
    FEWER_LAYERS = "fewer layers"
    FEWER_GPUS = "fewer gpus"
    NO_GPU = "no gpu"


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another way: what changes, and its price or gain in words."""

    change: Change
    text: str
    choice: Choice


@dataclass(frozen=True, slots=True)
class Plan:
    """The choice, why it is the choice, and the alternatives. Where nothing fits, `choice` is the nearest to it."""

    choice: Choice
    reasons: tuple[str, ...]
    alternatives: tuple[Alternative, ...]

    @property
    def fits(self) -> bool:
        """Whether the choice does."""
        return self.choice.fits


def plan(
    target: GgufHeader,
    draft: GgufHeader | None,
    machine: Machine,
    *,
    n_ctx: int,
    kv_type: str | None = None,
    draft_kv_type: str | None = None,
    n_gpu_layers: int | None = None,
    margin: Margin | None = None,
) -> Plan:
    """Plan a target, with `draft` if there is one and room for it.

    Types and layers that are None are chosen; -1 layers are all.

    Raises:
        ModelFileError: a header lacks a number that is needed.
        UsageError: a cache type that was asked for is impossible for the model.
    """
    return _Planner(target, draft, machine, n_ctx, kv_type, draft_kv_type, n_gpu_layers, margin or Margin()).plan()


def best_choice(
    target: GgufHeader,
    machine: Machine,
    *,
    n_ctx: int,
    kv_type: str | None = None,
    n_gpu_layers: int | None = None,
    margin: Margin | None = None,
) -> Choice:
    """What `plan` chooses for a target alone, without the alternatives: for lists. Raises as `plan`."""
    return _Planner(target, None, machine, n_ctx, kv_type, None, n_gpu_layers, margin or Margin()).best_target()


class _Planner:
    def __init__(
        self,
        target: GgufHeader,
        draft: GgufHeader | None,
        machine: Machine,
        n_ctx: int,
        kv_type: str | None,
        draft_kv_type: str | None,
        n_gpu_layers: int | None,
        margin: Margin,
    ) -> None:
        self._machine = machine
        self._margin = margin
        self._n_ctx = n_ctx
        self._n_gpu_layers = n_gpu_layers
        self._target = Footprint(target)
        self._draft = Footprint(draft) if draft is not None else None
        self._kv_types = _possible(self._target, kv_type)
        self._draft_kv_types = _possible(self._draft, draft_kv_type) if self._draft is not None else ()
        self._reasons: list[str] = []

    def plan(self) -> Plan:
        alone = self.best_target()
        choice = self._with_draft(alone, self._draft) if self._draft is not None else alone
        return Plan(choice, tuple(self._reasons), tuple(self._alternatives(choice, alone)))

    # --- the target ---------------------------------------------------------------------------------------------------

    def _of_target(self, kv_type: str, n_gpu_layers: int, n_ctx: int | None = None) -> Choice:
        n_ctx = n_ctx or self._n_ctx
        memory = self._target.memory(
            ContextShape(n_ctx, kv_type), n_gpu_layers=n_gpu_layers, gpu_free_bytes=self._free_bytes()
        )
        model = ModelChoice(self._target.header.path, kv_type, memory)
        return Choice(self._machine, self._margin, n_ctx, model)

    def _free_bytes(self) -> tuple[int, ...]:
        return tuple(gpu.free_bytes for gpu in self._machine.gpus)

    def best_target(self) -> Choice:
        """The target alone; where it does not fit, the nearest to it."""
        wanted = self._n_gpu_layers if self._n_gpu_layers is not None else -1
        whole = [self._of_target(kv_type, wanted) for kv_type in self._kv_types]
        for choice in whole:
            if choice.fits:
                self._explain_target(choice, whole[0])
                return choice
        if partial := self._partly_on_gpu(self._n_ctx):
            self._explain_partial(partial, whole[0])
            return partial
        nearest = min(whole, key=lambda each: each.missing_bytes)
        self._reasons.append(f"{nearest.target.name} does not fit: {memory_size(nearest.missing_bytes)} are missing.")
        return nearest

    def _partly_on_gpu(self, n_ctx: int) -> Choice | None:
        """The widest cache type with which some layers fit; none without a GPU, or where the layers were given."""
        if not self._machine.gpus or self._n_gpu_layers is not None:
            return None
        return next(filter(None, (self._most_layers(kv_type, n_ctx) for kv_type in self._kv_types)), None)

    def _most_layers(self, kv_type: str, n_ctx: int) -> Choice | None:
        """As many layers on the GPUs as fit, but not all.

        Every number is tried: with one fewer, all layers are split anew, and one card may get more than before.
        """
        free_bytes = self._machine.host.free_bytes + (0 if self._machine.unified else sum(self._free_bytes()))
        kv_bytes = sum(self._target.kv_bytes(ContextShape(n_ctx, kv_type)))
        if self._target.weights.total_bytes + kv_bytes > free_bytes:
            return None  # wherever the layers are
        choices = (self._of_target(kv_type, n, n_ctx) for n in range(self._target.shape.n_layers_all, -1, -1))
        return next((choice for choice in choices if choice.fits), None)

    # --- the draft ----------------------------------------------------------------------------------------------------

    def _with_draft(self, alone: Choice, draft: Footprint) -> Choice:
        if not alone.fits:
            return alone
        if self._is_partly_on_gpu(alone):
            self._reasons.append("No draft model: it would take layers of the target off the GPU.")
            return alone
        pair = self._beside(alone, draft)
        if not pair.fits:
            self._reasons.append(
                f"No draft model: beside the target, {draft.header.path.name} lacks {memory_size(pair.missing_bytes)}."
            )
            return alone
        self._reasons.append(f"{draft.header.path.name} fits beside it.")
        return pair

    def _beside(self, alone: Choice, draft: Footprint) -> Choice:
        """A target with the draft, whose cache has the widest type that fits, else the narrowest."""
        choices = [self._of_draft(alone, draft, kv_type) for kv_type in self._draft_kv_types]
        return next((each for each in choices if each.fits), choices[-1])

    def _of_draft(self, alone: Choice, draft: Footprint, kv_type: str) -> Choice:
        """The draft whole beside the target: on the GPU if there is one, else in system memory."""
        context = ContextShape(alone.n_ctx, kv_type, n_outputs=_N_DRAFT_OUTPUTS)
        taken = [each.total_bytes for each in alone.target.memory.gpus]
        free = tuple(max(0, free - used) for free, used in zip(self._free_bytes(), taken, strict=True))
        memory = draft.memory(context, gpu_free_bytes=free)
        return replace(alone, draft=ModelChoice(draft.header.path, kv_type, memory))

    # --- alternatives -------------------------------------------------------------------------------------------------

    def _alternatives(self, choice: Choice, alone: Choice) -> list[Alternative]:
        found: list[Alternative] = []
        if choice.draft is not None:
            freed = memory_size(choice.total_bytes - alone.total_bytes)
            text = f"without a draft model (prompt lookup only): frees {freed}"
            found.append(Alternative(Change.NO_DRAFT, text, alone))
        elif self._draft is not None and alone.fits:
            found += self._price_of_draft(alone, self._draft)
        found += self._other_kv_types(choice)
        found += self._other_contexts(choice)
        is_whole = choice.fits and choice.is_target_whole_on_gpu
        if len(self._machine.gpus) > 1 and not is_whole and self._n_gpu_layers is None and not self._machine.unified:
            found += self._without_small_gpus()
        if self._machine.gpus and not choice.fits:
            found += self._without_gpus()
        return found

    def _price_of_draft(self, alone: Choice, draft: Footprint) -> list[Alternative]:
        """Of one that was left out: what it would take, or how many layers of a target that is not whole on the GPU."""
        name = draft.header.path.name
        if not self._is_partly_on_gpu(alone):
            other = self._beside(alone, draft)
            taken, missing = memory_size(other.total_bytes - alone.total_bytes), memory_size(other.missing_bytes)
            text = f"{name} as the draft: takes {taken}, {missing} more than there is"
            return [Alternative(Change.DRAFT, text, other)]
        n_before = alone.target.memory.n_gpu_layers
        for n in range(n_before, -1, -1):
            other = self._beside(self._of_target(alone.target.kv_type, n), draft)
            if other.fits:
                text = f"{name} as the draft: {n_before - n} layers of the target fewer on the GPU"
                return [Alternative(Change.FEWER_LAYERS, text, other)]
        return []

    def _other_kv_types(self, choice: Choice) -> list[Alternative]:
        """Smaller caches of the target, where it is not the user who chose."""
        if len(self._kv_types) == 1:
            return []
        found = []
        for kv_type in _SMALLER_KV_TYPES:
            if kv_type == choice.target.kv_type or kv_type_problem(self._target.shape, kv_type):
                continue
            if self._is_partly_on_gpu(choice):
                other = self._most_layers(kv_type, self._n_ctx) or self._of_target(kv_type, -1)
                gain = f"puts {other.target.memory.n_gpu_layers} of {other.target.memory.n_layers} layers on the GPU"
            else:
                other = self._again(choice, kv_type=kv_type)
                if other.total_bytes >= choice.total_bytes:
                    continue
                gain = f"frees {memory_size(choice.total_bytes - other.total_bytes)}"
            if self._draft is not None and choice.draft is None and choice.fits and not self._is_partly_on_gpu(choice):
                pair = self._beside(other, self._draft)
                if pair.fits:
                    other, gain = pair, f"leaves room for {self._draft.header.path.name} as the draft"
            price = "a small loss of precision" if kv_type == "q8_0" else "a loss of precision that shows"
            found.append(Alternative(Change.KV_TYPE, f"a {kv_type} cache: {gain}; {price}", other))
        return found

    def _is_partly_on_gpu(self, choice: Choice) -> bool:
        """Only because not more fits, not because it was asked for."""
        return bool(self._machine.gpus) and self._n_gpu_layers is None and not choice.is_target_whole_on_gpu

    def _without_gpus(self) -> list[Alternative]:
        """A small card may be too small even to help: llama.cpp lends it weights for large batches."""
        bare = replace(self._machine, gpus=(), unified=False)
        other = self._whole_on(bare)
        if other is None:
            return []
        text = f"system memory alone ({other.target.kv_type} cache), with the card hidden: CUDA_VISIBLE_DEVICES="
        return [Alternative(Change.NO_GPU, text, other)]

    def _without_small_gpus(self) -> list[Alternative]:
        """Layers are split by free memory, and of that a small card lacks more for the margin and the buffers."""
        gpus = self._machine.gpus
        by_size = sorted(range(len(gpus)), key=lambda number: gpus[number].free_bytes)
        for n_hidden in range(1, len(gpus)):
            hidden = sorted(by_size[:n_hidden])
            kept = tuple(gpu for number, gpu in enumerate(gpus) if number not in hidden)
            other = self._whole_on(replace(self._machine, gpus=kept))
            if other is not None:
                names = " and ".join(
                    f"{gpus[number].name} ({memory_size(gpus[number].free_bytes)} free)" for number in hidden
                )
                text = (
                    f"without {names}, hidden by CUDA_VISIBLE_DEVICES: the target is whole on the rest "
                    f"({other.target.kv_type} cache)"
                )
                return [Alternative(Change.FEWER_GPUS, text, other)]
        return []

    def _whole_on(self, machine: Machine) -> Choice | None:
        """The target on all GPUs of another machine, without any in system memory; None where it does not fit."""
        free_bytes = tuple(gpu.free_bytes for gpu in machine.gpus)
        for kv_type in self._kv_types:
            memory = self._target.memory(ContextShape(self._n_ctx, kv_type), gpu_free_bytes=free_bytes)
            model = ModelChoice(self._target.header.path, kv_type, memory)
            choice = Choice(machine, self._margin, self._n_ctx, model)
            if choice.fits:
                return choice
        return None

    def _other_contexts(self, choice: Choice) -> list[Alternative]:
        kv_type = choice.target.kv_type
        found = []
        whole = smaller = None
        if self._is_partly_on_gpu(choice):
            whole = self._largest_context(lambda n: self._of_target(kv_type, -1, n), below=self._n_ctx)
        if not choice.fits:
            smaller = self._largest_context(self._best_at, below=self._n_ctx)
        if whole:
            text = f"a context of {whole.n_ctx:,}: the target is whole on the GPU"
            found.append(Alternative(Change.SMALLER_CTX, text, whole))
        if smaller and (whole is None or smaller.n_ctx > whole.n_ctx):
            found.append(Alternative(Change.SMALLER_CTX, f"a context of {smaller.n_ctx:,} fits", smaller))
        trained = self._target.shape.n_ctx_train
        if choice.fits and trained > self._n_ctx and not self._is_partly_on_gpu(choice):
            larger = self._largest_context(lambda n: self._again(choice, n_ctx=n), below=trained + 1)
            if larger is not None and larger.n_ctx > self._n_ctx:
                text = f"a context of up to {larger.n_ctx:,} fits as well"
                found.append(Alternative(Change.LARGER_CTX, text, larger))
        return found

    def _best_at(self, n_ctx: int) -> Choice:
        """Any way at another context size: as asked for, else a smaller cache, else fewer layers on the GPU."""
        wanted = self._n_gpu_layers if self._n_gpu_layers is not None else -1
        choices = [self._of_target(kv_type, wanted, n_ctx) for kv_type in self._kv_types]
        for choice in choices:
            if choice.fits:
                return choice
        return self._partly_on_gpu(n_ctx) or choices[0]

    def _again(self, choice: Choice, *, n_ctx: int | None = None, kv_type: str | None = None) -> Choice:
        """The same with another context or cache type."""
        target = choice.target
        alone = self._of_target(kv_type or target.kv_type, target.memory.n_gpu_layers, n_ctx)
        if choice.draft is None or self._draft is None:
            return alone
        return self._of_draft(alone, self._draft, choice.draft.kv_type)

    def _largest_context(self, choose: Callable[[int], Choice], below: int) -> Choice | None:
        """The largest context that fits, in steps of the cache's padding, below a limit."""
        low, high = _LEAST_CTX // CELL_PADDING, (below - 1) // CELL_PADDING
        best: Choice | None = None
        while low <= high:
            middle = (low + high) // 2
            choice = choose(middle * CELL_PADDING)
            if choice.fits:
                low, best = middle + 1, choice
            else:
                high = middle - 1
        return best

    # --- words --------------------------------------------------------------------------------------------------------

    def _explain_target(self, choice: Choice, first: Choice) -> None:
        name = choice.target.name
        if choice.is_target_whole_on_gpu:
            self._reasons.append(f"{name} is whole on the GPU.")
        elif self._machine.gpus:
            n, of = choice.target.memory.n_gpu_layers, choice.target.memory.n_layers
            self._reasons.append(f"{name} has {n} of {of} layers on the GPU, as asked for.")
        else:
            self._reasons.append(f"{name} is in system memory.")
        if choice is not first:
            self._reasons.append(
                f"Its cache is {choice.target.kv_type}: in {first.target.kv_type} it would lack "
                f"{memory_size(first.missing_bytes)}."
            )

    def _explain_partial(self, choice: Choice, whole: Choice) -> None:
        memory = choice.target.memory
        self._reasons.append(
            f"{choice.target.name} has {memory.n_gpu_layers} of {memory.n_layers} layers on the GPU: for all of them, "
            f"{memory_size(whole.missing_bytes)} are missing."
        )


def _possible(footprint: Footprint, wanted: str | None) -> tuple[str, ...]:
    """Cache types to try for a model, widest first."""
    if wanted is not None:
        if problem := kv_type_problem(footprint.shape, wanted):
            name = footprint.header.path.name
            raise UsageError(f"{name} cannot have a {wanted} cache: {problem}.", hint="f16 works for every model.")
        return (wanted,)
    return tuple(kv_type for kv_type in _KV_TYPES if not kv_type_problem(footprint.shape, kv_type))
