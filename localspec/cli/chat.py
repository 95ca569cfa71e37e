"""`localspec chat`: the chat in the terminal."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from localspec.cli.option_groups import expand_groups
from localspec.cli.options import PairOptions, SamplingOptions
from localspec.engine.requests import MAX_NUM_SPECULATIVE_TOKENS, Mode
from localspec.errors import UsageError

_CHAT: Final = "The chat"


@expand_groups
def chat(
    context: typer.Context,
    pair: PairOptions,
    sampling: SamplingOptions,
    system: Annotated[str | None, typer.Option(help="System prompt.", rich_help_panel=_CHAT)] = None,
    mode: Annotated[
        Mode | None, typer.Option(help="Where drafts come from; can be switched in the chat.", rich_help_panel=_CHAT)
    ] = None,
    num_speculative_tokens: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_NUM_SPECULATIVE_TOKENS,
            help="Most tokens drafted per step (5; demo pair: 8).",
            rich_help_panel=_CHAT,
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", "-n", min=1, max=2**31 - 1, help="Most tokens per reply.", rich_help_panel=_CHAT),
    ] = None,
) -> None:
    """Chat with a pair of models in the terminal, with live speed and acceptance."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "The chat needs a terminal on stdin and stdout.",
            hint="For pipes and scripts there is: localspec generate PROMPT.",
        )
    from localspec.cli.selection import select
    from localspec.engine.client import EngineClient
    from localspec.logs import configure
    from localspec.memory.devices import process_memory
    from localspec.paths import log_dir
    from localspec.tui.app import ChatApp
    from localspec.tui.options import ChatOptions

    flags = {
        "mode": mode,
        "num_speculative_tokens": num_speculative_tokens,
        "system": system,
        "max_tokens": max_tokens,
    }
    selection = select(context.obj.config, pair, sampling, flags)
    settings = selection.settings
    configure(context.obj.verbosity, file=log_dir() / "chat.log")
    with EngineClient() as engine:
        options = ChatOptions(
            sampling=selection.sampling,
            mode=Mode(settings.mode),
            num_speculative_tokens=selection.num_speculative_tokens,
            system=settings.chat.system,
            max_tokens=settings.chat.max_tokens,
            memory_probe=lambda: process_memory(engine.process_id) if engine.process_id is not None else None,
            notice=selection.notice,
        )
        ChatApp(engine, selection.pair, options).run()
