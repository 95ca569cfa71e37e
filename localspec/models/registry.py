"""models.toml: families of models with targets and drafts, as shipped, and a user's own laid over them by name.

    [models."llama-3.1-8b"]
    title = "Llama 3.1 8B Instruct"
    family = "Llama 3"
    role = "target"                     # or "draft", or "both"
    repo = "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF"
    quantization = "Q4_K_M"             # or file = "...", where a repository holds several models
    licence = "llama3.1"                # left out where it is not certain
    sources = ["https://..."]

    [[pairs]]                           # two models of which somebody reported that they work together
    target = "llama-3.1-8b"
    draft = "llama-3.2-1b"
    sources = ["https://..."]

A family's drafts are candidates for all its targets; the headers of both decide whether a pair works.
"""

from __future__ import annotations

import difflib
import errno
import importlib.resources
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from localspec.errors import ConfigError, UsageError
from localspec.files import read_regular
from localspec.models.references import (
    NAME_PATTERN,
    QUANTIZATION_PATTERN,
    HubReference,
    RegistryReference,
    is_repository,
)
from localspec.models.toml_lines import line_of
from localspec.paths import config_dir
from localspec.printable import shown_value

__all__ = ["Candidate", "RegisteredModel", "RegisteredPair", "Registry", "load_registry", "registry_file", "user_file"]

_FILE_NAME: Final = "models.toml"
_MAX_FILE_BYTES: Final = 4 << 20


def _repository(value: object) -> object:
    if isinstance(value, str) and not is_repository(value):
        raise ValueError("it should be a repository on the Hub, as in owner/name")
    return value


def _file(value: object) -> object:
    if isinstance(value, str):
        parts = value.split("/")
        if not value.endswith(".gguf") or "\\" in value or any(part in {"", ".", ".."} for part in parts):
            raise ValueError("it should be the path of a .gguf file within the repository")
    return value


def _from_list(value: object) -> object:
    """TOML has lists only; what is frozen holds tuples."""
    return tuple(value) if isinstance(value, list) else value


_Text = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")]
_Name = Annotated[str, StringConstraints(pattern=f"^{NAME_PATTERN}$")]
_Quantization = Annotated[str, StringConstraints(pattern=f"^{QUANTIZATION_PATTERN}$", to_upper=True)]
_Repository = Annotated[_Text, BeforeValidator(_repository)]
_File = Annotated[_Text, BeforeValidator(_file)]
_Texts = Annotated[tuple[_Text, ...], BeforeValidator(_from_list)]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class RegisteredModel(_Entry):
    """A model by repository and either quantization or file. `licence` None: not certain; its header says.

    As a draft it is a candidate for the targets of its family and of the families in `also_for`.
    """

    title: _Text
    family: _Text
    also_for: _Texts = ()
    role: Literal["target", "draft", "both"]
    repo: _Repository
    quantization: _Quantization | None = None
    file: _File | None = None
    licence: _Text | None = None
    note: _Text | None = None
    sources: _Texts = ()

    @model_validator(mode="after")
    def _is_one_model(self) -> Self:
        if self.file is not None and self.quantization is not None:
            raise ValueError("it has a file and a quantization; give one of them")
        return self

    @property
    def is_target(self) -> bool:
        """Whether other models may draft for it."""
        return self.role in {"target", "both"}

    @property
    def is_draft(self) -> bool:
        """Whether it may draft for others."""
        return self.role in {"draft", "both"}

    @property
    def reference(self) -> HubReference:
        """What it stands for on the Hub."""
        return HubReference(self.repo, self.quantization, self.file)


class RegisteredPair(_Entry):
    """A pair that was reported to work, by whom, and what to mind.

    `grade` "A": by llama.cpp's own documents, "B" another project's, "C" a forum or a model's card.
    """

    target: _Name
    draft: _Name
    grade: Literal["A", "B", "C"] | None = None
    note: _Text | None = None
    sources: _Texts = ()


class _RegistryFile(_Entry):
    models: dict[_Name, RegisteredModel] = {}
    pairs: Annotated[list[RegisteredPair], Field(max_length=10_000)] = []


@dataclass(frozen=True, slots=True)
class Candidate:
    """A draft for a target: its name and entry. `pair` None: of the same family, but nobody reported the pair."""

    name: str
    model: RegisteredModel
    pair: RegisteredPair | None


@dataclass(frozen=True, slots=True)
class Registry:
    """Models by name, and the pairs reported. Pairs come in the order of the files, a user's own first."""

    models: Mapping[str, RegisteredModel]
    pairs: tuple[RegisteredPair, ...]

    @property
    def families(self) -> dict[str, tuple[str, ...]]:
        """The names of each family's models; a draft counts for the families in its `also_for` too."""
        families: dict[str, tuple[str, ...]] = {}
        for name, model in self.models.items():
            for family in dict.fromkeys([model.family, *(model.also_for if model.is_draft else ())]):
                families[family] = (*families.get(family, ()), name)
        return families

    def resolve(self, reference: RegistryReference) -> HubReference:
        """The model on the Hub that a name stands for; the quantization asked for goes before the one registered.

        Raises:
            UsageError: there is no such name; the hint has the nearest ones.
        """
        model = self.models.get(reference.name) or self.models.get(reference.name.lower())
        if model is None:
            nearest = difflib.get_close_matches(reference.name.lower(), self.models, n=3, cutoff=0.5)
            hint = (
                f"Did you mean {' or '.join(nearest)}?" if nearest else "Give a .gguf file or owner/name-GGUF:Q4_K_M."
            )
            raise UsageError(f"{reference.name} is neither a file nor a name in models.toml.", hint=hint)
        if reference.quantization is None:
            return model.reference
        if model.file is not None:
            raise UsageError(
                f"{reference.name} is the file {model.file} of {model.repo}; it comes in no other quantization.",
                hint=f"Leave :{reference.quantization} out.",
            )
        return HubReference(model.repo, reference.quantization)

    def name_of(self, repo: str, file: str | None = None) -> str | None:
        """The name under which a repository is registered, of several the one with that file; None: it is not."""
        names = [name for name, model in self.models.items() if model.repo.lower() == repo.lower()]
        exact = [name for name in names if file is not None and self.models[name].file == file]
        return next(iter(exact or names), None)

    def drafts_for(self, target: str) -> tuple[Candidate, ...]:
        """What may draft for a registered target: reported pairs first, then its family's other drafts."""
        model = self.models.get(target)
        if model is None or not model.is_target:
            return ()
        pairs = {pair.draft: pair for pair in reversed(self.pairs) if pair.target == target}
        relatives = [name for name in self.families[model.family] if self.models[name].is_draft and name != target]
        names = dict.fromkeys([*reversed(pairs), *relatives])
        return tuple(Candidate(name, self.models[name], pairs.get(name)) for name in names)


