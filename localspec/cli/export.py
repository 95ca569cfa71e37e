"""`localspec export`: the command that serves the same pair with another engine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from localspec.cli.console import say, write_json
from localspec.cli.endpoint import sampling_set
from localspec.cli.export_commands import Exported, Plan, Repositories, llama_server, sglang, vllm
from localspec.cli.option_groups import expand_groups
from localspec.cli.options import PairOptions, SamplingOptions, SpeculationOptions, TunedOptions
from localspec.cli.serve_options import ListenOptions, n_ctx_of
from localspec.config import API_KEY_VARIABLE
from localspec.engine.requests import Mode
from localspec.errors import UsageError
from localspec.printable import one_line

if TYPE_CHECKING:
    from localspec.cli.selection import Selection
    from localspec.engine.requests import ModelSpec

_OTHER_ENGINE: Final = "The other engine"
_HELP_TIMEOUT_S: Final = 20


class OtherEngine(StrEnum):
    """Who can serve the pair instead."""

    LLAMA_SERVER = "llama-server"
    VLLM = "vllm"
    SGLANG = "sglang"


@expand_groups
def export(
    context: typer.Context,
    engine: Annotated[OtherEngine, typer.Option(help="Who is to serve the pair.", rich_help_panel=_OTHER_ENGINE)],
    pair: PairOptions,
    tuned: TunedOptions,
    speculation: SpeculationOptions,
    sampling: SamplingOptions,
    listen: ListenOptions,
    hf_target: Annotated[
        str | None,
        typer.Option(
            metavar="OWNER/NAME",
            help="The target's repository on the Hub, or a folder like one, for vLLM and SGLang.",
            rich_help_panel=_OTHER_ENGINE,
        ),
    ] = None,
    hf_draft: Annotated[
        str | None,
        typer.Option(metavar="OWNER/NAME", help="The same for the draft.", rich_help_panel=_OTHER_ENGINE),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a line for the shell.")] = False,
) -> None:
    """Write the command that serves the same pair with another engine; what it cannot carry over goes to stderr.

    Exit codes: 0, 2 usage, or a repository is not known, 3 a model or the pair is refused.
    """
    from localspec.cli.selection import select

    flags = {**asdict(speculation), **asdict(listen)}
    selection = select(context.obj.config, pair, sampling, flags, uses_profile=not tuned.no_profile)
    if speculation.mode is Mode.DRAFT and selection.pair.draft is None:
        raise UsageError("--mode draft needs a draft model.", hint="Name one with --draft FILE, or use --mode lookup.")
    if selection.notice:
        say(selection.notice)
    plan = _plan(selection, sampling)
    if engine is OtherEngine.LLAMA_SERVER:
        exported = llama_server(plan, _help_text())
    else:
        repositories = _repositories(plan, hf_target, hf_draft, engine)
        exported = vllm(plan, repositories) if engine is OtherEngine.VLLM else sglang(plan, repositories)
    _write(engine, exported, as_json=as_json)


def _plan(selection: Selection, flags: SamplingOptions) -> Plan:
    settings, serve = selection.settings, selection.settings.serve
    if selection.sampling.grammar is not None or selection.sampling.json_schema is not None:
        raise UsageError("A grammar or a JSON schema belongs to one request.", hint="Clients send it with each.")
    return Plan(
        pair=selection.pair,
        n_ctx=n_ctx_of(selection.pair),
        mode=Mode(settings.mode),
        n_draft=settings.num_speculative_tokens,
        host=serve.host,
        port=serve.port,
        n_parallel=serve.parallel,
        alias=serve.alias,
        asks_for_key=bool(os.environ.get(API_KEY_VARIABLE)),
        key_file=serve.api_key_file,
        sampling={name: getattr(selection.sampling, name) for name in sorted(sampling_set(settings, flags))},
    )


def _help_text() -> str:
    """What the llama-server on this machine knows; "": there is none, or it does not say."""
    program = shutil.which("llama-server")
    if program is None:
        return ""
    try:
        ran = subprocess.run(
            [program, "--help"], capture_output=True, stdin=subprocess.DEVNULL, timeout=_HELP_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout.decode("utf-8", "replace")


def _repositories(plan: Plan, target: str | None, draft: str | None, engine: OtherEngine) -> Repositories:
    pair = plan.pair
    needs_draft = plan.uses_draft and pair.draft is not None
    return Repositories(
        _repository(target, pair.target, "--hf-target", engine),
        _repository(draft, pair.draft, "--hf-draft", engine) if needs_draft and pair.draft is not None else None,
    )


def _repository(given: str | None, model: ModelSpec, flag: str, engine: OtherEngine) -> str:
    """What was named, or what the file itself names beyond doubt."""
    from localspec.models.origin import origin_of
    from localspec.models.references import is_repository
    from localspec.models.split import read_model

    if given is not None:
        if not (is_repository(given) or Path(given).is_dir()):
            raise UsageError(f"{flag} is {given!r}, which is no repository.", hint="As in: Qwen/Qwen2.5-7B-Instruct")
        return given
    file = model.path if model.path.exists() else model.unpacked_from or model.path
    origin = origin_of(read_model(file))
    if origin.repository is not None:
        say(
            f"{one_line(model.path.name)} is taken to be {origin.repository}, as its header says; {flag} names another."
        )
        return origin.repository
    hint = f"Name the one that it was made of: {flag} OWNER/NAME."
    if origin.related is not None:
        hint += f" Its header names {origin.related}, which may be what it was trained from."
    raise UsageError(
        f"{engine.value} needs the repository of {one_line(model.path.name)}, and the file does not name it.", hint=hint
    )


def _write(engine: OtherEngine, exported: Exported, *, as_json: bool) -> None:
    for note in exported.notes:
        say(f"Mind: {one_line(note)}")
    if as_json:
        write_json(
            {
                "engine": engine.value,
                "command": exported.command,
                "environment": exported.environment,
                "shell": exported.shell,
                "notes": exported.notes,
            }
        )
    else:
        sys.stdout.write(exported.shell + "\n")
        sys.stdout.flush()
