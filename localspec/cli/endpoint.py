"""The options of commands that can use a server's models in place of models here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from localspec.cli.options import PairOptions, ReplyOptions, SamplingOptions, TunedOptions
from localspec.config import ENDPOINT_KEY_VARIABLE
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.config import Settings
    from localspec.remote.engine import RemoteEngine

_PANEL: Final = "A server's models, in place of models here"
_BY_FLAG_ONLY: Final = ("dry_sequence_breakers", "logit_bias", "grammar", "json_schema")


@dataclass(frozen=True)
class EndpointOptions:
    """Which server to ask, and as whom."""

    endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="An OpenAI-style server, such as http://127.0.0.1:8080/v1; no model is loaded here.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Its model; needed where it has several.", rich_help_panel=_PANEL),
    ] = None
    api_key_env: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"Variable that holds the key; {ENDPOINT_KEY_VARIABLE} or OPENAI_API_KEY by default.",
            rich_help_panel=_PANEL,
        ),
    ] = None


def check_endpoint(options: EndpointOptions, pair: PairOptions, tuned: TunedOptions, reply: ReplyOptions) -> None:
    """Refuse what does not go together.

    Raises:
        UsageError: it names both flags.
    """
    if options.endpoint is None:
        for name in ("model", "api_key_env"):
            if getattr(options, name) is not None:
                raise UsageError(
                    f"{_flag(name)} needs --endpoint: it is about a server.",
                    hint="A model to load here is named with --target.",
                )
        return
    local = asdict(pair) | asdict(tuned) | {"fixed_length": reply.fixed_length}
    for name, value in local.items():
        if value not in {None, False} or (name == "fixed_length" and value is not None):
            raise UsageError(
                f"--endpoint and {_flag(name)} contradict each other: the server has its own models and settings.",
                hint="Leave one of them out.",
            )
    for name in ("endpoint", "model"):
        if getattr(options, name) is not None and not getattr(options, name).strip():
            raise UsageError(f"{_flag(name)} is empty.")


def remote_engine(
    options: EndpointOptions, environ: Mapping[str, str], sampling_names: Collection[str], reply: ReplyOptions
) -> tuple[RemoteEngine, str]:
    """What asks the server, and a line for the user, or "". `sampling_names`: see `sampling_set`.

    Raises:
        UsageError: the address or the key cannot be used.
    """
    from localspec.remote.endpoint import endpoint_at, endpoint_key
    from localspec.remote.engine import RemoteEngine

    assert options.endpoint is not None
    endpoint = endpoint_at(options.endpoint)
    endpoint = endpoint_at(options.endpoint, endpoint_key(environ, endpoint, options.api_key_env))
    own_flags = [_flag(name) for name in ("mode", "num_speculative_tokens") if getattr(reply, name) is not None]
    notice = ""
    if endpoint.key is not None and not endpoint.is_private:
        notice = "The key goes over the network in the clear: use https:// where the server can."
    return RemoteEngine(endpoint, model=options.model, sampling_names=sampling_names, own_flags=own_flags), notice


def sampling_set(settings: Settings, flags: SamplingOptions) -> set[str]:
    """The fields of the sampling that the user has set, in the configuration, in the environment or by flags."""
    return {*settings.sampling.given(), *(name for name in _BY_FLAG_ONLY if getattr(flags, name))}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
