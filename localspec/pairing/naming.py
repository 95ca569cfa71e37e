"""Saving a pair under a name in the configuration file, with everything else in that file left as it is."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit
import tomlkit.exceptions
from tomlkit.items import AbstractTable

from localspec.config import load_settings
from localspec.errors import ConfigError, DiskFullError, UsageError

__all__ = ["save_pair"]


def save_pair(file: Path, name: str, entry: Mapping[str, str | int], *, replace: bool, as_default: bool) -> None:
    """Write `[pairs.name]` into a configuration file, which is made where it is missing.

    Comments and order of the file are kept. With `as_default`, `pair = name` is set where the file names no other.

    Raises:
        UsageError: the name is taken and `replace` is false, or cannot be one.
        ConfigError: the file cannot be read, or would be none afterwards; it is unchanged then.
        DiskFullError: it cannot be written; unchanged too.
    """
    if not name.strip() or not name.isprintable():
        raise UsageError(f"{name!r} is no name for a pair.", hint="Such as: qwen-coder.")
    document = _read(file)
    pairs = document.get("pairs")
    if pairs is None:
        pairs = document["pairs"] = tomlkit.table(is_super_table=True)
    if not isinstance(pairs, AbstractTable):
        raise ConfigError(f"{file}: pairs is no table.", hint="Write each pair as [pairs.NAME].")
    if name in pairs and dict(pairs[name]) != dict(entry) and not replace:
        raise UsageError(
            f"{file} has a pair named {name} already: {_shown(pairs[name])}.",
            hint="Choose another name, or give --replace.",
        )
    table = tomlkit.table()
    table.update(entry)
    pairs[name] = table
    if as_default and "pair" not in document:
        document["pair"] = name  # a key after a table header would belong to the table: tomlkit places it before
    _write(file, tomlkit.dumps(document))


def _read(file: Path) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return tomlkit.document()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}.", hint="Check the file and its permissions.") from error
    except tomlkit.exceptions.ParseError as error:
        raise ConfigError(f"{file} is not TOML: {error}.", hint="Correct that line; nothing was changed.") from error


def _write(file: Path, text: str) -> None:
    """Replace the file at once, and only by one that loads."""
    try:
        target = file.resolve()  # a linked file stays a link
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=target.parent, prefix=target.name, suffix=".new", delete=False
        ) as written:
            written.write(text)
    except OSError as error:
        raise DiskFullError(
            f"{file} cannot be written: {error.strerror or error}.", hint="Check the folder and its free space."
        ) from error
    new = Path(written.name)
    try:
        load_settings(new, {}, {})
        if target.exists():
            new.chmod(target.stat().st_mode & 0o777)
        new.replace(target)
    except OSError as error:
        raise DiskFullError(f"{file} cannot be written: {error.strerror or error}.") from error
    finally:
        new.unlink(missing_ok=True)


def _shown(entry: Any) -> str:
    return ", ".join(f"{key} = {value}" for key, value in dict(entry).items())
