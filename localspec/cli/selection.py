"""From flags and settings to what the engine loads and how it samples."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from localspec.cli.fetching import local_pair
from localspec.cli.options import PairOptions, SamplingOptions
from localspec.config import Settings, load_settings
from localspec.engine.requests import KvType, ModelSpec, PairSpec, SamplingParams
from localspec.errors import ConfigError, UsageError
from localspec.models.demo import demo_files
from localspec.pairing.tuned import Tuned, tuned
from localspec.paths import config_file

DEMO: Final = "demo"
# The flags that the configuration knows too, by the same names.
_SHARED_FLAGS: Final = (
    "pair",
    "ctx",
    "gpu_layers",
    "draft_gpu_layers",
    "kv_type",
    "draft_kv_type",
    "threads",
    "lookup_min_ngram",
    "lookup_max_ngram",
)
_MAX_GRAMMAR_FILE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Selection:
    """The pair to load, the sampling to use, and what to tell the user: lines, or ""."""

    settings: Settings
    pair: PairSpec
    sampling: SamplingParams
    notice: str


def select(
    config: Path | None,
    pair: PairOptions,
    sampling: SamplingOptions,
    other_flags: Mapping[str, Any],
    *,
    uses_profile: bool,
) -> Selection:
    """Merge everything that was given and, where it `uses_profile`, what was tuned.

    Raises:
        UsageError: flags that contradict each other, or a value that cannot be used.
        ModelFileError: the demo pair is asked for, and not installed.
        HubError, ModelError, DoesNotFitError: a model has to be downloaded, and that fails or is refused.
    """
    config = config or _existing_config_file()
    numbers, texts = _sampling_flags(sampling)
    shared = {name: getattr(pair, name) for name in _SHARED_FLAGS}
    flags = {**shared, **numbers, **other_flags}
    name = _pair_name(pair, load_settings(config, os.environ, flags), config or config_file())
    settings = load_settings(config, os.environ, flags, pair=name)
    params = SamplingParams(**{**settings.sampling.given(), **texts})
    files, notice = _files(name, pair, settings)
    found = tuned(settings, files.target, files.draft) if uses_profile else Tuned(settings, files.draft)
    spec, of_fit = _fitted(_spec(replace(files, draft=found.draft), found.settings), found.settings)
    of_profile = f"{found.used}; --no-profile ignores them." if found.used else found.complaint
    return Selection(found.settings, spec, params, "\n".join(filter(None, [notice, of_profile, of_fit])))


def select_without_pair(
    config: Path | None, pair: PairOptions, sampling: SamplingOptions, other_flags: Mapping[str, Any]
) -> tuple[Settings, SamplingParams]:
    """What holds for any pair: neither what an entry of the configuration says of one, nor what was tuned for one.

    Raises:
        UsageError: a value that cannot be used.
    """
    numbers, texts = _sampling_flags(sampling)
    shared = {name: getattr(pair, name) for name in _SHARED_FLAGS}
    settings = load_settings(config or _existing_config_file(), os.environ, {**shared, **numbers, **other_flags})
    return settings, SamplingParams(**{**settings.sampling.given(), **texts})


def _existing_config_file() -> Path | None:
    try:
        return config_file() if config_file().exists() else None
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"The folder for the configuration cannot be used: {error}.", hint="Check HOME and LOCALSPEC_HOME."
        ) from error


def _pair_name(options: PairOptions, settings: Settings, file: Path) -> str | None:
    """The pair of the configuration, or "demo", that is asked for; None: files, or nothing at all."""
    given = [name for name in ("demo", "pair", "target") if getattr(options, name)]
    if len(given) > 1:
        raise UsageError(f"--{given[0]} and --{given[1]} both choose the target.", hint="Give one of them.")
    if options.draft is not None and options.target is None:
        raise UsageError("--draft needs --target.", hint="A draft model drafts for one target: name both files.")
    if options.target is not None:
        return None
    name = DEMO if options.demo else settings.pair
    if name in {None, DEMO} or name in settings.pairs:
        return name
    raise UsageError(
        f"There is no pair named {name}; the configuration has: {', '.join(settings.pairs) or 'none yet'}.",
        hint=f"Add [pairs.{name}] to {file}, or name the files with --target and --draft.",
    )


@dataclass(frozen=True, slots=True)
class _Files:
    """What a pair is made of; a missing target is written from `unpacked_from`, if there is that."""

    name: str
    target: Path
    draft: Path | None
    unpacked_from: Path | None = None


def _files(name: str | None, options: PairOptions, settings: Settings) -> tuple[_Files, str]:
    """Which files to load, and what to tell the user about the choice."""
    if options.target is not None:
        target, draft = local_pair(options.target, options.draft, settings.models_dir)
        return _Files(target.stem, target, draft), ""
    if name in settings.pairs:
        entry = settings.pairs[name]
        return _Files(name, *local_pair(entry.target, entry.draft, settings.models_dir)), ""
    demo = demo_files()
    notice = (
        "" if name == DEMO else "No pair was chosen: this is the demo pair, SmolLM2-135M. Name yours with --target."
    )
    return _Files(DEMO, demo.target, demo.draft, unpacked_from=demo.draft), notice


def _spec(files: _Files, settings: Settings) -> PairSpec:
    draft = files.draft
    return PairSpec(
        files.name,
        ModelSpec(files.target, settings.gpu_layers, KvType(settings.kv_type), files.unpacked_from),
        None if draft is None else ModelSpec(draft, settings.draft_gpu_layers, KvType(settings.draft_kv_type)),
        n_ctx=settings.ctx,
        n_threads=settings.threads,
        lookup_min_ngram=settings.lookup_min_ngram,
        lookup_max_ngram=settings.lookup_max_ngram,
    )


def _fitted(spec: PairSpec, settings: Settings) -> tuple[PairSpec, str]:
    """As it fits the cards here, if there are some that this llama.cpp can use."""
    from localspec.memory import devices

    here = devices.machine()
    if not here.gpus:  # nor is what follows needed then
        return spec, ""
    from localspec.pairing.fitting import fitted
    from localspec.pairing.usable_cards import with_usable_cards

    return fitted(spec, with_usable_cards(here), settings.model_fields_set)


# --- sampling --------------------------------------------------------------------------------------------------------


def _sampling_flags(options: SamplingOptions) -> tuple[dict[str, object], dict[str, object]]:
    """Numbers, which the configuration may hold too, and the rest, which only flags can say."""
    values = asdict(options)
    breakers, biases = values.pop("dry_sequence_breakers"), values.pop("logit_bias")
    grammar, schema = values.pop("grammar"), values.pop("json_schema")
    texts: dict[str, object] = {}
    if values["seed"] == -1:
        texts["seed"] = values["seed"] = None  # drawn anew, whatever the configuration says
    if breakers:
        texts["dry_sequence_breakers"] = tuple(breakers)
    if biases:
        texts["logit_bias"] = tuple(_bias(text) for text in biases)
    if grammar is not None:
        texts["grammar"] = _read_text(grammar, "grammar")
    if schema is not None:
        texts["json_schema"] = _read_text(schema, "JSON schema")
    return values, texts


def _bias(text: str) -> tuple[int, float]:
    """One of llama.cpp's forms: 15043+1, 15043-1.5, 15043-inf."""
    parts = re.fullmatch(r"(\d+)([+-](?:inf|nan|\d+\.?\d*(?:e[+-]?\d+)?))", text, re.IGNORECASE)
    if parts is None:
        raise UsageError(
            f"--logit-bias is {text!r}; it should be a token id and a signed number.", hint="Such as 15043+1 or 2-inf."
        )
    return int(parts[1]), float(parts[2])


def _read_text(path: Path, what: str) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_GRAMMAR_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"The {what} {path} cannot be read: {error.strerror or error}.") from error
    if len(data) > _MAX_GRAMMAR_FILE_BYTES:
        raise UsageError(f"The {what} {path} is larger than {_MAX_GRAMMAR_FILE_BYTES} bytes.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"The {what} {path} is not UTF-8 text (byte {error.start}).") from error
