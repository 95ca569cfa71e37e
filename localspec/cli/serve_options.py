"""The options of `localspec serve` beside those of the pair, and the settings of the endpoint that come of them."""

from __future__ import annotations

import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from localspec.cli.console import say
from localspec.config import API_KEY_VARIABLE
from localspec.engine.requests import default_n_ctx
from localspec.errors import UsageError
from localspec.files import read_regular

if TYPE_CHECKING:
    from localspec.cli.selection import Selection
    from localspec.engine.requests import PairSpec
    from localspec.server.settings import ServerSettings

__all__ = ["ListenOptions", "ServeOptions", "flags_of", "n_ctx_of", "server_settings"]

_SERVER: Final = "The server"
_MAX_KEY_FILE_BYTES: Final = 1 << 20
# The flags that the configuration knows too, in its section [serve].
_SHARED_FLAGS: Final = ("queue", "timeout", "acceptance_threshold")


@dataclass(frozen=True)
class ListenOptions:
    """Where a server listens, for how many, and by what name. Fields go by the names of the settings."""

    host: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Where to listen (127.0.0.1: this machine alone).", rich_help_panel=_SERVER
        ),
    ] = None
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="(8080); 0 takes a free one.", rich_help_panel=_SERVER)
    ] = None
    parallel: Annotated[
        int | None,
        typer.Option(
            "--parallel",
            "-np",
            min=1,
            max=64,
            help="Replies at once, which share the context (4).",
            rich_help_panel=_SERVER,
        ),
    ] = None
    alias: Annotated[
        str | None,
        typer.Option("--alias", "-a", metavar="NAME", help="Serve the model by this name.", rich_help_panel=_SERVER),
    ] = None


@dataclass(frozen=True)
class ServeOptions:
    """For whom the endpoint is there, and what it does for them."""

    queue: Annotated[
        int | None,
        typer.Option(min=0, max=4096, help="Requests that may wait beside them (64).", rich_help_panel=_SERVER),
    ] = None
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            "--api-key",
            metavar="KEY",
            help=f"Ask clients for it; may be given several times. Others see flags: better in {API_KEY_VARIABLE}.",
            rich_help_panel=_SERVER,
        ),
    ] = None
    api_key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keys, one on each line; # begins a comment.", rich_help_panel=_SERVER),
    ] = None
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(
            "--cors-origin",
            metavar="ORIGIN",
            help="A page that may use the server from a browser, as https://example.org; may be given several times.",
            rich_help_panel=_SERVER,
        ),
    ] = None
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host",
            metavar="NAME",
            help="A further name that the server answers to, as behind a proxy; may be given several times.",
            rich_help_panel=_SERVER,
        ),
    ] = None
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="The most that a request may take (600); 0: no limit.",
            rich_help_panel=_SERVER,
        ),
    ] = None
    acceptance_threshold: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Warn when fewer drafted tokens are accepted (0.55).", rich_help_panel=_SERVER),
    ] = None
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            "-n",
            min=1,
            max=2**31 - 1,
            help="Most tokens of a reply whose request names no number.",
            rich_help_panel=_SERVER,
        ),
    ] = None


def flags_of(listen: ListenOptions, options: ServeOptions) -> dict[str, Any]:
    """By the names of the settings; None: not given."""
    return {
        **asdict(listen),
        **{name: getattr(options, name) for name in _SHARED_FLAGS},
        "api_key_file": options.api_key_file,
        "cors_origins": tuple(options.cors_origin) if options.cors_origin else None,
        "allowed_hosts": tuple(options.allowed_host) if options.allowed_host else None,
    }


def server_settings(selection: Selection, options: ServeOptions) -> ServerSettings:
    """What the endpoint is told.

    Raises:
        UsageError: a file of keys cannot be read, or an option belongs to one request.
    """
    from localspec.engine.requests import Mode
    from localspec.server.settings import ServerSettings

    settings, sampling = selection.settings, selection.sampling
    if sampling.grammar is not None or sampling.json_schema is not None:
        raise UsageError(
            "A grammar or a JSON schema belongs to one request.", hint="Clients send it as grammar or response_format."
        )
    serve = settings.serve
    return ServerSettings(
        host=serve.host,
        port=serve.port,
        api_keys=_keys(options.api_key or [], serve.api_key_file),
        allowed_origins=serve.cors_origins,
        allowed_hosts=serve.allowed_hosts,
        n_parallel=serve.parallel,
        n_queue=serve.queue,
        request_timeout_s=serve.timeout or None,
        model_alias=serve.alias,
        sampling=sampling,
        mode=Mode(settings.mode),
        num_speculative_tokens=settings.num_speculative_tokens,
        fixed_length=settings.fixed_length,
        max_tokens=options.max_tokens,
        acceptance_threshold=serve.acceptance_threshold,
    )


def n_ctx_of(pair: PairSpec) -> int:
    """The context that the engine will give the pair, by the target's header.

    Raises:
        ModelFileError: the file is no model.
    """
    from localspec.models.hyperparameters import hyperparameters
    from localspec.models.split import read_model

    if pair.n_ctx is not None:
        return pair.n_ctx
    target = pair.target
    file = target.path if target.path.exists() or target.unpacked_from is None else target.unpacked_from
    return default_n_ctx(hyperparameters(read_model(file)).n_ctx_train)


def _keys(given: list[str], file: Path | None) -> tuple[str, ...]:
    keys = [*given, *filter(None, [os.environ.get(API_KEY_VARIABLE)])]
    if file is not None:
        lines = _text(file).splitlines()
        in_file = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        if not in_file:
            raise UsageError(f"{file} holds no key.", hint="Write one on each line.")
        keys += in_file
    return tuple(dict.fromkeys(keys))


def _text(file: Path) -> str:
    try:
        text = read_regular(file, _MAX_KEY_FILE_BYTES).decode("utf-8-sig")
        if os.name == "posix" and file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            say(f"Others on this machine can read the keys in {file}: chmod 600 closes it.")
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}.", hint="Name a readable file of keys.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: it is not UTF-8 text.", hint="Write keys of ASCII, one on each line.") from error
    return text
