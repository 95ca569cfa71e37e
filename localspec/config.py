"""Settings: defaults < tuned < configuration file < environment < flags. A pure merge of what it is handed; no globals.

pair = "qwen"                        # the pair to start with; also LOCALSPEC_PAIR, --pair
ctx = 16384
models_dir = "~/models"              # where `localspec models` looks beside the folders of other programs

[pairs.qwen]
target = "~/models/qwen-7b-q4.gguf"  # a relative path starts at this file's folder
draft = "Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q8_0"  # or a model on the Hub, or a name from models.toml
draft_kv_type = "f16"

[chat]
system = "Answer briefly."

[sampling]
temperature = 0.7                    # also LOCALSPEC_SAMPLING_TEMPERATURE

[serve]
port = 8081                          # also LOCALSPEC_SERVE_PORT
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, model_validator

from localspec.errors import ConfigError
from localspec.files import read_regular
from localspec.paths import HOME_VARIABLE
from localspec.printable import shown_value

__all__ = [
    "API_KEY_VARIABLE",
    "CHOSEN_TOGETHER",
    "ENDPOINT_KEY_VARIABLE",
    "ChatSettings",
    "PairEntry",
    "SamplingSettings",
    "ServeSettings",
    "Settings",
    "TunedSettings",
    "left_to",
    "load_settings",
]

ENVIRONMENT_PREFIX: Final = "LOCALSPEC_"
# Secrets with the same prefix, and no settings: files are shared, and settings are shown in messages.
API_KEY_VARIABLE: Final = "LOCALSPEC_API_KEY"  # of our own endpoint
ENDPOINT_KEY_VARIABLE: Final = "LOCALSPEC_ENDPOINT_KEY"  # of somebody else's
_NO_SETTINGS: Final = frozenset({HOME_VARIABLE, API_KEY_VARIABLE, ENDPOINT_KEY_VARIABLE})
_MAX_FILE_BYTES: Final = 4 << 20
# A model on the Hub or in models.toml, as in models/references.py.
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)?(?::[A-Za-z0-9_-]+)?")


def _model_path(value: object, info: ValidationInfo) -> Path:
    """A path as written in the file: `~` expands, a relative one starts at the file's folder."""
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value:
        raise ValueError("it should be a path in quotes")
    try:
        path = Path(value).expanduser()
    except RuntimeError as error:
        raise ValueError("its ~ names no home folder") from error
    return (info.context or Path()) / path


def _model(value: object, info: ValidationInfo) -> Path | str:
    """A path as above; or, as it is, what has the form of a name: `owner/name:QUANT` on the Hub, or of models.toml."""
    if isinstance(value, str) and _NAME.fullmatch(value) and not value.lower().endswith(".gguf"):
        return value
    return _model_path(value, info)


def _from_list(value: object) -> object:
    """TOML has lists only; what is frozen holds tuples."""
    return tuple(value) if isinstance(value, list) else value


def _from_list_or_commas(value: object) -> object:
    """The same, of what the environment can only say in one text."""
    return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else _from_list(value)


# Spelled out, since settings lie below the layers that define them; tests hold them to the originals.
_Mode = Literal["auto", "draft", "lookup", "plain"]
_KvType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]
_Ctx = Annotated[int, Field(ge=16, le=2**31 - 1)]
_Ceiling = Annotated[int, Field(ge=0, le=32)]
_Ngram = Annotated[int, Field(ge=1, le=16)]
_Threads = Annotated[int, Field(ge=1, le=512)]
_GpuLayers = Annotated[int, Field(ge=-1, le=2**31 - 1)]
_ModelPath = Annotated[Path, BeforeValidator(_model_path)]
_Model = Annotated[Path | str, BeforeValidator(_model)]
_Text = Annotated[str, Field(min_length=1, max_length=200)]
_Texts = Annotated[tuple[_Text, ...], BeforeValidator(_from_list_or_commas)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class PairEntry(_Section):
    """A target and, maybe, its draft model. What is None here falls back to the setting of that name in `Settings`."""

    target: _Model
    draft: _Model | None = None
    num_speculative_tokens: _Ceiling | None = None
    ctx: _Ctx | None = None
    gpu_layers: _GpuLayers | None = None
    draft_gpu_layers: _GpuLayers | None = None
    kv_type: _KvType | None = None
    draft_kv_type: _KvType | None = None


class ChatSettings(_Section):
    """How a chat starts."""

    system: str | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None


class SamplingSettings(_Section):
    """Defaults of `SamplingParams`, by its names and bounds; None leaves its own default.

    Logit bias, grammar and JSON schema belong to one request and cannot be set here.
    """

    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    dynatemp_range: Annotated[float, Field(ge=0, le=100)] | None = None
    dynatemp_exponent: Annotated[float, Field(ge=0, le=100)] | None = None
    top_k: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    typical_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_n_sigma: Annotated[float, Field(ge=-1, le=100)] | None = None
    xtc_probability: Annotated[float, Field(ge=0, le=1)] | None = None
    xtc_threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    repeat_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = None
    repeat_last_n: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-100, le=100)] | None = None
    presence_penalty: Annotated[float, Field(ge=-100, le=100)] | None = None
    dry_multiplier: Annotated[float, Field(ge=0, le=100)] | None = None
    dry_base: Annotated[float, Field(ge=1, le=100)] | None = None
    dry_allowed_length: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    dry_penalty_last_n: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    dry_sequence_breakers: Annotated[tuple[str, ...], BeforeValidator(_from_list)] | None = None
    seed: Annotated[int, Field(ge=0, le=2**64 - 1)] | None = None

    def given(self) -> dict[str, Any]:
        """What was set, ready for `SamplingParams(**...)`."""
        return self.model_dump(exclude_none=True)


