"""From a PairSpec to loaded models: checks headers first, then loads, allocates and probes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from localspec.engine.calibration import measure_agreement, measure_pass_times
from localspec.engine.events import Loaded, Loading, ModelFacts
from localspec.engine.prompts import PromptEncoder
from localspec.engine.requests import MAX_NUM_SPECULATIVE_TOKENS, ModelSpec, PairSpec, default_n_ctx
from localspec.errors import DoesNotFitError, ModelFileError, UnsupportedModelError
from localspec.llama import library
from localspec.llama.context import Context
from localspec.llama.fill_in import fill_in_tokens
from localspec.llama.model import Model
from localspec.llama.quantize import write_unpacked
from localspec.memory.devices import host_memory
from localspec.memory.estimate import least_kv_bytes
from localspec.models.compat import require_compatible
from localspec.models.generative import refuse_unless_generative
from localspec.models.gguf import GgufHeader, read_header
from localspec.models.split import read_model
from localspec.quantities import memory_size
from localspec.speculative.evidence import Agreement
from localspec.speculative.pass_times import PassTimes

logger = logging.getLogger(__name__)

# Returns False to cancel.
OnLoading = Callable[[Loading], bool]

# A recurrent state is kept once per token that may be rolled back: enough for the usual ceilings, not for all.
_RECURRENT_SNAPSHOTS: Final = 8


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model and its context. `max_rollback`: tokens that a rollback can drop; None: any number, 0: none.

    `pass_times` were measured after loading.
    """

    model: Model
    context: Context
    max_rollback: int | None
    pass_times: PassTimes


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """A target and, maybe, a draft model, ready to run. Close it when done."""

    spec: PairSpec
    target: LoadedModel
    draft: LoadedModel | None
    encoder: PromptEncoder
    agreement: Agreement | None  # of the two models, measured after loading
    speculation_note: str  # why there is less speculation than was asked for, or ""
    n_seq_max: int
    _of_target: ExitStack
    _of_draft: ExitStack

    def close(self) -> None:
        """Free everything, in reverse order of loading."""
        self._of_draft.close()
        self._of_target.close()

    def with_draft(self, spec: ModelSpec, draft: LoadedModel, agreement: Agreement | None, of_draft: ExitStack) -> Self:
        """The same target with another draft model, which `of_draft` frees. The one before is freed."""
        self._of_draft.close()
        return replace(
            self,
            spec=replace(self.spec, draft=spec),
            draft=draft,
            agreement=agreement,
            speculation_note="",
            _of_draft=of_draft,
        )

    def without_draft(self) -> Self:
        """The same target alone. The draft model is freed."""
        self._of_draft.close()
        note = self.speculation_note if self.target.max_rollback == 0 else ""
        spec = replace(self.spec, draft=None)
        return replace(self, spec=spec, draft=None, agreement=None, speculation_note=note, _of_draft=ExitStack())

    def describe(self) -> Loaded:
        """What a front end shows of the pair."""
        models = [loaded.model for loaded in (self.target, self.draft) if loaded is not None]
        return Loaded(
            target_name=self.target.model.name,
            draft_name=self.draft.model.name if self.draft else None,
            n_ctx=self.target.context.n_ctx,
            n_vocab=self.target.model.n_vocab,
            n_threads=self.target.context.n_threads,
            weights_bytes=sum(model.weights_bytes for model in models),
            gpu_offload=library.supports_gpu() and self.spec.target.n_gpu_layers != 0,
            has_chat_template=self.encoder.has_chat_template,
            speculation_note=self.speculation_note,
            about=_facts(self.spec.target.path, self.target.model),
        )


