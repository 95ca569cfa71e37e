"""`localspec chat`: the chat in the terminal."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from localspec.cli.endpoint import EndpointOptions, check_endpoint, remote_engine, sampling_set
from localspec.cli.option_groups import expand_groups
from localspec.cli.options import PairOptions, ReplyOptions, SamplingOptions, TunedOptions
from localspec.engine.requests import Mode
from localspec.errors import ModelFileError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from localspec.cli.main import GlobalOptions
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
    endpoint: EndpointOptions,
) -> None:
    """Chat with a pair of models in the terminal, with live speed and acceptance; F2 chooses other models.

    With --endpoint, a server answers, and the numbers are those that it reports.
    """
    check_endpoint(endpoint, pair, tuned, reply)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "The chat needs a terminal on stdin and stdout.",
            hint="For pipes and scripts there is: localspec generate PROMPT.",
        )
    if endpoint.endpoint is not None:
        _chat_with_server(context.obj, sampling, reply, endpoint)
    else:
        _chat_with_pair(context.obj, pair, tuned, sampling, reply)


def _chat_with_pair(
    given: GlobalOptions, pair: PairOptions, tuned: TunedOptions, sampling: SamplingOptions, reply: ReplyOptions
) -> None:
    from localspec.cli.selection import select, select_without_pair
    from localspec.engine.client import EngineClient
    from localspec.logs import configure
    from localspec.memory.usage import process_memory
    from localspec.paths import log_dir
    from localspec.tui.app import ChatApp
    from localspec.tui.options import ChatOptions

    config, flags = given.config, asdict(reply)
    for_any_pair, params = select_without_pair(config, pair, sampling, flags)
    settings = for_any_pair
    is_first_run = not (pair.demo or pair.pair or pair.target or pair.draft or settings.pair)
    selection = None
    if not is_first_run or _has_demo():
        selection = select(config, pair, sampling, flags, uses_profile=not tuned.no_profile)
        settings, params = selection.settings, selection.sampling
    configure(given.verbosity, file=log_dir() / "chat.log")
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
            pairs=lambda: _pairs(for_any_pair, config, engine, uses_profiles=not tuned.no_profile),
            is_first_run=is_first_run,
        )
        ChatApp(engine, selection.pair if selection else None, options).run()


def _chat_with_server(
    given: GlobalOptions, sampling: SamplingOptions, reply: ReplyOptions, endpoint: EndpointOptions
) -> None:
    from localspec.cli.selection import select_without_pair
    from localspec.logs import configure
    from localspec.paths import log_dir
    from localspec.remote.engine import stand_in
    from localspec.tui.app import ChatApp
    from localspec.tui.options import ChatOptions

    settings, params = select_without_pair(given.config, PairOptions(), sampling, asdict(reply))
    engine, notice = remote_engine(endpoint, os.environ, sampling_set(settings, sampling), reply)
    options = ChatOptions(
        sampling=params,
        mode=Mode(settings.mode),
        num_speculative_tokens=settings.num_speculative_tokens,
        system=settings.chat.system,
        max_tokens=settings.chat.max_tokens,
        notice=notice,
        server=engine.endpoint.url,
    )
    configure(given.verbosity, file=log_dir() / "chat.log")
    with engine:
        ChatApp(engine, stand_in(engine.endpoint), options).run()


def _has_demo() -> bool:
    from localspec.models.demo import demo_files

    try:
        demo_files()
    except ModelFileError:
        return False
    return True


def _pairs(settings: Settings, config: Path | None, engine: EngineClient, *, uses_profiles: bool) -> PairService:
    """What chooses other models; it knows much, so only who asks for it waits for it."""
    from localspec.pairing.service import PairService
    from localspec.paths import config_file

    return PairService(
        settings, config or config_file(), engine_pid=lambda: engine.process_id, uses_profiles=uses_profiles
    )


def _mode(settings: Settings, selection: Selection | None) -> Mode:
    """The mode that was set; without a draft model, drafts are copied from the text."""
    mode = Mode(settings.mode)
    has_draft = selection is None or selection.pair.draft is not None
    return mode if has_draft or mode is not Mode.DRAFT else Mode.LOOKUP
