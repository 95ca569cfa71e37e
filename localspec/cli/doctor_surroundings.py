"""What `localspec doctor` looks at around the program: folders, settings, the demo pair, the network, the terminal."""

from __future__ import annotations

import locale
import os
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Final

from localspec import paths
from localspec.cli.doctor_findings import Finding, State, ok, problem, warning
from localspec.config import load_settings
from localspec.errors import LocalspecError
from localspec.hub import settings as hub_settings
from localspec.models.demo import demo_files
from localspec.quantities import file_size

_ENOUGH_FOR_MODELS: Final = 5 * 2**30
_ENOUGH: Final = 100 * 2**20
_HUB_TIMEOUT_S: Final = 5.0
_NARROW: Final = 60


def program() -> Iterator[Finding]:
    """The release."""
    yield ok("localspec", f"{version('localspec')}, {Path(__file__).parents[1]}")


def folders() -> Iterator[Finding]:
    """Where things are kept: whether they can be written, and what room there is."""
    yield _folder("configuration folder", paths.config_dir(), _ENOUGH, State.WARNING)
    yield _folder("data folder", paths.data_dir(), _ENOUGH, State.PROBLEM)
    yield _folder("cache folder", paths.cache_dir(), _ENOUGH, State.PROBLEM)
    yield _folder("log folder", paths.log_dir(), _ENOUGH, State.WARNING)
    yield _folder("Hub cache", hub_settings.cache_dir(), _ENOUGH_FOR_MODELS, State.WARNING)


def configuration(file: Path | None) -> Iterator[Finding]:
    """The settings that would be used: those of `file`, or of the usual place."""
    chosen = file or paths.config_file()
    is_there = file is not None or chosen.exists()
    try:
        load_settings(chosen if is_there else None, os.environ, {})
    except LocalspecError as error:
        yield problem("configuration", error.message, error.hint)
    else:
        yield ok("configuration", f"{chosen}" if is_there else f"defaults; {chosen} does not exist")


def registry() -> Iterator[Finding]:
    """The list of known models and pairs, with what the user has added to it."""
    from localspec.models.registry import load_registry, user_file

    known, own = load_registry(), user_file()
    counts = f"{len(known.models)} models, {len(known.pairs)} pairs"
    yield ok("registry", f"{counts}, {own} among them" if own.exists() else f"{counts}; {own} does not exist")


def demo_pair() -> Iterator[Finding]:
    """The models that come as a Python package."""
    try:
        files = demo_files()
    except LocalspecError as error:
        yield ok("demo pair", f"not installed. {error.message}", error.hint)
    else:
        yield ok("demo pair", str(files.draft))


def hub(*, offline: bool) -> Iterator[Finding]:
    """Whether models can be downloaded."""
    if offline or hub_settings.is_offline():
        why = "--offline" if offline else "HF_HUB_OFFLINE"
        yield ok("Hub", f"not asked ({why}); what is downloaded can be used")
        return
    from localspec.hub.reachability import reachable

    endpoint = os.environ.get("HF_ENDPOINT") or None
    reason = reachable(endpoint, _HUB_TIMEOUT_S)
    shown = hub_settings.without_password(endpoint or hub_settings.endpoint())
    if reason is None:
        yield ok("Hub", f"{shown} answers")
    else:
        yield warning(
            "Hub",
            f"{shown} cannot be reached: {reason}",
            "Check the network, the proxy (HTTPS_PROXY) and HF_ENDPOINT. Models that are here work without.",
        )


def terminal() -> Iterator[Finding]:
    """What the chat can show."""
    from rich.console import Console

    stream = next((each for each in (sys.stdout, sys.stderr) if each is not None and each.isatty()), None)
    if stream is None:
        yield ok("terminal", "none: the output goes elsewhere")
        return
    console = Console(file=stream)
    encoding = (getattr(stream, "encoding", None) or locale.getpreferredencoding(False)).lower()
    size, colours = console.size, console.color_system
    kind = os.environ.get("TERM") or "TERM is not set"
    value = f"{kind}, {size.width} x {size.height}, {encoding}, colours: {colours or 'none'}"
    if "utf" not in encoding:
        yield warning("terminal", value, "Set LANG to a UTF-8 locale such as C.UTF-8: replies go beyond ASCII.")
    elif colours is None:
        yield warning("terminal", value, "Take NO_COLOR away, or use another terminal: colours show who wrote what.")
    elif size.width < _NARROW:
        yield warning("terminal", value, f"Make it at least {_NARROW} columns wide.")
    else:
        yield ok("terminal", value)


def _folder(name: str, folder: Path, enough_bytes: int, otherwise: State) -> Finding:
    """A folder that does not exist yet is made when it is needed, below the first one that does."""
    present = next(each for each in (folder, *folder.parents) if each.exists())
    if not present.is_dir():
        return Finding(name, otherwise, f"{folder}: {present} is not a folder", "Move that file elsewhere.")
    if not os.access(present, os.W_OK | os.X_OK):
        return Finding(
            name,
            otherwise,
            f"{folder} cannot be written",
            f"Change its permissions, or choose another place with {paths.HOME_VARIABLE} (for the Hub cache: HF_HOME).",
        )
    free = shutil.disk_usage(present).free
    value = f"{folder}, {file_size(free)} free"
    if free < enough_bytes:
        return warning(name, value, f"Make room: it should have {file_size(enough_bytes)}.")
    return ok(name, value)