def load_pair(spec: PairSpec, on_loading: OnLoading, *, n_seq_max: int | None = None) -> LoadedPair:
    """Load a pair for up to `n_seq_max` sequences at once; None: as many as it has slots.

    Raises:
        ModelError: a file or the pair is refused; the message names the rule and the values.
        DoesNotFitError: memory or disk.
        LoadCancelledError: `on_loading` returned False.
        EngineError: a first pass through a model failed.
    """
    n_seq_max = spec.n_slots if n_seq_max is None else n_seq_max
    _unpack(spec.target, on_loading)
    target_header = checked_header(spec.target.path, embedding_ok=spec.may_embed)
    draft_header = checked_header(spec.draft.path) if spec.draft else None
    if draft_header is not None:
        require_compatible(target_header, draft_header)
    with ExitStack() as of_target, ExitStack() as of_draft:
        loader = ModelLoader(spec, on_loading, n_seq_max)
        n_outputs = n_seq_max * (1 + MAX_NUM_SPECULATIVE_TOKENS)
        target = of_target.enter_context(loader.load("target", spec.target, target_header, n_outputs))
        draft: LoadedModel | None = None
        note = ""
        if target.max_rollback == 0:
            note = f"{target.model.name} ({target_header.architecture}) cannot take back tokens: speculation is off"
        elif spec.draft is not None and draft_header is not None:
            loaded = of_draft.enter_context(loader.load("draft", spec.draft, draft_header, n_seq_max))
            if loaded.max_rollback == 0:
                note = f"{loaded.model.name} ({draft_header.architecture}) cannot take back tokens: it cannot draft"
                of_draft.close()
            else:
                draft = loaded
        encoder = PromptEncoder(target.model)
        agreement = measure_agreement(target.model, target.context, draft.context) if draft else None
        return LoadedPair(
            spec, target, draft, encoder, agreement, note, n_seq_max, of_target.pop_all(), of_draft.pop_all()
        )


def _facts(path: Path, model: Model) -> ModelFacts:
    return ModelFacts(
        path=path,
        n_ctx_train=model.n_ctx_train,
        n_parameters=model.n_parameters,
        n_embd=model.n_embd,
        weights_bytes=model.weights_bytes,
        chat_template=model.chat_template,
        bos=model.text_of(model.bos),
        eos=model.text_of(model.eos),
        fills_in=fill_in_tokens(model) is not None,
        embeds=model.embeds,
    )


class ModelLoader:
    """What both models of a pair share while they are loaded."""

    def __init__(self, spec: PairSpec, on_loading: OnLoading, n_seq_max: int) -> None:
        self._spec = spec
        self._on_loading = on_loading
        self._n_seq_max = n_seq_max

    @contextmanager
    def load(self, what: str, spec: ModelSpec, header: GgufHeader, n_outputs_max: int) -> Iterator[LoadedModel]:
        """A model with its context, as long as the block lasts; raises as `load_pair` does."""

        def progress(fraction: float) -> bool:
            return self._on_loading(Loading(f"Loading the {what}", fraction))

        with Model(spec.path, n_gpu_layers=spec.n_gpu_layers, progress=progress) as model:
            if not model.generates:
                raise UnsupportedModelError(
                    f"{spec.path} ({model.name}) has no decoder: it cannot generate text.",
                    hint="Choose a model that was made for text generation.",
                )
            n_ctx = self._spec.n_ctx or default_n_ctx(model.n_ctx_train)
            _refuse_impossible_cache(spec, header, n_ctx)
            with Context(
                model,
                n_ctx=n_ctx,
                n_outputs_max=n_outputs_max,
                n_seq_max=self._n_seq_max,
                kv_type=spec.kv_type,
                n_threads=self._spec.n_threads,
                n_recurrent_snapshots=_RECURRENT_SNAPSHOTS,
            ) as context:
                max_rollback = context.probe_rollback()
                yield LoadedModel(model, context, max_rollback, measure_pass_times(context, n_outputs_max))


def _unpack(spec: ModelSpec, on_loading: OnLoading) -> None:
    if spec.unpacked_from is None:
        return
    if spec.path.is_file():
        try:
            read_header(spec.path)
        except ModelFileError:
            logger.warning("%s is damaged and is written again", spec.path)
        else:
            return
    write_unpacked(spec.unpacked_from, spec.path, lambda done: on_loading(Loading("Writing the demo target", done)))


def checked_header(path: Path, *, embedding_ok: bool = False) -> GgufHeader:
    """The header of a model that writes text; `embedding_ok`: or of a decoder that was made for embeddings.

    Raises:
        ModelError: it is none, or another kind of model.
    """
    header = read_model(path)
    refuse_unless_generative(header, embedding_ok=embedding_ok)
    return header


def _refuse_impossible_cache(spec: ModelSpec, header: GgufHeader, n_ctx: int) -> None:
    """Linux grants memory that is not there and ends the process later; a GPU refuses by itself."""
    if library.supports_gpu() and spec.n_gpu_layers != 0:
        return
    needed, available = least_kv_bytes(header, n_ctx, spec.kv_type), host_memory().free_bytes
    if needed > available:
        raise DoesNotFitError(
            f"A context of {n_ctx} tokens for {spec.path.name} needs at least {memory_size(needed)} of memory "
            f"({spec.kv_type} cache); {memory_size(available)} are available.",
            hint="Give a smaller --ctx, or a smaller cache type with --kv-type q8_0.",
        )
