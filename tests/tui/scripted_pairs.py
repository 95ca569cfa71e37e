"""Models that are not there: the tests of the pair screen decide what is found, what fits, and how downloads go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from localspec.config import Settings
from localspec.engine.requests import PairSpec
from localspec.errors import LocalspecError
from localspec.hub.remote_model import RemoteFile, RemoteModel
from localspec.memory.choice import Choice, Margin, ModelChoice
from localspec.memory.devices import Machine, MemoryDevice
from localspec.memory.estimate import DeviceBytes, ModelMemory
from localspec.memory.plan import Plan
from localspec.models.advice import PairWarning
from localspec.models.compat import PairVerdict, Reason, Verdict
from localspec.models.header import GgufHeader, TensorInfo
from localspec.models.references import FileReference, HubReference
from localspec.pairing.chosen import ChosenPair, ReadyPair, Target, ready_pair
from localspec.pairing.downloads import Download, DownloadState
from localspec.pairing.drafts import Conditions, DraftOption, Place
from localspec.pairing.fit import Fit
from localspec.pairing.prediction import Prediction
from localspec.pairing.resolve import ResolvedModel
from localspec.pairing.service import Listing, Quantization
from localspec.pairing.targets import TargetEntry

GB = 10**9
GIB = 2**30
MACHINE = Machine(MemoryDevice("system memory", 32 * GIB, 24 * GIB), (), unified=False, note="")
FOLDER = Path("/models")
NOTHING = Listing(())


def entry(name: str, place: Place = Place.HERE, **changes: Any) -> TargetEntry:
    """A target of 8 billion weights that fits."""
    is_here = place is Place.HERE
    values = TargetEntry(
        name=name,
        place=place,
        reference=FileReference(FOLDER / f"{name}.gguf") if is_here else HubReference(f"acme/{name}-GGUF"),
        text=str(FOLDER / f"{name}.gguf") if is_here else f"acme/{name}-GGUF",
        quantization="Q4_K_M" if place is not Place.HUB else "",
        n_bytes=round(4.9 * GB),
        is_guess=not is_here,
        n_parameters=8_000_000_000,
        n_ctx_train=131_072 if place is not Place.REGISTRY else 0,
        licence="apache-2.0",
        fit=Fit.FITS,
        tokens_per_s=8.4,
        note="in the folder of localspec" if is_here else f"acme/{name}-GGUF",
    )
    return replace(values, **changes)


def remote(name: str, quantization: str = "Q8_0", n_bytes: int = GB // 2) -> RemoteModel:
    """A model of one file on the Hub."""
    file = RemoteFile(f"{name}-{quantization}.gguf", n_bytes, "a" * 64)
    return RemoteModel(f"acme/{name}-GGUF", "b" * 40, quantization, (file,))


def header(path: PurePosixPath | Path, n_bytes: int) -> GgufHeader:
    """What lists read of a header; no weights of such a shape exist."""
    metadata = {"general.architecture": "llama", "general.file_type": 7, "llama.context_length": 32768}
    tensor = TensorInfo("token_embd.weight", (32, n_bytes // 34), "q8_0", 0, n_bytes)
    return GgufHeader(path, 3, metadata, (tensor,), 4096, n_bytes)


def resolved(name: str, *, here: bool = True, quantization: str = "Q8_0", n_bytes: int = GB // 2) -> ResolvedModel:
    """A model whose header was read."""
    if here:
        path = FOLDER / f"{name}.gguf"
        return ResolvedModel(str(path), header(path, n_bytes), path)
    found = remote(name, quantization, n_bytes)
    path_there = PurePosixPath(found.repo) / found.files[0].name
    return ResolvedModel(found.reference, header(path_there, n_bytes), None, found)


def planned(target: ResolvedModel, draft: ResolvedModel | None, machine: Machine = MACHINE) -> Plan:
    """Everything in system memory, in a context of 8,192 tokens."""
    models = [_loaded(target, GIB), *([_loaded(draft, GIB // 8)] if draft else [])]
    choice = Choice(machine, Margin(), 8192, models[0], models[1] if draft else None)
    what = f"{target.name} is in system memory." if choice.fits else f"{target.name} does not fit."
    return Plan(choice, (what,), ())


def _loaded(model: ResolvedModel, kv_bytes: int) -> ModelChoice:
    used = DeviceBytes(model.n_weight_bytes, kv_bytes, GIB // 4)
    return ModelChoice(model.header.path, "f16", ModelMemory(used, (), 0, 33, is_exact=True))


def target(name: str, *, loaded: PairSpec | None = None, **changes: Any) -> Target:
    """A target with 4.9 GB of weights."""
    model = resolved(name, n_bytes=changes.pop("n_bytes", round(4.9 * GB)), **changes)
    return Target(model, Conditions(MACHINE, 8192), planned(model, None), loaded)


def draft(name: str, beside: Target, place: Place = Place.HERE, **changes: Any) -> DraftOption:
    """A draft with the target's vocabulary that fits."""
    model = changes.pop("model", None) or resolved(name, here=place is Place.HERE)
    values = DraftOption(
        model,
        place,
        PairVerdict(Verdict.IDENTICAL, ()),
        (),
        plan=planned(beside.model, model),
        prediction=Prediction(8.4, 1.6, 4, 0.7, 40e9),
    )
    return replace(values, **changes)


