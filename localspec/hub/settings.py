"""What the environment says about the Hub, read when asked: huggingface_hub reads most of it once, when imported."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from localspec.errors import UsageError
from localspec.models.model_folders import Place, model_folders

__all__ = ["cache_dir", "endpoint", "is_offline", "token", "without_password"]

_DEFAULT_ENDPOINT: Final = "https://huggingface.co"
_PASSWORD: Final = re.compile(r"^((?:[^/@:]*://)?[^/@:]*):(?!//).*@", re.DOTALL)
_TRUE: Final = frozenset({"1", "ON", "YES", "TRUE"})


def endpoint(given: str | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """The address of the Hub or of a mirror (`HF_ENDPOINT`), without a slash at its end.

    Raises:
        UsageError: it is no address.
    """
    address = given or environ.get("HF_ENDPOINT") or _DEFAULT_ENDPOINT
    try:
        parts = urlsplit(address)
        is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and not parts.query and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or not address.isascii() or not address.isprintable() or " " in address:
        raise UsageError(
            f"HF_ENDPOINT, the address of the Hub, is {without_password(address)!r}; it should be one such as "
            f"{_DEFAULT_ENDPOINT}.",
            hint="Correct the variable HF_ENDPOINT, or take it out.",
        )
    return address.rstrip("/")


def without_password(address: str) -> str:
    """An address, or what should be one, as it may be shown."""
    return _PASSWORD.sub(r"\1:…@", address)


def is_offline(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether only the cache may be used (`HF_HUB_OFFLINE`, `TRANSFORMERS_OFFLINE`)."""
    value = environ.get("HF_HUB_OFFLINE") or environ.get("TRANSFORMERS_OFFLINE") or ""
    return value.upper() in _TRUE


def cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder that huggingface_hub and llama-server share: `HF_HUB_CACHE`, or `hub` in `HF_HOME`."""
    return next(each.path for each in model_folders(environ=environ) if each.place is Place.HUGGING_FACE).absolute()


def token(given: str | None = None, environ: Mapping[str, str] = os.environ) -> str | None:
    """Who asks: what was given, `HF_TOKEN`, or what `hf auth login` has stored. None: nobody.

    Raises:
        UsageError: it holds characters that no token has.
    """
    found = given
    if found is None and environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").upper() not in _TRUE:
        from huggingface_hub import get_token

        found = get_token()
    if not found:
        return None
    if not found.isascii() or not found.isprintable() or " " in found:
        raise UsageError(
            "The token for the Hub holds characters that no token has.",
            hint="Correct HF_TOKEN, or log in again with `hf auth login`.",
        )
    return found
