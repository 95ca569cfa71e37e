"""From a PairSpec to loaded models: checks headers first, then loads, allocates and probes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localspec.engine.chat_template import ChatTemplate
from localspec.engine.events import Loaded, Loading
from localspec.engine.requests import (
    DEFAULT_N_CTX,
    MAX_NUM_SPECULATIVE_TOKENS,
    ChatPrompt,
    ModelSpec,
    PairSpec,
    RawPrompt,
)
from localspec.errors import EngineError, UnsupportedModelError
from localspec.llama import library
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.llama.quantize import write_unpacked
from localspec.models.compat import refuse_unless_generative, require_compatible
from localspec.models.gguf import GgufHeader, read_header

# Returns False to cancel.
OnLoading = Callable[[Loading], bool]

# A recurrent state is kept once per token that may be rolled back: enough for the usual ceilings, not for all.
_RECURRENT_SNAPSHOTS: Final = 8


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """A target and, maybe, a draft model, ready to run. Close it when done."""

    spec: PairSpec
    target: Model
    target_context: Context
    draft: Model | None
    draft_context: Context | None
    template: ChatTemplate
    has_chat_template: bool
    max_rollback: int | None  # tokens that a step may take back; None: any number
    speculation_note: str
    _resources: contextlib.ExitStack

    def close(self) -> None:
        """Free contexts, then models, in reverse order of loading."""
        self._resources.close()

    @property
    def draft_model(self) -> Model:
        """The draft model, where there is one."""
        if self.draft is None:
            raise EngineError(f"The pair {self.spec.name} has no draft model.")
        return self.draft

    def encode(self, prompt: ChatPrompt | RawPrompt) -> list[int]:
        """The prompt's tokens.

        Raises:
            ChatTemplateError: the model's template refuses the messages.
        """
        if isinstance(prompt, RawPrompt):
            return self.target.tokenize(prompt.text, add_special=True, parse_special=False)
        text = self.template.render(prompt.messages)
        # Most templates write the BOS token themselves; the tokenizer would add a second one.
        if self.target.adds_bos:
            text = text.removeprefix(self._bos_text)
        return self.target.tokenize(text, add_special=True, parse_special=True)

    @property
    def _bos_text(self) -> str:
        return _token_text(self.target, self.target.bos)

    def describe(self) -> Loaded:
        """What a front end shows of the pair."""
        return Loaded(
            target_name=self.target.name,
            draft_name=self.draft.name if self.draft else None,
            n_ctx=self.target_context.n_ctx,
            n_vocab=self.target.n_vocab,
            weights_bytes=self.target.weights_bytes + (self.draft.weights_bytes if self.draft else 0),
            gpu_offload=library.supports_gpu() and self.spec.target.n_gpu_layers != 0,
            has_chat_template=self.has_chat_template,
            speculation_note=self.speculation_note,
        )


def load_pair(spec: PairSpec, on_loading: OnLoading, *, n_seq_max: int = 1) -> LoadedPair:
    """Load a pair.

    Raises:
        ModelError: a file or the pair is refused; the message names the rule and the values.
        DoesNotFitError: memory or disk.
        LoadCancelledError: `on_loading` returned False.
    """
    with contextlib.ExitStack() as resources:
        _unpack(spec.target, on_loading)
        header = _checked_header(spec.target.path)
        if spec.draft is not None:
            require_compatible(header, _checked_header(spec.draft.path))
        target = resources.enter_context(_load_model(spec.target, "target", on_loading))
        n_ctx = spec.n_ctx or min(target.n_ctx_train or DEFAULT_N_CTX, DEFAULT_N_CTX)
        target_context = resources.enter_context(
            _context(target, spec.target, spec, n_ctx, n_seq_max, _n_outputs(n_seq_max))
        )
        note = ""
        max_rollback = target_context.probe_rollback()
        draft: Model | None = None
        draft_context: Context | None = None
        if max_rollback == 0:
            note = f"{target.name} cannot take back tokens ({header.architecture}): speculation is off."
        elif spec.draft is not None:
            draft = resources.enter_context(_load_model(spec.draft, "draft", on_loading))
            draft_n_ctx = min(n_ctx, draft.n_ctx_train or n_ctx)
            draft_context = resources.enter_context(
                _context(draft, spec.draft, spec, draft_n_ctx, n_seq_max, n_seq_max)
            )
            draft_rollback = draft_context.probe_rollback()
            if draft_rollback == 0:
                note = f"{draft.name} cannot take back tokens: draft mode is off."
                draft_context = None
            elif draft_rollback is not None:
                # The draft model never saw its own last token: a whole draft takes back one less.
                max_rollback = min(max_rollback or draft_rollback + 1, draft_rollback + 1)
        source = target.chat_template
        return LoadedPair(
            spec=spec,
            target=target,
            target_context=target_context,
            draft=draft,
            draft_context=draft_context,
            template=_template(target, source),
            has_chat_template=source is not None,
            max_rollback=max_rollback,
            speculation_note=note,
            _resources=resources.pop_all(),
        )


def _n_outputs(n_seq_max: int) -> int:
    return n_seq_max * (1 + MAX_NUM_SPECULATIVE_TOKENS)


def _unpack(spec: ModelSpec, on_loading: OnLoading) -> None:
    if spec.unpacked_from is not None and not spec.path.exists():
        write_unpacked(spec.unpacked_from, spec.path, lambda done: on_loading(Loading("Writing the demo target", done)))


def _checked_header(path: Path) -> GgufHeader:
    header = read_header(path)
    refuse_unless_generative(header)
    return header


@contextlib.contextmanager
def _load_model(spec: ModelSpec, what: str, on_loading: OnLoading) -> Iterator[Model]:
    def progress(fraction: float) -> bool:
        return on_loading(Loading(f"Loading the {what}", fraction))

    with Model(spec.path, n_gpu_layers=spec.n_gpu_layers, progress=progress) as model:
        if not model.generates:
            raise UnsupportedModelError(
                f"{spec.path} ({model.name}) has no decoder: it cannot generate text.",
                hint="Choose a model that was made for text generation.",
            )
        yield model


def _context(model: Model, spec: ModelSpec, pair: PairSpec, n_ctx: int, n_seq_max: int, n_outputs_max: int) -> Context:
    return Context(
        model,
        n_ctx=n_ctx,
        n_outputs_max=n_outputs_max,
        n_seq_max=n_seq_max,
        kv_type=spec.kv_type,
        n_threads=pair.n_threads,
        n_recurrent_snapshots=_RECURRENT_SNAPSHOTS,
    )


def _template(model: Model, source: str | None) -> ChatTemplate:
    bos, eos = _token_text(model, model.bos), _token_text(model, model.eos)
    if source is None:
        return ChatTemplate.fallback(bos_token=bos, eos_token=eos)
    return ChatTemplate(source, bos_token=bos, eos_token=eos)


def _token_text(model: Model, token: int) -> str:
    return model.token_bytes(token, special=True).decode("utf-8", "replace") if token >= 0 else ""
