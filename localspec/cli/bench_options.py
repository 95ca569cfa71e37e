"""The options of `localspec bench`. Lists may be given with commas, or by giving the option several times."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from localspec.cli.options import CEILING_HELP
from localspec.engine.requests import MAX_NUM_SPECULATIVE_TOKENS

_WHAT: Final = "What to measure (lists: with commas, or the option several times)"
_OUTPUT: Final = "Output"
_MAX_INT: Final = 2**31 - 1


@dataclass(frozen=True)
class PlanOptions:
    """What to measure."""

    modes: Annotated[
        list[str] | None,
        typer.Option(
            "--mode",
            metavar="MODE[:N[..M]]",
            help="auto, draft, lookup, plain; draft:6 always drafts 6 tokens, draft:0..12 compares every length from 0 "
            "to 12. Plain is always measured. By default every mode that the pair has.",
            rich_help_panel=_WHAT,
        ),
    ] = None
    temperatures: Annotated[
        list[str] | None, typer.Option("--temperature", "--temp", help="(0,0.8)", rich_help_panel=_WHAT)
    ] = None
    contexts: Annotated[
        list[str] | None,
        typer.Option(
            "--context",
            metavar="TOKENS",
            help="Pad prompts so that they and their replies fill so much context, such as 512,2048,8192.",
            rich_help_panel=_WHAT,
        ),
    ] = None
    workload: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='Prompts of your own: JSON Lines, at least {"prompt": "..."} each; any other file is one prompt.',
            rich_help_panel=_WHAT,
        ),
    ] = None
    kinds: Annotated[
        list[str] | None,
        typer.Option("--kind", metavar="KIND", help="Only prompts of this kind, such as code.", rich_help_panel=_WHAT),
    ] = None
    names: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="Only prompts of this name.", rich_help_panel=_WHAT),
    ] = None
    repetitions: Annotated[
        int, typer.Option("--repetitions", "-r", min=1, max=1000, help="Of every prompt.", rich_help_panel=_WHAT)
    ] = 3
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            "-n",
            min=2,
            max=_MAX_INT,
            help="Most tokens per reply (as the prompt says: 192).",
            rich_help_panel=_WHAT,
        ),
    ] = None
    num_speculative_tokens: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_NUM_SPECULATIVE_TOKENS,
            help=f"In modes without a fixed length. {CEILING_HELP}",
            rich_help_panel=_WHAT,
        ),
    ] = None
    seed: Annotated[
        int, typer.Option("--seed", "-s", min=0, max=_MAX_INT, help="Of the first repetition.", rich_help_panel=_WHAT)
    ] = 1
    keep_cache: Annotated[
        bool,
        typer.Option(
            "--keep-cache",
            help="Let prompts stay in the KV cache: quicker; TTFT then is that of a known prompt.",
            rich_help_panel=_WHAT,
        ),
    ] = False


@dataclass(frozen=True)
class OutputOptions:
    """Where the results go."""

    step_times: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="One more table: the milliseconds of a step, by drafting, the target's pass, judging and the rest.",
            rich_help_panel=_OUTPUT,
        ),
    ] = False
    json: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write every run and its conditions.", rich_help_panel=_OUTPUT),
    ] = None
    markdown: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a report with all tables.", rich_help_panel=_OUTPUT),
    ] = None
    plots: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write plots, as SVG; needs the extra `plots`.", rich_help_panel=_OUTPUT),
    ] = None
