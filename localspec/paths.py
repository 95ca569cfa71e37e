"""Where configuration, data, cache and logs live: by the system's custom, or all under LOCALSPEC_HOME.

Each function asks the environment when it is called, and creates nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import platformdirs

__all__ = ["HOME_VARIABLE", "cache_dir", "config_dir", "config_file", "data_dir", "log_dir"]

HOME_VARIABLE: Final = "LOCALSPEC_HOME"
_APP: Final = "localspec"


def config_dir() -> Path:
    """What the user writes."""
    return _under_home("config") or platformdirs.user_config_path(_APP, appauthor=False)


def config_file() -> Path:
    """The configuration file; it need not exist."""
    return config_dir() / "config.toml"


def data_dir() -> Path:
    """What the app must keep, such as the history of the prompt line."""
    return _under_home("data") or platformdirs.user_data_path(_APP, appauthor=False)


def cache_dir() -> Path:
    """What can be made again, such as the demo target."""
    return _under_home("cache") or platformdirs.user_cache_path(_APP, appauthor=False)


def log_dir() -> Path:
    """Log files."""
    return _under_home("logs") or platformdirs.user_log_path(_APP, appauthor=False)


def _under_home(folder: str) -> Path | None:
    home = os.environ.get(HOME_VARIABLE)
    return Path(home).expanduser().absolute() / folder if home else None