class ServeSettings(_Section):
    """What `localspec serve` is told. `alias` None: the model's own name. `timeout`: seconds a request, 0 for none."""

    host: _Text = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    parallel: Annotated[int, Field(ge=1, le=64)] = 4
    queue: Annotated[int, Field(ge=0, le=4096)] = 64
    alias: _Text | None = None
    timeout: Annotated[float, Field(ge=0, le=604800)] = 600
    acceptance_threshold: Annotated[float, Field(ge=0, le=1)] = 0.55
    cors_origins: _Texts = ()
    allowed_hosts: _Texts = ()
    api_key_file: _ModelPath | None = None


class Settings(_Section):
    """Everything that can be set.

    `pair` None: the caller chooses. `ctx` None: the target's own. `threads` None: one per physical core. `gpu_layers`
    and `draft_gpu_layers` -1: all layers of that model. `num_speculative_tokens` is the most that is drafted at once,
    and with `fixed_length` always; None: what suits the source of the draft. Prompt lookup matches n-grams of
    `lookup_min_ngram` to `lookup_max_ngram` tokens. `models_dir` is the folder of one's own models; None: `models` in
    the data folder.
    """

    pair: str | None = None
    pairs: dict[str, PairEntry] = {}
    mode: _Mode = "auto"
    num_speculative_tokens: _Ceiling | None = None
    fixed_length: bool = False
    lookup_min_ngram: _Ngram = 2
    lookup_max_ngram: _Ngram = 4
    ctx: _Ctx | None = None
    gpu_layers: _GpuLayers = -1
    draft_gpu_layers: _GpuLayers = -1
    kv_type: _KvType = "f16"
    draft_kv_type: _KvType = "f16"
    threads: _Threads | None = None
    models_dir: _ModelPath | None = None
    chat: ChatSettings = ChatSettings()
    sampling: SamplingSettings = SamplingSettings()
    serve: ServeSettings = ServeSettings()


class TunedSettings(_Section):
    """What `localspec tune` chooses, by the names in `Settings`: above the defaults, below all that a user says."""

    mode: _Mode
    num_speculative_tokens: _Ceiling | None
    fixed_length: bool
    lookup_min_ngram: _Ngram
    lookup_max_ngram: _Ngram
    kv_type: _KvType
    draft_kv_type: _KvType
    threads: _Threads | None

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if problem := _contradiction(self):
            raise ValueError(problem[0])
        return self


# Chosen with each other in mind: when a user says one of a group, the tuned values of the others go too. A length that
# suits drafts of always that many tokens is a poor ceiling for a mode that adapts.
CHOSEN_TOGETHER: Final = (
    frozenset({"mode", "fixed_length", "num_speculative_tokens"}),
    frozenset({"lookup_min_ngram", "lookup_max_ngram"}),
)


def load_settings(
    file: Path | None,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    *,
    pair: str | None = None,
) -> Settings:
    """Merge the layers; a later one wins, key by key. What the entry of `pair` says goes before the rest of the file.

    `file` None: there is none. Of `environ` only names with the prefix LOCALSPEC_ count, and empty values do not.
    `flags` go by the names of the settings ("ctx", "temperature" ...); None means: not given. `model_fields_set` of the
    result names what was set in some layer; what was tuned lies below all of them (`left_to`).

    Raises:
        ConfigError: a layer cannot be read, or holds an unknown key or a value that cannot be used, or two values
            contradict each other. The message names the layer, the key and the value; the hint names the nearest key.
    """
    merged: dict[str, Any] = {}
    if file is not None:
        _merge(merged, _checked(_from_file(file), f"{file}: ", ".".join, base=file.absolute().parent))
        entry = merged.get("pairs", {}).get(pair, {})
        _merge(merged, {key: value for key, value in entry.items() if key in Settings.model_fields})
    _merge(merged, _checked(_from_environment(environ), "", _variable, strict=False))
    _merge(merged, _checked(_from_flags(flags), "", _flag))
    settings = Settings.model_validate(merged)
    if problem := _contradiction(settings):
        raise ConfigError(problem[0], hint=problem[1])
    return settings


