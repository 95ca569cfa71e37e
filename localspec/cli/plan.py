"""`localspec plan`: will a pair fit, and how is it best loaded."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from localspec.cli.configured import Planned, folders_of, saved_pair
from localspec.cli.console import write_json
from localspec.cli.options import PlannedCtx, PlannedDraftKvType, PlannedGpuMemory, PlannedKvType
from localspec.engine.requests import default_n_ctx
from localspec.errors import DoesNotFitError, UsageError

if TYPE_CHECKING:
    from localspec.memory.choice import Choice, ModelChoice
    from localspec.memory.estimate import DeviceBytes
    from localspec.memory.plan import Plan
    from localspec.models.header import GgufHeader
    from localspec.models.library import LocalModel

_MAX_INT: Final = 2**31 - 1


def plan(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[TARGET]",
            help="A GGUF file, repo:QUANT on the Hub, a known name, or a pair from the configuration.",
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", "-m", metavar="MODEL", help="The same as an option.")
    ] = None,
    draft: Annotated[
        str | None, typer.Option("--draft", "-md", metavar="MODEL", help="A draft model, likewise.")
    ] = None,
    ctx: PlannedCtx = None,
    kv_type: PlannedKvType = None,
    draft_kv_type: PlannedDraftKvType = None,
    gpu_layers: Annotated[
        int | None,
        typer.Option(
            "--gpu-layers",
            "-ngl",
            min=-1,
            max=_MAX_INT,
            help="Layers of the target on the GPU; by default all that fit.",
        ),
    ] = None,
    gpu_memory: PlannedGpuMemory = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object with bytes per model and device.")] = False,
) -> None:
    """Plan the memory of a target and its draft model, before anything is loaded or downloaded.

    Only headers are read. The context is never made smaller than asked for; what a smaller one would bring is said.
    Exit codes: 0 it fits, 2 usage, 3 a model or the pair is refused, 4 it does not fit.
    """
    from localspec.cli.here import found_models
    from localspec.cli.machine import machine_for
    from localspec.memory.plan import plan as make_plan
    from localspec.models.hyperparameters import hyperparameters
    from localspec.pairing.resolve import resolve

    def local() -> list[LocalModel]:
        return found_models(folders_of(context))

    text = _one(model, target)
    asked = (saved_pair(context, text) or Planned(text)).but(
        draft=draft, ctx=ctx, kv_type=kv_type, draft_kv_type=draft_kv_type, gpu_layers=gpu_layers
    )
    ours = _usable(resolve(asked.target, local=local).header)
    theirs = _usable(resolve(asked.draft, local=local).header) if asked.draft is not None else None
    if theirs is not None:
        _refuse_strangers(ours, theirs)
    made = make_plan(
        ours,
        theirs,
        machine_for(gpu_memory),
        n_ctx=asked.ctx or default_n_ctx(hyperparameters(ours).n_ctx_train),
        kv_type=asked.kv_type,
        draft_kv_type=asked.draft_kv_type,
        n_gpu_layers=asked.gpu_layers,
    )
    if as_json:
        write_json(as_object(made))
    else:
        from localspec.cli.plan_screen import write_plan

        write_plan(made, sys.stdout)
    sys.stdout.flush()
    if not made.fits:
        raise typer.Exit(DoesNotFitError.exit_code)


def _one(model: str | None, target: str | None) -> str:
    if model is not None and target is not None:
        raise UsageError(f"{model} and --target {target} both name the target.", hint="Give one of them.")
    text = model or target
    if not text:
        raise UsageError("Which target?", hint="localspec plan TARGET --draft DRAFT")
    return text


def _usable(header: GgufHeader) -> GgufHeader:
    """Refuse what is no model that can write text. Without a tokenizer it can still be planned, not without weights."""
    from localspec.models.generative import refuse_unless_generative

    refuse_unless_generative(header, incomplete_ok=bool(header.tensors))
    return header


def _refuse_strangers(target: GgufHeader, draft: GgufHeader) -> None:
    """A pair whose vocabularies differ cannot run, whatever fits."""
    from localspec.models.compat import require_compatible
    from localspec.models.vocabulary import read_vocabulary

    if read_vocabulary(target) is not None and read_vocabulary(draft) is not None:
        require_compatible(target, draft)


# --- JSON -------------------------------------------------------------------------------------------------------------


def as_object(plan: Plan) -> dict[str, Any]:
    """What `--json` prints: bytes per model and device, whether it fits, the choice, and the alternatives."""
    return {
        **_choice(plan.choice),
        "reasons": list(plan.reasons),
        "alternatives": [
            {"change": each.change.value, "text": each.text, **_choice(each.choice)} for each in plan.alternatives
        ],
    }


def _choice(choice: Choice) -> dict[str, Any]:
    draft = choice.draft
    return {
        "fits": choice.fits,
        "missing_bytes": choice.missing_bytes,
        "total_bytes": choice.total_bytes,
        "choice": {
            "n_ctx": choice.n_ctx,
            "gpu_layers": choice.target.memory.n_gpu_layers,
            "n_layers": choice.target.memory.n_layers,
            "whole_on_gpu": choice.is_target_whole_on_gpu,
            "kv_type": choice.target.kv_type,
            "draft": str(draft.path) if draft else None,
            "draft_gpu_layers": draft.memory.n_gpu_layers if draft else None,
            "draft_kv_type": draft.kv_type if draft else None,
        },
        "target": _model(choice, choice.target),
        "draft": _model(choice, draft) if draft else None,
        "devices": [
            {
                "name": load.device.name,
                "total_bytes": load.device.total_bytes,
                "free_bytes": load.device.free_bytes,
                "used_bytes": load.used_bytes,
                "margin_bytes": load.margin_bytes,
                "missing_bytes": load.missing_bytes,
            }
            for load in choice.loads
        ],
    }


def _model(choice: Choice, model: ModelChoice) -> dict[str, Any]:
    per_device = model.memory.host, *model.memory.gpus
    names = [load.device.name for load in choice.loads]
    return {
        "path": str(model.path),
        "is_exact": model.memory.is_exact,
        **_bytes(*per_device),
        "devices": [{"name": name, **_bytes(used)} for name, used in zip(names, per_device, strict=True)],
    }


def _bytes(*parts: DeviceBytes) -> dict[str, int]:
    return {
        "weights_bytes": sum(each.weights_bytes for each in parts),
        "kv_bytes": sum(each.kv_bytes for each in parts),
        "compute_bytes": sum(each.compute_bytes for each in parts),
        "total_bytes": sum(each.total_bytes for each in parts),
    }
