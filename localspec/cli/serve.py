"""`localspec serve`: an OpenAI-style endpoint for editors and other clients."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from localspec.cli.console import LoadProgress, say
from localspec.cli.option_groups import expand_groups
from localspec.cli.options import PairOptions, SamplingOptions, SpeculationOptions, TunedOptions
from localspec.cli.serve_options import ListenOptions, ServeOptions, flags_of, n_ctx_of, server_settings
from localspec.config import API_KEY_VARIABLE
from localspec.engine.client import EngineClient
from localspec.engine.requests import Mode
from localspec.errors import UsageError
from localspec.printable import one_line
from localspec.server.editor_settings import PROGRAMS, Served, base_url, is_any_address, settings_for

if TYPE_CHECKING:
    from localspec.engine.events import Loaded
    from localspec.engine.process import LoadListener
    from localspec.engine.requests import PairSpec
    from localspec.server.settings import ServerSettings

_DEFAULT_PORT: Final = 8080


class Program(StrEnum):
    """Whom settings can be printed for; a test holds them to `PROGRAMS`."""

    CONTINUE = "continue"
    ZED = "zed"
    CLINE = "cline"
    LLAMA_VIM = "llama.vim"
    LLAMA_VSCODE = "llama.vscode"
    AIDER = "aider"
    OPENAI = "openai"
    ALL = "all"


@expand_groups
def serve(
    context: typer.Context,
    pair: PairOptions,
    tuned: TunedOptions,
    speculation: SpeculationOptions,
    sampling: SamplingOptions,
    listen: ListenOptions,
    options: ServeOptions,
    program: Annotated[
        Program | None,
        typer.Option("--settings", help="Print ready-made settings for a program, and exit.", show_default=False),
    ] = None,
) -> None:
    """Serve a pair to editors and other clients: OpenAI's API, and llama.cpp's own.

    Sampling options are for requests that do not say. Exit codes: 0 ended by SIGTERM, 1 the engine failed, 2 usage, 3
    model or pair refused, 4 does not fit, 130 interrupted.
    """
    from localspec.cli.selection import select

    flags = {**asdict(speculation), **flags_of(listen, options)}
    selection = select(context.obj.config, pair, sampling, flags, uses_profile=not tuned.no_profile)
    settings, spec = server_settings(selection, options), selection.pair
    if program is not None:
        _print_settings(program, spec, settings)
        return
    if speculation.mode is Mode.DRAFT and spec.draft is None:
        raise UsageError("--mode draft needs a draft model.", hint="Name one with --draft FILE, or use --mode lookup.")
    if settings.mode in {Mode.LOOKUP, Mode.PLAIN}:
        spec = replace(spec, draft=None)  # it would never be used
    if selection.notice:
        say(selection.notice)
    code = _serve(replace(spec, n_slots=settings.n_parallel, may_embed=True), settings, context.obj.verbosity)
    if code:
        raise typer.Exit(code)


def _serve(pair: PairSpec, settings: ServerSettings, verbosity: int) -> int:
    from localspec.server.listening import bind
    from localspec.server.security import access_rules, is_loopback

    access_rules(settings)  # refused before anything is loaded
    if not is_loopback(settings.host) and not settings.api_keys:
        where = "this machine" if is_any_address(settings.host) else one_line(settings.host)
        say(f"Everybody who can reach {where} can use this server. Give it a key:")
        say(f"  export {API_KEY_VARIABLE}=$(openssl rand -hex 32)")
    sockets = bind(settings.host, settings.port)
    with _ShownEngine(LoadProgress()) as engine:
        return asyncio.run(_run(engine, pair, settings, sockets, verbosity))


class _ShownEngine(EngineClient):
    """Shows how loading goes, also where a pair is loaded again after its process has died."""

    def __init__(self, show: Callable[..., None]) -> None:
        super().__init__()
        self._show = show

    def load(self, pair: PairSpec, listener: LoadListener) -> None:
        """Start loading a pair; see `EngineClient`."""

        def both(event: object) -> None:
            listener(event)  # type: ignore[arg-type]
            self._show(event)

        super().load(pair, both)


async def _run(
    engine: EngineClient, pair: PairSpec, settings: ServerSettings, sockets: list[socket.socket], verbosity: int
) -> int:
    from localspec.server.app import create_app
    from localspec.server.listening import Endpoint, bound_port
    from localspec.server.security import protected
    from localspec.server.service import EngineService

    service = EngineService(
        engine,
        n_parallel=settings.n_parallel,
        n_queue=settings.n_queue,
        request_timeout_s=settings.request_timeout_s,
    )
    url = base_url(settings.host, bound_port(sockets))
    app = protected(create_app(service, settings), settings)

    def on_stopping() -> None:
        if service.open_requests:
            say(f"Replies that run have {settings.shutdown_s:g} s to finish; Ctrl-C again ends them at once.")

    endpoint = Endpoint(app, service, settings, logs_requests=verbosity > 0, on_stopping=on_stopping)
    with endpoint.signals():
        # Clients that come while the models are loaded are told so.
        serving = asyncio.create_task(endpoint.serve(sockets=sockets))
        loading = asyncio.create_task(service.start(pair))
        await asyncio.wait({serving, loading}, return_when=asyncio.FIRST_COMPLETED)
        try:
            if loading.done() and not endpoint.should_exit:  # who ends it while it loads makes loading fail
                _announce(loading.result(), settings, url)
        except BaseException:  # else it would go on without a model
            endpoint.should_exit = True
            raise
        finally:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
            await serving
    return endpoint.exit_code


def _announce(loaded: Loaded, settings: ServerSettings, url: str) -> None:
    name = f" as {one_line(settings.model_alias)}" if settings.model_alias else ""
    say(f"Serving {one_line(loaded.target_name)}{name}")
    for label, text in _facts(loaded, settings, url):
        say(f"  {label:<16}  {text}")
    if not loaded.has_chat_template:
        say("  The model carries no chat template: ChatML is assumed, and chats may suffer.")


def _facts(loaded: Loaded, settings: ServerSettings, url: str) -> list[tuple[str, str]]:
    """What to know of a server, each short enough for a narrow terminal; a line without a label belongs to the last."""
    replies = "one reply at a time" if settings.n_parallel == 1 else f"up to {settings.n_parallel} replies at once"
    waiting = {0: "nobody", 1: "1 more request"}.get(settings.n_queue, f"{settings.n_queue} more requests")
    copies = "none" if settings.mode is Mode.PLAIN else "copied from the text so far"
    return [
        ("Drafts", one_line(loaded.draft_name) if loaded.draft_name else copies),
        *([("", one_line(loaded.speculation_note))] if loaded.speculation_note else []),
        ("Context", f"{loaded.n_ctx:,} tokens, for {replies}"),
        ("Queue", f"{waiting} may wait"),
        ("OpenAI base URL", f"{url}/v1" + (", with an API key" if settings.api_keys else "")),
        *([("From elsewhere", f"{_from_elsewhere(url)}/v1")] if is_any_address(settings.host) else []),
        ("Status page", f"{url}/"),
        ("Editor settings", "this command with --settings NAME, of:"),
        ("", ", ".join(PROGRAMS)),
    ]


def _from_elsewhere(url: str) -> str:
    """By the name of this machine, which the server answers to."""
    return base_url(socket.gethostname(), int(url.rpartition(":")[2]))


# --- settings ---------------------------------------------------------------------------------------------------------


def _print_settings(program: Program, pair: PairSpec, settings: ServerSettings) -> None:
    served = Served(
        url=base_url(settings.host, settings.port or _DEFAULT_PORT),
        model=one_line(settings.model_alias or pair.target.path.stem),
        n_ctx=n_ctx_of(pair),
        needs_key=bool(settings.api_keys),
    )
    names = PROGRAMS if program is Program.ALL else [program.value]
    sys.stdout.write("\n".join(settings_for(name, served) for name in names))
    sys.stdout.flush()
