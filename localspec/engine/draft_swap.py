"""Another draft model, or none, for a pair that is loaded. The target's weights and caches stay as they are."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import Final

from localspec.engine.calibration import measure_agreement
from localspec.engine.loader import LoadedModel, LoadedPair, ModelLoader, OnLoading, checked_header
from localspec.engine.requests import ModelSpec
from localspec.errors import DoesNotFitError, EngineError, LocalspecError, UnsupportedModelError
from localspec.llama.context import Context
from localspec.models.compat import require_compatible
from localspec.speculative.evidence import Agreement

logger = logging.getLogger(__name__)

# Enough for the text on which the two models are compared.
_N_CTX_OF_COMPARISON: Final = 64


def swap_draft(
    pair: LoadedPair, draft: ModelSpec | None, on_loading: OnLoading
) -> tuple[LoadedPair, LocalspecError | None]:
    """Exchange the draft model; no sequence may be running, and `pair` may not be used any more.

    The new draft model is loaded beside the old one, which is freed when the new one is ready: a refusal changes
    nothing. Where memory does not hold both, the old one is freed first, and loaded again if the new one still fails.

    Returns the pair that is loaded now and, where that is not the one that was asked for, the reason.
    """
    if draft is None:
        return pair.without_draft(), None
    new = _attempt(pair, draft, on_loading)
    if isinstance(new, LoadedPair):
        return new, None
    old = pair.spec.draft
    if pair.draft is None or old is None or not isinstance(new, DoesNotFitError):
        return pair, new
    bare = pair.without_draft()
    new = _attempt(bare, draft, on_loading)
    if isinstance(new, LoadedPair):
        return new, None
    restored = _attempt(bare, old, lambda _: True)
    if isinstance(restored, LoadedPair):
        return restored, new
    logger.warning("The draft model that was loaded before could not be loaded again: %s", restored)
    return bare, new


def _attempt(pair: LoadedPair, spec: ModelSpec, on_loading: OnLoading) -> LoadedPair | LocalspecError:
    """The pair with that draft model in place of its own, or why not; `pair` is unchanged then."""
    try:
        with ExitStack() as of_draft:
            draft = _load(pair, spec, on_loading, of_draft)
            return pair.with_draft(spec, draft, _agreement(pair, draft), of_draft.pop_all())
    except LocalspecError as error:
        return error
    except Exception as error:
        logger.exception("Loading %s failed", spec.path.name)
        return EngineError(f"Loading {spec.path.name} failed: {type(error).__name__}: {error}.")


def _load(pair: LoadedPair, spec: ModelSpec, on_loading: OnLoading, of_draft: ExitStack) -> LoadedModel:
    if pair.target.max_rollback == 0:
        raise UnsupportedModelError(f"{pair.speculation_note}.", hint="Choose another target to draft for.")
    header = checked_header(spec.path)
    require_compatible(checked_header(pair.spec.target.path), header)
    loader = ModelLoader(pair.spec, on_loading, pair.n_seq_max)
    draft = of_draft.enter_context(loader.load("draft", spec, header, pair.n_seq_max))
    if draft.max_rollback == 0:
        raise UnsupportedModelError(
            f"{draft.model.name} ({header.architecture}) cannot take back tokens: it cannot draft.",
            hint="Choose a draft model of another architecture.",
        )
    return draft


def _agreement(pair: LoadedPair, draft: LoadedModel) -> Agreement | None:
    """Measured in a context of its own: that of the target holds what was said so far."""
    target = pair.target
    try:
        with Context(
            target.model,
            n_ctx=_N_CTX_OF_COMPARISON,
            n_batch=_N_CTX_OF_COMPARISON,
            n_outputs_max=_N_CTX_OF_COMPARISON,
            kv_type=pair.spec.target.kv_type,
            n_threads=target.context.n_threads,
        ) as context:
            return measure_agreement(target.model, context, draft.context)
    except DoesNotFitError:
        return None  # nothing is known of the two until they draft