def refused(name: str, place: Place = Place.HERE) -> DraftOption:
    """A draft of another family."""
    reason = Reason(
        "token text",
        "<|im_start|>",
        "<s>",
        "token 7 means different texts to them (target <|im_start|>, draft <s>)",
        "Choose a smaller model of the target's own family and generation as the draft.",
    )
    return DraftOption(resolved(name, here=place is Place.HERE), place, PairVerdict(Verdict.REFUSED, (reason,)), ())


WARNING = PairWarning("context", "8,192", "2,048", "the draft was trained on 2,048 tokens of context")


class ScriptedDownloads:
    """Downloads that stand as the test says."""

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self.all: dict[str, Download] = {}
        self.asked: list[tuple[str, str]] = []

    @property
    def rows(self) -> tuple[Download, ...]:
        return tuple(self.all.values())

    def start(self, model: RemoteModel) -> None:
        self.asked.append(("start", model.reference))
        self.put(Download(model.reference, model.n_bytes, DownloadState.RUNNING))

    def stop(self, reference: str) -> None:
        self.asked.append(("stop", reference))
        self.change(reference, state=DownloadState.STOPPED)

    def resume(self, reference: str) -> None:
        self.asked.append(("resume", reference))
        self.change(reference, state=DownloadState.RUNNING, error=None)

    def forget(self, reference: str) -> None:
        self.asked.append(("forget", reference))
        del self.all[reference]
        self.on_change()

    def put(self, row: Download) -> None:
        self.all[row.reference] = row
        self.on_change()

    def change(self, reference: str, **changes: Any) -> None:
        self.put(replace(self.all[reference], **changes))

    def finish(self, reference: str) -> Path:
        path = FOLDER / f"{reference.rpartition('/')[2].replace(':', '-')}.gguf"
        self.change(reference, state=DownloadState.DONE, path=path)
        return path


@dataclass
class ScriptedPairs:
    """Answers what it was given. What is an error is raised. `drafts_of` makes the drafts for a target."""

    here: Listing | LocalspecError = NOTHING
    known: Listing | LocalspecError = NOTHING
    on_hub: Listing | LocalspecError = NOTHING
    forms: Sequence[Quantization] | LocalspecError = ()
    target_of: Callable[[TargetEntry, RemoteModel | None], Target] = lambda entry, _: target(entry.name)
    drafts_of: Callable[[Target], Sequence[DraftOption]] = lambda _: ()
    notes: Sequence[str] = ()
    may_answer: Callable[[], None] = lambda: None  # blocks while the test wants it
    tuned: Callable[[ReadyPair], ReadyPair] = lambda ready: ready  # what a profile makes of a pair
    downloads: ScriptedDownloads = field(default_factory=ScriptedDownloads)
    searched: list[str] = field(default_factory=list)
    saved: dict[str, ChosenPair] = field(default_factory=dict)
    refuses_save: LocalspecError | None = None
    n_closes: int = 0

    def local(self, loaded: PairSpec | None) -> Listing:
        return _answer(self.here)

    def registered(self) -> Listing:
        return _answer(self.known)

    def search(self, text: str) -> Listing:
        self.searched.append(text)
        return _answer(self.on_hub)

    def quantizations(self, entry: TargetEntry) -> Sequence[Quantization]:
        return _answer(self.forms)

    def choose(self, entry: TargetEntry, remote: RemoteModel | None, loaded: PairSpec | None) -> Target:
        self.may_answer()
        return self.target_of(entry, remote).beside(loaded)

    def find_drafts(
        self,
        target: Target,
        on_found: Callable[[DraftOption], None],
        on_look: Callable[[str], None],
        *,
        search: bool = False,
    ) -> Sequence[str]:
        for option in self.drafts_of(target):
            on_look(option.model.name)
            on_found(option)
        return self.notes

    def draft_quantizations(self, target: Target, draft: DraftOption) -> Sequence[Quantization]:
        return _answer(self.forms)

    def ready(self, chosen: ChosenPair, fetched: Mapping[str, Path]) -> ReadyPair:
        return self.tuned(ready_pair(chosen, Settings(), fetched, uses_profile=False))

    def save(self, name: str, chosen: ChosenPair, *, replace_existing: bool) -> Path:
        if self.refuses_save is not None and not replace_existing:
            raise self.refuses_save
        self.saved[name] = chosen
        return Path("/home/someone/config.toml")

    def close(self) -> None:
        self.n_closes += 1


def _answer(answer: Any) -> Any:
    if isinstance(answer, LocalspecError):
        raise answer
    return answer
