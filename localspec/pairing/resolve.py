"""What a name stands for: a file, a model on the Hub (downloaded or not), or an entry of models.toml.

The forms are those of `models/references.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, TypeAlias

from localspec.errors import ConfigError, UsageError
from localspec.models.header import GgufHeader
from localspec.models.library import LocalModel, is_of, models_named, several_named
from localspec.models.references import FileReference, HubReference, Reference, RegistryReference, parse_reference
from localspec.models.registry import Registry, load_registry
from localspec.models.split import read_model

if TYPE_CHECKING:
    from localspec.hub.client import Hub
    from localspec.hub.remote_model import RemoteModel

__all__ = ["FindLocal", "ResolvedModel", "locate", "resolve", "resolve_reference"]


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model that can be judged: its header is here, its weights at `path`, or still on the Hub as `remote`.

    `reference` is what names it again, in a command or in a configuration file. `n_header_bytes` were read over the
    network for the header.
    """

    reference: str
    header: GgufHeader
    path: Path | None
    remote: RemoteModel | None = None
    n_header_bytes: int = 0

    @property
    def name(self) -> str:
        """What a person calls it."""
        return PurePath(self.header.path).name

    @property
    def exact_reference(self) -> str:
        """What names this very model again, its quantization or file included."""
        if self.path is not None or self.remote is None:
            return self.reference
        return self.remote.reference

    @property
    def n_weight_bytes(self) -> int:
        """What its tensors take."""
        return sum(tensor.n_bytes for tensor in self.header.tensors)

    @property
    def n_download_bytes(self) -> int:
        """What has to be fetched before it can run."""
        return 0 if self.path is not None or self.remote is None else self.remote.n_bytes


FindLocal: TypeAlias = Callable[[], Sequence[LocalModel]]
"""Lists the models on this machine; asked only where a name might be one of theirs."""


def locate(
    text: str, hub: Hub | None = None, registry: Registry | None = None, local: FindLocal = lambda: ()
) -> Path | HubReference:
    """Where the model that a text names is: a file on this machine, or else what it is on the Hub.

    A name as `localspec models` shows it comes first: nobody else can take it. What was downloaded, by whatever
    program, is taken as it is: the Hub is not asked.

    Raises:
        UsageError: the text names nothing that is known, or several models here.
    """
    reference, problem = _parsed(text, registry)
    if isinstance(reference, FileReference):
        return reference.path
    models = local()
    named = [model.path for model in models_named(models, text) if model.path is not None]
    if len(named) == 1:
        return named[0]
    if reference is None:
        raise several_named(text, models_named(models, text)) if named else problem
    return (hub or _hub()).cached(reference) or _of_another_program(reference, models) or reference


def _parsed(text: str, registry: Registry | None) -> tuple[Reference | None, UsageError]:
    """What a text names, or why it names nothing."""
    try:
        reference = parse_reference(text)
        if isinstance(reference, RegistryReference):
            reference = (registry or load_registry()).resolve(reference)
    except ConfigError:
        raise
    except UsageError as error:
        return None, error
    return reference, UsageError("")


def _of_another_program(reference: HubReference, models: Sequence[LocalModel]) -> Path | None:
    """A file of that repository which lies elsewhere, such as in LM Studio's folder."""
    return next((model.path for model in models if model.path is not None and is_of(model, reference)), None)


def resolve(
    text: str, hub: Hub | None = None, registry: Registry | None = None, local: FindLocal = lambda: ()
) -> ResolvedModel:
    """Find the model that a text names and read its header: from the file where there is one, else from the Hub.

    Raises:
        UsageError: the text names nothing that is known.
        ModelError: the file, or the file on the Hub, is no model that can be read.
        HubError: it must be looked up on the Hub, and that failed.
    """
    hub = hub or _hub()
    located = locate(text, hub, registry, local)
    if isinstance(located, Path):
        return ResolvedModel(text, read_model(located), located)
    return _on_hub(located, text, hub)


def resolve_reference(reference: Reference, text: str, hub: Hub | None = None) -> ResolvedModel:
    """As `resolve`, for a reference that was parsed."""
    if isinstance(reference, FileReference):
        return ResolvedModel(text, read_model(reference.path), reference.path)
    hub = hub or _hub()
    cached = hub.cached(reference)
    return ResolvedModel(text, read_model(cached), cached) if cached is not None else _on_hub(reference, text, hub)


def _on_hub(reference: HubReference, text: str, hub: Hub) -> ResolvedModel:
    remote = hub.find(reference)
    found = hub.header(remote)
    return ResolvedModel(text, found.header, None, remote, found.n_bytes_read)


def _hub() -> Hub:
    from localspec.hub.client import Hub

    return Hub()
