"""Everything that choosing a pair asks for, in one place: what is here, what there is, what fits, and fetching it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from localspec.config import Settings
from localspec.engine.requests import PairSpec, default_n_ctx
from localspec.errors import LocalspecError
from localspec.memory.devices import Machine
from localspec.memory.plan import plan
from localspec.models.demo import demo_files
from localspec.models.description import describe
from localspec.models.generative import refuse_unless_generative
from localspec.models.quantization import n_bits
from localspec.models.references import FileReference, HubReference
from localspec.models.registry import load_registry
from localspec.pairing.chosen import ChosenPair, ReadyPair, Target, entry_of, ready_pair
from localspec.pairing.downloads import Downloads
from localspec.pairing.drafts import Conditions, DraftOption, Place, judge
from localspec.pairing.finding import find_drafts
from localspec.pairing.fit import ConditionsFor, Fit, fit_of, guessed_fit
from localspec.pairing.naming import save_pair
from localspec.pairing.quantizations import best_quantization, likely_header, quantization_options
from localspec.pairing.resolve import ResolvedModel, resolve_reference
from localspec.pairing.sizes import DEFAULT_QUANTIZATION
from localspec.pairing.surroundings import Surroundings
from localspec.pairing.targets import TargetEntry, found_entries, local_entries, registered_entries

if TYPE_CHECKING:
    from localspec.hub.client import Hub
    from localspec.hub.remote_model import RemoteModel

__all__ = ["Listing", "PairService", "Quantization"]

_USUAL_BITS: Final = n_bits(DEFAULT_QUANTIZATION) or 4


@dataclass(frozen=True, slots=True)
class Listing:
    """Targets to choose from, and what is to be said about the list."""

    entries: tuple[TargetEntry, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Quantization:
    """One form of a model in its repository. `draft`: what it would be as a draft, where it is one."""

    remote: RemoteModel
    fit: Fit
    is_best: bool = False
    draft: DraftOption | None = None


class PairService:
    """Implements the `Pairs` of the chat. Its methods block, on the network too; threads may share it.

    `settings` are those that hold for any pair: what an entry of the configuration or a tuned profile says of one pair
    is not among them. `engine_pid`: the process whose memory will be free when another pair is loaded.
    `uses_profiles`: whether a pair gets what was tuned for it.
    """

    def __init__(
        self,
        settings: Settings,
        config_file: Path,
        *,
        engine_pid: Callable[[], int | None] = lambda: None,
        hub: Hub | None = None,
        uses_profiles: bool = True,
    ) -> None:
        self.downloads = Downloads(lambda *arguments: self._hub().download(*arguments))
        self._settings = settings
        self._config_file = config_file
        self._given_hub = hub
        self._uses_profiles = uses_profiles
        self._lock = threading.Lock()
        self._here = Surroundings(settings.models_dir, engine_pid)

    # --- targets ------------------------------------------------------------------------------------------------------

    def local(self, loaded: PairSpec | None) -> Listing:
        """Models on this machine that can write text."""
        found = self._here.find_models(loaded)
        notes = []
        if not found.models:
            notes.append("There is no model on this machine yet. Choose one below, or search the Hub.")
        if found.n_unreadable:
            what = "One file" if found.n_unreadable == 1 else f"{found.n_unreadable} files"
            notes.append(f"{what} here cannot be read; `localspec models` says why.")
        here = self._here.machine()
        if self._here.lacks_gpu_build:
            notes.append("This llama.cpp is built for the CPU, so the graphics card is left out.")
        entries = local_entries(found.models, self._conditions_for(here), loaded)
        return Listing(tuple(entries), tuple(notes))

    def registered(self) -> Listing:
        """Targets of models.toml that are not here."""
        here = self._here.machine()
        entries = registered_entries(load_registry(), self._here.models, self._conditions_for(here))
        return Listing(tuple(entries))

    def search(self, text: str) -> Listing:
        """What the Hub has under a name.

        Raises:
            HubError: it does not answer, or offline mode forbids to ask.
        """
        here = self._here.machine()
        entries = found_entries(self._hub().search(text, limit=50), self._conditions_for(here))
        notes = () if entries else (f"The Hub has no GGUF repository named like {text!r}.",)
        return Listing(tuple(entries), notes)

    def quantizations(self, entry: TargetEntry) -> list[Quantization]:
        """The forms that the repository of a target has, the largest first.

        Raises:
            HubError: the Hub does not say.
        """
        assert isinstance(entry.reference, HubReference)
        remote = sorted(self._hub().models(entry.reference.repo), key=lambda each: -each.n_bytes)
        fits = self._fits(remote)
        best = _best_of_target([each for each, fit in zip(remote, fits, strict=True) if fit is Fit.FITS])
        return [Quantization(each, fit, is_best=each is best) for each, fit in zip(remote, fits, strict=True)]

    def choose(self, entry: TargetEntry, remote: RemoteModel | None, loaded: PairSpec | None) -> Target:
        """Read the header of a target and plan its memory. `remote`: the quantization that was chosen.

        Raises:
            ModelError: it is no model that can be read, or none that writes text.
            HubError: it must be looked up on the Hub, and that failed.
        """
        model = self._resolved(entry, remote)
        refuse_unless_generative(model.header)
        is_loaded = (
            loaded is not None and model.path is not None and model.path.resolve() == loaded.target.path.resolve()
        )
        here = self._here.machine()
        conditions = self._conditions(model, here, loaded if is_loaded else None)
        made = plan(
            model.header,
            None,
            here,
            n_ctx=conditions.n_ctx,
            kv_type=conditions.kv_type,
            n_gpu_layers=conditions.n_gpu_layers,
        )
        return Target(model, conditions, made, loaded if is_loaded else None)

    # --- drafts -------------------------------------------------------------------------------------------------------

    def find_drafts(
        self,
        target: Target,
        on_found: Callable[[DraftOption], None],
        on_look: Callable[[str], None],
        *,
        search: bool = False,
    ) -> list[str]:
        """Look for drafts, and hand over each one when it was judged; returns what is to be said about the search."""
        hub, notes = None, []
        partner = _partner(target)
        if partner is not None:
            try:
                draft = resolve_reference(FileReference(partner), str(partner))
                on_found(judge(target.model, draft, target.conditions, place=Place.HERE))
            except LocalspecError as error:
                notes.append(error.message)

        def on_other(option: DraftOption) -> None:
            if option.model.path is None or partner is None or option.model.path.resolve() != partner.resolve():
                on_found(option)

        try:
            hub = self._hub()
            if hub.is_offline:
                hub = None
                notes.append("Offline mode: only drafts on this machine were looked at.")
        except LocalspecError as error:
            notes.append(f"The Hub was not asked: {error.message} {error.hint}".strip())
        found = find_drafts(
            target.model,
            target.conditions,
            local=self._here.models,
            registry=load_registry(),
            hub=hub,
            search=search,
            on_look=on_look,
            on_found=on_other,
        )
        return [*notes, *found.notes]

    def draft_quantizations(self, target: Target, draft: DraftOption) -> list[Quantization]:
        """The forms that the repository of a draft has, the largest first, each judged beside the target.

        Raises:
            HubError: the Hub does not say.
        """
        assert draft.model.remote is not None
        models = self._hub().models(draft.model.remote.repo)
        options = quantization_options(target.model, draft.model, models, target.conditions, self._hub())
        best = best_quantization(options)
        return [
            Quantization(option.model.remote, _fit_of_draft(option), is_best=option is best, draft=option)
            for option in options
            if option.model.remote is not None
        ]

    # --- the pair -----------------------------------------------------------------------------------------------------

    def ready(self, chosen: ChosenPair, fetched: Mapping[str, Path]) -> ReadyPair:
        """How the engine is to load a pair, and replies draft with it. `fetched`: paths of downloads, by reference."""
        return ready_pair(chosen, self._settings, fetched, uses_profile=self._uses_profiles)

    def save(self, name: str, chosen: ChosenPair, *, replace_existing: bool) -> Path:
        """Write a pair into the configuration file, whose path is returned.

        Raises:
            UsageError: the name is taken or none, or a file on the Hub has no short name.
            ConfigError, DiskFullError: the file cannot be read, or not be written.
        """
        entry = entry_of(chosen, self._settings)
        save_pair(self._config_file, name, entry, replace=replace_existing, as_default=True)
        return self._config_file

    def close(self) -> None:
        """End the downloads; what has arrived of them is kept."""
        self.downloads.close()

    # --- the rest -----------------------------------------------------------------------------------------------------

    def _hub(self) -> Hub:
        with self._lock:
            if self._given_hub is None:
                from localspec.hub.client import Hub

                self._given_hub = Hub()
            return self._given_hub

    def _fits(self, remote: Sequence[RemoteModel]) -> list[Fit]:
        """Of the quantizations of one target.

        One header stands for those that are not known: of the one that is most likely chosen next. Without it, sizes
        decide.
        """
        conditions_for = self._conditions_for(self._here.machine())
        usual = _best_of_target(remote)
        sample = None
        if usual is not None:
            with contextlib.suppress(LocalspecError):
                sample = self._hub().header(usual).header
        if sample is None:
            return [guessed_fit(each.n_bytes, conditions_for(0)) for each in remote]
        conditions = conditions_for(describe(sample).n_ctx_train)
        return [fit_of(likely_header(sample, each, self._hub()), conditions) for each in remote]

    def _conditions(self, model: ResolvedModel, here: Machine, loaded: PairSpec | None) -> Conditions:
        """What the user has set; the rest is for the plan to choose. A target that is loaded stays as it is."""
        conditions = self._conditions_for(here)(describe(model.header).n_ctx_train)
        return conditions if loaded is None else conditions.as_loaded(loaded)

    def _conditions_for(self, here: Machine) -> ConditionsFor:
        said, bandwidths = self._settings.model_fields_set, self._here.speeds(here)

        def conditions(n_ctx_train: int) -> Conditions:
            return Conditions(
                here,
                self._settings.ctx or default_n_ctx(n_ctx_train),
                kv_type=self._settings.kv_type if "kv_type" in said else None,
                draft_kv_type=self._settings.draft_kv_type if "draft_kv_type" in said else None,
                n_gpu_layers=self._settings.gpu_layers if "gpu_layers" in said else None,
                bandwidths=bandwidths,
            )

        return conditions

    def _resolved(self, entry: TargetEntry, remote: RemoteModel | None) -> ResolvedModel:
        if isinstance(entry.reference, FileReference):
            return resolve_reference(entry.reference, entry.text)
        hub = self._hub()
        if remote is None:
            return resolve_reference(entry.reference, entry.text, hub)
        text = remote.reference
        cached = hub.cached(HubReference(remote.repo, file=remote.files[0].name))
        if cached is not None:
            return resolve_reference(FileReference(cached), str(cached))
        found = hub.header(remote)
        return ResolvedModel(text, found.header, None, remote, found.n_bytes_read)


def _partner(target: Target) -> Path | None:
    """The draft model that is loaded with a target, or belongs to it as the demo pair's does."""
    if target.loaded is not None and target.loaded.draft is not None:
        return target.loaded.draft.path
    with contextlib.suppress(LocalspecError):
        demo = demo_files()
        if target.model.path is not None and target.model.path.resolve() == demo.target.resolve():
            return demo.draft
    return None


def _best_of_target(fitting: Sequence[RemoteModel]) -> RemoteModel | None:
    """Of those that fit, the largest first: the usual quantization, else the largest of as many bits at most."""
    exact = [each for each in fitting if each.quantization == DEFAULT_QUANTIZATION]
    small = [each for each in fitting if (n_bits(each.quantization) or 0) <= _USUAL_BITS]
    return next(iter((*exact, *small, *fitting[::-1])), None)


def _fit_of_draft(option: DraftOption) -> Fit:
    if option.plan is None:
        return Fit.UNKNOWN
    return Fit.FITS if option.fits else Fit.TOO_LARGE
