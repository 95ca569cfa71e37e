"""`localspec chat`: the chat in the terminal."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from localspec.cli.option_groups import expand_groups
from localspec.cli.options import PairOptions, ReplyOptions, SamplingOptions, TunedOptions
from localspec.engine.requests import Mode
from localspec.errors import ModelFileError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from localspec.cli.selection import Selection
    from localspec.config import Settings
    from localspec.engine.client import EngineClient
    from localspec.pairing.service import PairService


@expand_groups
def chat(
    context: typer.Context,
    pair: PairOptions,
    tuned: TunedOptions,
    sampling: SamplingOptions,
    reply: ReplyOptions,
) -> None:
    """Chat with a pair of models in the terminal, with live speed and acceptance; F2 chooses other models."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "The chat needs a terminal on stdin and stdout.",
            hint="For pipes and scripts there is: localspec generate PROMPT.",
        )
    from localspec.cli.selection import select, select_without_pair
    from localspec.engine.client import EngineClient
    from localspec.logs import configure
    from localspec.memory.usage import process_memory
    from localspec.paths import log_dir
    from localspec.tui.app import ChatApp
    from localspec.tui.options import ChatOptions

    config, flags = context.obj.config, asdict(reply)
    for_any_pair, params = select_without_pair(config, pair, sampling, flags)
    settings = for_any_pair
    is_first_run = not (pair.demo or pair.pair or pair.target or pair.draft or settings.pair)
    selection = None
    if not is_first_run or _has_demo():
        selection = select(config, pair, sampling, flags, uses_profile=not tuned.no_profile)
        settings, params = selection.settings, selection.sampling
    configure(context.obj.verbosity, file=log_dir() / "chat.log")
    with EngineClient() as engine:
        options = ChatOptions(
            sampling=params,
            mode=_mode(settings, selection),
            num_speculative_tokens=settings.num_speculative_tokens,
            fixed_length=settings.fixed_length,
            system=settings.chat.system,
            max_tokens=settings.chat.max_tokens,
            memory_probe=lambda: process_memory(engine.process_id) if engine.process_id is not None else None,
            notice=selection.notice if selection else "",
            pairs=lambda: _pairs(for_any_pair, config, engine),
            is_first_run=is_first_run,
        )
        ChatApp(engine, selection.pair if selection else None, options).run()


def _has_demo() -> bool:
    from localspec.models.demo import demo_files

    try:
        demo_files()
    except ModelFileError:
        return False
    return True


def _pairs(settings: Settings, config: Path | None, engine: EngineClient) -> PairService:
    """What chooses other models; it knows much, so only who asks for it waits for it."""
    from localspec.pairing.service import PairService
    from localspec.paths import config_file

    return PairService(settings, config or config_file(), engine_pid=lambda: engine.process_id)


def _mode(settings: Settings, selection: Selection | None) -> Mode:
    """The mode that was set; without a draft model, drafts are copied from the text."""
    mode = Mode(settings.mode)
    has_draft = selection is None or selection.pair.draft is not None
    return mode if has_draft or mode is not Mode.DRAFT else Mode.LOOKUP
