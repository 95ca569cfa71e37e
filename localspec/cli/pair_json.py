"""Models and pairs as `localspec pair --json` prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from localspec.cli.plan import as_object
from localspec.models.description import describe

if TYPE_CHECKING:
    from localspec.models.compat import PairVerdict
    from localspec.pairing.drafts import DraftOption
    from localspec.pairing.resolve import ResolvedModel

__all__ = ["model_object", "option_object", "reasons_object"]


def model_object(model: ResolvedModel) -> dict[str, Any]:
    """Which model, and what has to be fetched of it."""
    described = describe(model.header)
    return {
        "reference": model.exact_reference,
        "path": str(model.path) if model.path is not None else None,
        "name": described.name,
        "architecture": described.architecture,
        "quantization": described.quantization or None,
        "parameters": described.n_parameters,
        "download_bytes": model.n_download_bytes,
        "header_bytes": model.n_header_bytes,
    }


def reasons_object(verdict: PairVerdict) -> list[dict[str, Any]]:
    """Why a pair is refused, or what differs without harm."""
    return [
        {
            "rule": each.rule,
            "target": each.target_value,
            "draft": each.draft_value,
            "text": each.text,
            "hint": each.hint or None,
        }
        for each in verdict.reasons
    ]


def option_object(option: DraftOption) -> dict[str, Any]:
    """A draft beside its target: verdict, reasons, warnings, memory, and speeds predicted and measured."""
    prediction, measured, reported = option.prediction, option.measured, option.reported
    return {
        "draft": model_object(option.model),
        "found": option.place.value,
        "verdict": option.verdict.verdict.value,
        "reasons": reasons_object(option.verdict),
        "warnings": [
            {"rule": each.rule, "target": each.target_value, "draft": each.draft_value, "text": each.text}
            for each in option.warnings
        ],
        "fits": option.fits if option.plan is not None else None,
        "memory": as_object(option.plan) if option.plan is not None else None,
        "predicted": None
        if prediction is None
        else {
            "tokens_per_second_without": prediction.plain_tokens_per_s,
            "speedup": prediction.speedup,
            "n_draft": prediction.n_draft,
            "assumed_acceptance": prediction.acceptance,
            "bytes_per_second": prediction.bandwidth,
        },
        "measured": None if measured is None else measured.model_dump(mode="json", exclude={"basis", "format"}),
        "reported": None if reported is None else reported.model_dump(mode="json"),
    }