def registry_file() -> Path:
    """The file that is shipped: inside the installed package, or beside it in a checkout."""
    installed = importlib.resources.files("localspec") / _FILE_NAME
    if isinstance(installed, Path) and installed.is_file():
        return installed
    return Path(__file__).parents[2] / _FILE_NAME


def user_file() -> Path:
    """Where a user's own models are; it need not exist."""
    return config_dir() / _FILE_NAME


def load_registry(own: Path | None = None) -> Registry:
    """What is shipped, and over it a user's own models and pairs by name; `own` None: `user_file()`.

    Raises:
        ConfigError: a file cannot be read, is not TOML, or has an entry that cannot be used: with file and line.
    """
    own = user_file() if own is None else own
    shipped, text = _read(registry_file())
    _refuse_unknown_names(registry_file(), text, shipped.pairs, shipped.models)
    try:
        is_there = own.exists()
    except OSError as error:
        raise _unreadable(own, error) from error
    if not is_there:
        return Registry(shipped.models, tuple(shipped.pairs))
    added, text = _read(own)
    models = {**shipped.models, **added.models}
    _refuse_unknown_names(own, text, added.pairs, models)
    ours = {(pair.target, pair.draft) for pair in added.pairs}
    kept = [pair for pair in shipped.pairs if (pair.target, pair.draft) not in ours]
    return Registry(models, (*added.pairs, *kept))


def _read(file: Path) -> tuple[_RegistryFile, str]:
    try:
        raw = read_regular(file, _MAX_FILE_BYTES)
        text = raw.decode("utf-8-sig")
        parsed = tomllib.loads(text)
    except OSError as error:
        raise _unreadable(file, error) from error
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ConfigError(f"{file}, line {line}: it is not UTF-8 text.", hint="Save it as UTF-8.") from error
    except ValueError as error:  # says the line
        raise ConfigError(f"{file}: {error}.", hint="Text values need quotes; each model is [models.NAME].") from error
    except RecursionError as error:
        raise ConfigError(f"{file}: it is nested too deeply.", hint="Each model is [models.NAME].") from error
    try:
        return _RegistryFile.model_validate(parsed), text
    except ValidationError as error:
        raise _unusable(file, text, error) from None


def _unusable(file: Path, text: str, error: ValidationError) -> ConfigError:
    problem: Any = error.errors(include_url=False)[0]
    keys = [key for key in problem["loc"] if key != "[key]"]
    where = f"{file}, line {line_of(text, keys)}: {'.'.join(map(str, keys))}"
    if problem["type"] == "extra_forbidden":
        nearest = difflib.get_close_matches(str(keys[-1]), _known_keys(keys[:-1]), n=1, cutoff=0.5)
        hint = f"Did you mean {nearest[0]}?" if nearest else f"Known are: {', '.join(_known_keys(keys[:-1]))}."
        return ConfigError(f"{where} is not known.", hint=hint)
    if problem["type"] == "missing":
        return ConfigError(f"{where} is missing.", hint="Add it to that table.")
    reason = problem["msg"].removeprefix("Value error, ").replace("Input should", "it should")
    hint = "Correct it; nothing of the file is used until then."
    if isinstance(problem["input"], dict):
        return ConfigError(f"{where}: {reason}.", hint=hint)
    return ConfigError(f"{where} is {shown_value(problem['input'])}; {reason}.", hint=hint)


def _known_keys(table: Iterable[object]) -> list[str]:
    kinds: dict[object, type[BaseModel]] = {"models": RegisteredModel, "pairs": RegisteredPair}
    return list(kinds.get(next(iter(table), None), _RegistryFile).model_fields)


def _refuse_unknown_names(
    file: Path, text: str, pairs: Iterable[RegisteredPair], models: Mapping[str, RegisteredModel]
) -> None:
    for number, pair in enumerate(pairs):
        for key, name in (("target", pair.target), ("draft", pair.draft)):
            if name not in models:
                nearest = difflib.get_close_matches(name, models, n=1, cutoff=0.5)
                raise ConfigError(
                    f"{file}, line {line_of(text, ['pairs', number, key])}: the {key} {name} of a pair is no model.",
                    hint=f"Did you mean {nearest[0]}?" if nearest else f"Add [models.{name}].",
                )


def _unreadable(file: Path, error: OSError) -> ConfigError:
    hint = "Make it a readable TOML file, or take it away."
    if error.errno == errno.EFBIG:
        hint = "Take models out of it."
    return ConfigError(f"{file}: {error.strerror or error}.", hint=hint)
