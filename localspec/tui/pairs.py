"""What the pair screen asks for: models, drafts for them, and downloads. `pairing/service.py` answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from localspec.engine.requests import PairSpec

if TYPE_CHECKING:
    from localspec.hub.remote_model import RemoteModel
    from localspec.pairing.chosen import ChosenPair, ReadyPair, Target
    from localspec.pairing.downloads import Download
    from localspec.pairing.drafts import DraftOption
    from localspec.pairing.service import Listing, Quantization
    from localspec.pairing.targets import TargetEntry


class DownloadQueue(Protocol):
    """Downloads in the background, by reference. Methods return at once; see `pairing.downloads.Downloads`."""

    on_change: Callable[[], None]

    @property
    def rows(self) -> tuple[Download, ...]:
        """All of them, the oldest first."""

    def start(self, model: RemoteModel) -> None:
        """Fetch a model."""

    def stop(self, reference: str) -> None:
        """Stop one; what has arrived is kept."""

    def resume(self, reference: str) -> None:
        """Go on with one."""

    def forget(self, reference: str) -> None:
        """Take one that has ended out of the list."""


class Pairs(Protocol):
    """Everything that is known of models. The methods block, so they are called on threads; see `PairService`.

    Each of them may raise a LocalspecError.
    """

    @property
    def downloads(self) -> DownloadQueue:
        """Those of this program."""

    def local(self, loaded: PairSpec | None) -> Listing:
        """Models on this machine."""

    def registered(self) -> Listing:
        """Models of models.toml."""

    def search(self, text: str) -> Listing:
        """Models on the Hub."""

    def quantizations(self, entry: TargetEntry) -> Sequence[Quantization]:
        """The forms that a target comes in."""

    def choose(self, entry: TargetEntry, remote: RemoteModel | None, loaded: PairSpec | None) -> Target:
        """Read its header and plan its memory; `remote`: the quantization that was chosen."""

    def find_drafts(
        self,
        target: Target,
        on_found: Callable[[DraftOption], None],
        on_look: Callable[[str], None],
        *,
        search: bool = False,
    ) -> Sequence[str]:
        """Hand over each draft when it was judged; returns notes."""

    def draft_quantizations(self, target: Target, draft: DraftOption) -> Sequence[Quantization]:
        """The forms that a draft comes in, judged beside the target."""

    def ready(self, chosen: ChosenPair, fetched: Mapping[str, Path]) -> ReadyPair:
        """How the engine is to load it, and replies draft with it; `fetched`: paths of downloads by reference."""

    def save(self, name: str, chosen: ChosenPair, *, replace_existing: bool) -> Path:
        """Write it into the configuration; returns that file."""

    def close(self) -> None:
        """End the downloads, and keep what has arrived."""
