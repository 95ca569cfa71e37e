"""From flags and settings to what the engine loads and how it samples."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from localspec.cli.options import PairOptions, SamplingOptions
from localspec.config import PairEntry, Settings, load_settings
from localspec.engine.requests import DEFAULT_NUM_SPECULATIVE_TOKENS, KvType, ModelSpec, PairSpec, SamplingParams
from localspec.errors import UsageError
from localspec.models.demo import DEMO_NUM_SPECULATIVE_TOKENS, demo_files
from localspec.paths import config_file

DEMO: Final = "demo"
_MAX_GRAMMAR_FILE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Selection:
    """The pair to load, the sampling to use, and a line to tell the user (or "")."""

    settings: Settings
    pair: PairSpec
    sampling: SamplingParams
    num_speculative_tokens: int
    notice: str


def select(
    config: Path | None, pair: PairOptions, sampling: SamplingOptions, other_flags: Mapping[str, Any]
) -> Selection:
    """Merge everything that was given.

    Raises:
        UsageError: flags that contradict each other, or a value that cannot be used.
        ModelFileError: the demo pair is asked for, and not installed.
    """
    if config is None and config_file().exists():
        config = config_file()
    numbers, texts = _sampling_flags(sampling)
    shared = {
        name: getattr(pair, name) for name in ("pair", "ctx", "gpu_layers", "kv_type", "draft_kv_type", "threads")
    }
    settings = load_settings(config, os.environ, {**shared, **numbers, **other_flags})
    params = SamplingParams(**{**settings.sampling.given(), **texts})
    spec, ceiling_of_pair, notice = _pair_spec(pair, settings)
    ceiling = _first_given(
        other_flags.get("num_speculative_tokens"),
        ceiling_of_pair,
        settings.num_speculative_tokens,
        DEFAULT_NUM_SPECULATIVE_TOKENS,
    )
    return Selection(settings, spec, params, ceiling, notice)


def _pair_spec(options: PairOptions, settings: Settings) -> tuple[PairSpec, int | None, str]:
    """The pair, its own ceiling if it has one, and what to tell the user."""
    given = [name for name in ("demo", "pair", "target") if getattr(options, name)]
    if len(given) > 1:
        raise UsageError(f"--{given[0]} and --{given[1]} both choose the target.", hint="Give one of them.")
    if options.draft is not None and options.target is None:
        raise UsageError("--draft needs --target.", hint="A draft model drafts for one target: name both files.")
    if options.target is not None:
        entry = PairEntry(target=options.target, draft=options.draft)
        return _from_entry(options.target.stem, entry, options, settings), None, ""
    name = DEMO if options.demo else settings.pair
    if name in settings.pairs:
        entry = settings.pairs[name]
        return _from_entry(name, entry, options, settings), entry.num_speculative_tokens, ""
    if name not in {None, DEMO}:
        known = ", ".join(settings.pairs) or "none yet"
        raise UsageError(
            f"There is no pair named {name}; the configuration has: {known}.",
            hint=f"Add [pairs.{name}] to {config_file()}, or name the files with --target and --draft.",
        )
    files = demo_files()
    target = ModelSpec(
        files.target, _gpu_layers(options, settings, None), KvType(settings.kv_type), unpacked_from=files.draft
    )
    draft = ModelSpec(files.draft, _draft_gpu_layers(options, settings, None), KvType(settings.draft_kv_type))
    notice = (
        "" if name == DEMO else "No pair was chosen: this is the demo pair, SmolLM2-135M. Name yours with --target."
    )
    # What the user set in general goes before what the demo pair would like.
    ceiling = None if settings.num_speculative_tokens is not None else DEMO_NUM_SPECULATIVE_TOKENS
    return PairSpec(DEMO, target, draft, settings.ctx, settings.threads), ceiling, notice


def _from_entry(name: str, entry: PairEntry, options: PairOptions, settings: Settings) -> PairSpec:
    """Flags go before what the pair's entry says, which goes before the general settings."""

    def kv_type(flag: KvType | None, of_pair: str | None, general: str) -> KvType:
        return flag or KvType(of_pair or general)

    target = ModelSpec(
        entry.target,
        _gpu_layers(options, settings, entry.gpu_layers),
        kv_type(options.kv_type, entry.kv_type, settings.kv_type),
    )
    draft = (
        entry.draft
        if entry.draft is None
        else ModelSpec(
            entry.draft,
            _draft_gpu_layers(options, settings, entry.draft_gpu_layers),
            kv_type(options.draft_kv_type, entry.draft_kv_type, settings.draft_kv_type),
        )
    )
    return PairSpec(name, target, draft, options.ctx or entry.ctx or settings.ctx, settings.threads)


def _gpu_layers(options: PairOptions, settings: Settings, of_pair: int | None) -> int:
    return _first_given(options.gpu_layers, of_pair, settings.gpu_layers)


def _draft_gpu_layers(options: PairOptions, settings: Settings, of_pair: int | None) -> int:
    return _first_given(options.draft_gpu_layers, of_pair, settings.draft_gpu_layers)


def _first_given(*values: int | None) -> int:
    return next(value for value in values if value is not None)


# --- sampling --------------------------------------------------------------------------------------------------------


def _sampling_flags(options: SamplingOptions) -> tuple[dict[str, object], dict[str, object]]:
    """Numbers, which the configuration may hold too, and the rest, which only flags can say."""
    values = asdict(options)
    if values["seed"] == -1:
        values["seed"] = None
    breakers, biases = values.pop("dry_sequence_breakers"), values.pop("logit_bias")
    grammar, schema = values.pop("grammar"), values.pop("json_schema")
    texts: dict[str, object] = {}
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
    sign = max(text.find("+"), text.find("-"))
    try:
        return int(text[:sign]), float(text[sign:])
    except ValueError as error:
        raise UsageError(
            f"--logit-bias is {text!r}; it should be a token id and a signed number.", hint="Such as 15043+1 or 2-inf."
        ) from error


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