def left_to(tuned: TunedSettings, said: Collection[str]) -> dict[str, Any]:
    """The tuned settings that take effect for a user who has set those named in `said`."""
    layer = {key: value for key, value in tuned.model_dump().items() if key not in said}
    for group in CHOSEN_TOGETHER:
        if not group.isdisjoint(said):
            layer = {key: value for key, value in layer.items() if key not in group}
    return layer


def _contradiction(settings: Settings | TunedSettings) -> tuple[str, str] | None:
    """Values that are each possible and not together: what is wrong, and what to do."""
    if settings.fixed_length and settings.mode == "auto":
        return (
            "fixed_length is set and the mode is auto, which chooses the length of every draft.",
            "Set the mode to draft or lookup too, or leave fixed_length out.",
        )
    low, high = settings.lookup_min_ngram, settings.lookup_max_ngram
    if low > high:
        return (
            f"lookup_min_ngram is {low} and lookup_max_ngram is {high}; the first may not be the larger one.",
            "Set both, each from 1 to 16.",
        )
    return None


def _merge(below: dict[str, Any], above: Mapping[str, Any]) -> None:
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            _merge(below[key], value)
        else:
            below[key] = value


_Spell = Callable[[Sequence[str]], str]
"""Writes the keys of a setting as the user wrote them in that layer."""


def _variable(keys: Sequence[str]) -> str:
    return ENVIRONMENT_PREFIX + "_".join(keys).upper()


def _flag(keys: Sequence[str]) -> str:
    return "--" + keys[-1].replace("_", "-")


def _checked(
    layer: dict[str, Any], source: str, spell: _Spell, *, strict: bool = True, base: Path | None = None
) -> dict[str, Any]:
    """A layer by itself, with values converted; only what it sets."""
    try:
        return Settings.model_validate(layer, strict=strict, context=base).model_dump(exclude_unset=True)
    except ValidationError as error:
        problem: Any = error.errors(include_url=False)[0]
        keys = [str(key) for key in problem["loc"]]
        if problem["type"] == "extra_forbidden":
            raise _unknown(source + spell(keys), keys[-1], _known_keys(keys[:-1])) from None
        raise _unusable(source + spell(keys), problem) from None


def _unusable(setting: str, problem: Any) -> ConfigError:
    if problem["type"] == "missing":
        return ConfigError(f"{setting} is missing.", hint="Every pair needs a target: the path of a GGUF file.")
    if problem["type"] in ("model_type", "dict_type"):
        reason = "it should be a section with settings of its own"
    else:
        reason = problem["msg"].removeprefix("Value error, ").replace("Input should", "it should")
    return ConfigError(
        f"{setting} is {shown_value(problem['input'])}; {reason}.", hint="Correct it, or take it out for the default."
    )


def _unknown(setting: str, name: str, known: Sequence[str]) -> ConfigError:
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"Did you mean {nearest[0]}?" if nearest else f"Known are: {', '.join(known)}."
    return ConfigError(f"{setting} is not a setting.", hint=hint)


def _known_keys(section: Sequence[str]) -> list[str]:
    models: Any = {"pairs": PairEntry, "chat": ChatSettings, "sampling": SamplingSettings, "serve": ServeSettings}
    return list((models[section[0]] if section else Settings).model_fields)


def _from_file(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_regular(file, _MAX_FILE_BYTES).decode("utf-8-sig"))  # some editors put a mark first
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}.", hint="Name a readable TOML file.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: it is not UTF-8 text.", hint="Save it as UTF-8.") from error
    except ValueError as error:  # TOMLDecodeError, or a number with thousands of digits
        raise ConfigError(f"{file}: {error}.", hint="Text values need quotes; sections look like [chat].") from error
    except RecursionError as error:
        raise ConfigError(f"{file}: it is nested too deeply.", hint="Settings need no nesting of that kind.") from error


def _settings() -> list[tuple[str, ...]]:
    """The keys of every setting that has one value: ("ctx",), ("chat", "system") ..."""
    settings: list[tuple[str, ...]] = []
    for key, field in Settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            settings += [(key, inner) for inner in field.annotation.model_fields]
        elif get_origin(field.annotation) is not dict:
            settings.append((key,))
    return settings


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    settings = {_variable(keys): keys for keys in _settings()}
    layer: dict[str, Any] = {}
    for variable, value in environ.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _NO_SETTINGS or not value:
            continue
        if variable not in settings:
            raise _unknown(variable, variable, list(settings))
        _place(layer, settings[variable], value)
    return layer


def _from_flags(flags: Mapping[str, object]) -> dict[str, Any]:
    settings = {keys[-1]: keys for keys in _settings()}
    layer: dict[str, Any] = {}
    for name, value in flags.items():
        if value is None:
            continue
        if name not in settings:
            raise _unknown(_flag([name]), name, list(settings))
        _place(layer, settings[name], value.value if isinstance(value, Enum) else value)
    return layer


def _place(layer: dict[str, Any], keys: tuple[str, ...], value: object) -> None:
    for key in keys[:-1]:
        layer = layer.setdefault(key, {})
    layer[keys[-1]] = value
