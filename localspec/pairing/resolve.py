"""What a name stands for: a file, a model on the Hub (downloaded or not), or an entry of models.toml.

The forms are those of `models/references.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from localspec.models.header import GgufHeader
from localspec.models.references import FileReference, Reference, parse_reference
from localspec.models.registry import Registry, load_registry
from localspec.models.split import read_model

if TYPE_CHECKING:
    from localspec.hub.client import Hub
    from localspec.hub.remote_model import RemoteModel

__all__ = ["ResolvedModel", "model_header", "resolve"]


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


def resolve(text: str, hub: Hub | None = None, registry: Registry | None = None) -> ResolvedModel:
    """Find the model that a text names and read its header: from the file where there is one, else from the Hub.

    Raises:
        UsageError: the text names nothing that is known.
        ModelError: the file, or the file on the Hub, is no model that can be read.
        HubError: it must be looked up on the Hub, and that failed.
    """
    reference = parse_reference(text, registry or load_registry())
    return resolve_reference(reference, text, hub)


def resolve_reference(reference: Reference, text: str, hub: Hub | None = None) -> ResolvedModel:
    """As `resolve`, for a reference that was parsed."""
    if isinstance(reference, FileReference):
        return ResolvedModel(text, read_model(reference.path), reference.path)
    from localspec.hub.client import Hub

    hub = hub or Hub()
    cached = hub.cached(reference)
    if cached is not None:
        return ResolvedModel(text, read_model(cached), cached)
    remote = hub.find(reference)
    found = hub.header(remote)
    return ResolvedModel(text, found.header, None, remote, found.n_bytes_read)


def model_header(text: str, *, hub: Hub | None = None) -> GgufHeader:
    """The header of what a text names; raises as `resolve`."""
    return resolve(text, hub).header
