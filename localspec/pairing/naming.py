"""Saving a pair under a name in the configuration file, with everything else in that file left as it is."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable

from localspec.config import load_settings
from localspec.errors import ConfigError, DiskFullError, LocalspecError, UsageError
from localspec.files import read_regular
from localspec.printable import one_line

__all__ = ["save_pair"]

_MAX_FILE_BYTES: Final = 4 << 20
_BY_HAND: Final = "Nothing was changed. Add the pair by hand, as [pairs.NAME] with target and draft."


def save_pair(file: Path, name: str, entry: Mapping[str, str | int], *, replace: bool, as_default: bool) -> None:
    """Write `[pairs.name]` into a configuration file, which is made where it is missing.

    Comments, order and ends of lines are kept. With `as_default`, `pair = name` is set where the file names no other.

    Raises:
        UsageError: the name is taken and `replace` is false, or cannot be one.
        ConfigError: the file cannot be read or written, or would be none afterwards; it is unchanged then.
        DiskFullError: the disk is full; unchanged too.
    """
    if not name.strip() or not name.isprintable():
        raise UsageError(f"{name!r} is no name for a pair.", hint="Such as: qwen-coder.")
    if any(isinstance(value, str) and not value.isprintable() for value in entry.values()):
        raise UsageError("The path of a model has characters that no configuration can hold.", hint="Rename the file.")
    text = _read(file)
    try:
        document = tomlkit.parse(text)
    except TOMLKitError as error:
        raise ConfigError(f"{file} is not TOML: {error}.", hint="Correct that line; nothing was changed.") from error
    try:
        written = _with_pair(document, text, name, entry, file, replace=replace, as_default=as_default)
    except LocalspecError:
        raise
    except Exception as error:  # tomlkit has many ways to refuse a form that it does not handle
        raise ConfigError(f"{file} is written in a form that cannot be changed here.", hint=_BY_HAND) from error
    if "\r\n" in text:
        written = written.replace("\r\n", "\n").replace("\n", "\r\n")
    _write(file, written)


def _with_pair(
    document: tomlkit.TOMLDocument,
    text: str,
    name: str,
    entry: Mapping[str, str | int],
    file: Path,
    *,
    replace: bool,
    as_default: bool,
) -> str:
    pairs: Any = document.get("pairs", {})
    if not isinstance(pairs, MutableMapping):
        raise ConfigError(f"{file}: pairs is no table.", hint="Write each pair as [pairs.NAME].")
    has_it = name in pairs
    if has_it and not isinstance(pairs[name], MutableMapping):
        raise ConfigError(f"{file}: pairs.{name} is no table.", hint="Write each pair as [pairs.NAME].")
    if has_it and dict(pairs[name]) != dict(entry) and not replace:
        raise UsageError(
            f"{file} has a pair named {name} already: {_shown(pairs[name])}.",
            hint="Choose another name, or give --replace.",
        )
    if as_default and "pair" not in document:
        document["pair"] = name  # a key after a table's header would belong to the table: tomlkit places it before
    if has_it:
        existing = pairs[name]
        for key in set(existing) - set(entry):
            del existing[key]
        existing.update(entry)
    elif isinstance(pairs, InlineTable):
        inline = tomlkit.inline_table()
        inline.update(entry)
        pairs[name] = inline
    else:
        return tomlkit.dumps(document) + _section(name, entry, text)
    return tomlkit.dumps(document)


def _section(name: str, entry: Mapping[str, str | int], text: str) -> str:
    """A table at the end of the file, where it disturbs nothing, whatever form the others have."""
    new = tomlkit.document()
    pairs, table = tomlkit.table(is_super_table=True), tomlkit.table()
    table.update(entry)
    pairs[name] = table
    new["pairs"] = pairs
    before = "\n\n" if text and not text.endswith("\n") else "\n" if text else ""
    return before + tomlkit.dumps(new)


def _read(file: Path) -> str:
    try:
        if file.exists() and not file.is_file():
            raise ConfigError(f"{file} is no regular file.", hint="Make it one, or name another with --config.")
        return read_regular(file, _MAX_FILE_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}.", hint="Check the file and its permissions.") from error


def _write(file: Path, text: str) -> None:
    """Replace the file at once, and only by one that loads."""
    target = file.resolve()  # a linked file stays a link
    new = target.with_name(f"{target.name}.{secrets.token_hex(4)}.new")
    try:
        if target.exists() and not os.access(target, os.W_OK):
            raise ConfigError(f"{file} is read-only.", hint="Make it writable, or name another with --config.")
        target.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(text.encode())
        try:
            load_settings(new, {}, {})
        except ConfigError as error:
            error.message = error.message.replace(str(new), str(file))
            raise
        if target.exists():
            new.chmod(target.stat().st_mode & 0o777)
        new.replace(target)
    except OSError as error:
        raise DiskFullError(
            f"{file} cannot be written: {error.strerror or error}.", hint="Check the folder and its free space."
        ) from error
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)


def _shown(entry: Any) -> str:
    return one_line(", ".join(f"{key} = {value}" for key, value in dict(entry).items()))
