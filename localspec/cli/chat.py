"""`localspec chat`: the chat in the terminal."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from localspec.cli.option_groups import expand_groups
from localspec.cli.options import PairOptions, ReplyOptions, SamplingOptions, TunedOptions
from localspec.engine.requests import Mode
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.cli.selection import Selection


@expand_groups
def chat(
    context: typer.Context,
    pair: PairOptions,
    tuned: TunedOptions,
    sampling: SamplingOptions,
    reply: ReplyOptions,
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
    from localspec.memory.usage import process_memory
    from localspec.paths import log_dir
    from localspec.tui.app import ChatApp
    from localspec.tui.options import ChatOptions

    selection = select(context.obj.config, pair, sampling, asdict(reply), uses_profile=not tuned.no_profile)
    settings = selection.settings
    configure(context.obj.verbosity, file=log_dir() / "chat.log")
    with EngineClient() as engine:
        options = ChatOptions(
            sampling=selection.sampling,
            mode=_mode(selection),
            num_speculative_tokens=settings.num_speculative_tokens,
            fixed_length=settings.fixed_length,
            system=settings.chat.system,
            max_tokens=settings.chat.max_tokens,
            memory_probe=lambda: process_memory(engine.process_id) if engine.process_id is not None else None,
            notice=selection.notice,
        )
        ChatApp(engine, selection.pair, options).run()


def _mode(selection: Selection) -> Mode:
    """The mode that was set; without a draft model, drafts are copied from the text."""
    mode = Mode(selection.settings.mode)
    return Mode.LOOKUP if mode is Mode.DRAFT and selection.pair.draft is None else mode
