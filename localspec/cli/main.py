"""The console script: global options, and one exit code for every kind of failure."""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from localspec.cli.bench import bench
from localspec.cli.chat import chat
from localspec.cli.console import INTERRUPTED, say, say_error
from localspec.cli.doctor import doctor
from localspec.cli.export import export
from localspec.cli.generate import generate
from localspec.cli.models import models_app
from localspec.cli.pair import pair
from localspec.cli.plan import plan
from localspec.cli.pull import pull
from localspec.cli.serve import serve
from localspec.cli.tune import tune
from localspec.errors import DoesNotFitError, LocalspecError, UsageError
from localspec.logs import configure

app = typer.Typer(
    name="localspec",
    help="Chat with a local model, losslessly accelerated by speculative decoding.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command()(chat)
app.command()(generate)
app.command()(serve)
app.command()(bench)
app.command()(tune)
app.command()(pair)
app.command()(pull)
app.add_typer(models_app, name="models")
app.command()(plan)
app.command()(doctor)
app.command()(export)


@dataclass(frozen=True, slots=True)
class GlobalOptions:
    """What was given before the command."""

    config: Path | None
    verbosity: int


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"localspec {version('localspec')} (llama-cpp-python {version('llama-cpp-python')})")
        raise typer.Exit


@app.callback()
def _global_options(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Configuration file.")] = None,
    verbose: Annotated[int, typer.Option("--verbose", "-v", count=True, help="More on stderr; twice for all.")] = 0,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False,
) -> None:
    del version
    configure(verbose)
    context.obj = GlobalOptions(config, verbose)


def run() -> None:
    """Run a command and exit with its code; no failure shows a traceback, unless -vv asks for it."""
    # A stream that the shell has closed (>&-) is None here.
    if sys.stdout is None or sys.stderr is None:
        nowhere = Path(os.devnull).open("w")  # noqa: SIM115 - open until the process ends
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a sign that the other side cannot show must not end a command
            stream.reconfigure(errors="replace" if stream.errors == "strict" else None)
    try:
        app()
    except LocalspecError as error:
        say_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        say(f"localspec: the output cannot be written: {error.strerror or error}")
        sys.exit(DoesNotFitError.exit_code if error.errno == errno.ENOSPC else 1)
    except Exception as error:
        if isinstance(error, RuntimeError) and "home" in str(error).lower():  # from pathlib, wherever a path is made
            say("localspec: the home folder cannot be determined.")
            say("  Set HOME, or LOCALSPEC_HOME to a folder that can be written.")
            sys.exit(UsageError.exit_code)
        logging.getLogger("localspec").debug("Unexpected", exc_info=True)
        say(f"localspec: an unexpected error, {type(error).__name__}: {error}")
        say("  This is a bug. Run it again with -vv (before the command) for the details.")
        sys.exit(1)
