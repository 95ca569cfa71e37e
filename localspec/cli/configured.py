"""What the configuration says to a command that takes no settings as flags: folders of models, and pairs by name."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.engine.requests import KvType
from localspec.errors import ConfigError

if TYPE_CHECKING:
    import typer

    from localspec.config import Settings
    from localspec.models.model_folders import ModelFolder

__all__ = ["Planned", "folders_of", "saved_pair", "settings_of"]


@dataclass(frozen=True, slots=True)
class Planned:
    """A pair to be planned or judged. Numbers and types that are None are chosen; `draft` None: none was named."""

    target: str
    draft: str | None = None
    ctx: int | None = None
    kv_type: str | None = None
    draft_kv_type: str | None = None
    gpu_layers: int | None = None

    def but(
        self,
        *,
        draft: str | None = None,
        ctx: int | None = None,
        kv_type: KvType | None = None,
        draft_kv_type: KvType | None = None,
        gpu_layers: int | None = None,
    ) -> Planned:
        """The same where flags say nothing else."""
        return Planned(
            self.target,
            draft or self.draft,
            ctx or self.ctx,
            kv_type.value if kv_type else self.kv_type,
            draft_kv_type.value if draft_kv_type else self.draft_kv_type,
            self.gpu_layers if gpu_layers is None else gpu_layers,
        )


def settings_of(context: typer.Context, pair: str | None = None) -> Settings:
    """The settings of file and environment; those of the entry `pair` go before the rest of the file.

    Raises:
        ConfigError: they cannot be read, or hold something that cannot be used.
    """
    from localspec.config import load_settings
    from localspec.paths import config_file

    try:
        file = context.obj.config or (config_file() if config_file().exists() else None)
        return load_settings(file, os.environ, {}, pair=pair)
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"The folders for configuration and models cannot be used: {error}.", hint="Check HOME and LOCALSPEC_HOME."
        ) from error


def folders_of(context: typer.Context) -> list[ModelFolder]:
    """Where models are. Raises as `settings_of`."""
    from localspec.models.model_folders import model_folders

    models_dir = settings_of(context).models_dir
    try:
        return model_folders(models_dir)
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"The folders for models cannot be used: {error}.", hint="Check HOME and LOCALSPEC_HOME."
        ) from error


def saved_pair(context: typer.Context, text: str) -> Planned | None:
    """The pair of the configuration that has this name, as the chat would load it; None: it has none.

    The user has named it, so it comes before models of that name; an existing file comes before all.
    """
    entry = None if _is_file(text) else settings_of(context).pairs.get(text)
    if entry is None:
        return None
    settings = settings_of(context, pair=text)
    said = settings.model_fields_set
    return Planned(
        str(entry.target),
        None if entry.draft is None else str(entry.draft),
        settings.ctx,
        settings.kv_type if "kv_type" in said else None,
        settings.draft_kv_type if "draft_kv_type" in said else None,
        settings.gpu_layers if "gpu_layers" in said else None,
    )


def _is_file(text: str) -> bool:
    try:
        return Path(text).expanduser().is_file()
    except (OSError, RuntimeError, ValueError):
        return False
