"""Which quantization of a draft: what each takes and costs, and the one to take by default."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from localspec.errors import LocalspecError
from localspec.models.header import GgufHeader
from localspec.models.quantization import main_tensor_type, n_bits
from localspec.models.references import HubReference
from localspec.pairing.drafts import Conditions, DraftOption, Place, judge
from localspec.pairing.fit import Fit, fit_of
from localspec.pairing.resolve import ResolvedModel

if TYPE_CHECKING:
    from localspec.hub.client import Hub
    from localspec.hub.remote_model import RemoteModel

__all__ = ["best_quantization", "likely_header", "quantization_options", "smaller_targets"]

# A draft in 16 bits reads twice as much as in 8, and is hardly accepted more often.
_MOST_BITS: Final = 8


def quantization_options(
    target: ResolvedModel,
    draft: ResolvedModel,
    remote: Sequence[RemoteModel],
    conditions: Conditions,
    hub: Hub | None = None,
) -> list[DraftOption]:
    """The draft in each of the quantizations of its repository, the largest first.

    Only the header of `draft` is known, and of those that `hub` has read before. The others are taken for the same
    model with weights of another size, which is exact for caches and near enough for weights.
    """
    options = []
    for model in sorted(remote, key=lambda each: -each.n_bytes):
        if draft.remote is not None and model.files == draft.remote.files:
            options.append(judge(target, draft, conditions, place=Place.HUB))
            continue
        path = hub.cached(HubReference(model.repo, file=model.files[0].name)) if hub is not None else None
        other = ResolvedModel(model.reference, likely_header(draft.header, model, hub), path, model)
        options.append(judge(target, other, conditions, place=Place.HUB))
    return options


def smaller_targets(
    target: ResolvedModel, remote: Sequence[RemoteModel], conditions: Conditions
) -> list[tuple[str, int]]:
    """Quantizations of a target that would fit whole, the largest first: their labels and bytes."""
    found = []
    for model in sorted(remote, key=lambda each: -each.n_bytes):
        if model.n_bytes >= target.n_weight_bytes or not model.quantization:
            continue
        if fit_of(_resized(target.header, model), conditions) is Fit.FITS:
            found.append((model.quantization, model.n_bytes))
    return found


def best_quantization(options: Iterable[DraftOption]) -> DraftOption | None:
    """What was measured to be fastest; else the largest of up to 8 bits that fits beside the whole target.

    None where none fits.
    """
    fitting = [option for option in options if option.fits]
    measured = [option for option in fitting if option.measured is not None]
    if measured:
        return max(measured, key=lambda option: option.speedup or 0.0)
    usual = [option for option in fitting if (_bits(option) or _MOST_BITS) <= _MOST_BITS]
    return max(usual or fitting, key=lambda option: option.model.n_weight_bytes, default=None)


def _bits(option: DraftOption) -> int | None:
    remote = option.model.remote
    return n_bits(remote.quantization) if remote is not None and remote.quantization else None


def likely_header(sample: GgufHeader, model: RemoteModel, hub: Hub | None) -> GgufHeader:
    """That of a quantization where it was read before; else `sample`, that of another one, with weights of its size."""
    with contextlib.suppress(LocalspecError):
        if hub is not None and (header := hub.known_header(model)) is not None:
            return header
    return _resized(sample, model)


def _resized(header: GgufHeader, model: RemoteModel) -> GgufHeader:
    """The same tensors in another quantization, with sizes in proportion."""
    factor = max(0, model.n_bytes - header.data_offset) / max(1, sum(tensor.n_bytes for tensor in header.tensors))
    kind = main_tensor_type(model.quantization)
    tensors = tuple(
        replace(tensor, n_bytes=round(tensor.n_bytes * factor), type_name=kind or tensor.type_name)
        for tensor in header.tensors
    )
    metadata = {key: value for key, value in header.metadata.items() if key != "general.file_type"}
    path = PurePosixPath(model.repo) / model.files[0].name
    return replace(header, path=path, metadata=metadata, tensors=tensors, file_size=model.n_bytes)
