"""The options that several commands share: which pair, how to sample, how to reply.

Every default is None: the flag was not given, and the configuration decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from localspec.engine.requests import DEFAULT_NUM_SPECULATIVE_TOKENS, MAX_NUM_SPECULATIVE_TOKENS, KvType, Mode

_PAIR = "Which pair"
_SAMPLING = "Sampling (llama.cpp's names and defaults)"
_REPLY = "The reply"
_MAX_INT = 2**31 - 1
_MAX_GIB = 1_000_000
MAX_NGRAM = 16
CEILING_HELP = (
    f"Most tokens drafted at once ({DEFAULT_NUM_SPECULATIVE_TOKENS} from a draft model, "
    f"{MAX_NUM_SPECULATIVE_TOKENS} copied)."
)


# What `pair` and `plan` judge a pair for: types that nobody gives are chosen.
PlannedCtx: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--ctx",
        "--ctx-size",
        "-c",
        min=16,
        max=_MAX_INT,
        metavar="TOKENS",
        help="Context size; the target's own, at most 8192, by default.",
    ),
]
PlannedKvType: TypeAlias = Annotated[
    KvType | None,
    typer.Option("--kv-type", "-ctk", help="Type of the target's KV cache; by default f16, or q8_0 at need."),
]
PlannedDraftKvType: TypeAlias = Annotated[
    KvType | None, typer.Option("--draft-kv-type", "-ctkd", help="The same for the draft.")
]
PlannedGpuMemory: TypeAlias = Annotated[
    list[float] | None,
    typer.Option(
        "--gpu-memory",
        min=0,
        max=_MAX_GIB,
        metavar="GIB",
        help="For a card with so much memory, which need not be here; once for each card, 0 for none.",
    ),
]


@dataclass(frozen=True)
class PairOptions:
    """Which models to load, and how."""

    demo: Annotated[
        bool,
        typer.Option("--demo", help="The embedded pair, SmolLM2-135M: nothing to download.", rich_help_panel=_PAIR),
    ] = False
    pair: Annotated[
        str | None, typer.Option(metavar="NAME", help="A pair from the configuration file.", rich_help_panel=_PAIR)
    ] = None
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-m",
            metavar="MODEL",
            help="Target model: a GGUF file, owner/name-GGUF:QUANT on the Hub, or a name from models.toml.",
            rich_help_panel=_PAIR,
        ),
    ] = None
    draft: Annotated[
        str | None,
        typer.Option("--draft", "-md", metavar="MODEL", help="Draft model, likewise.", rich_help_panel=_PAIR),
    ] = None
    ctx: Annotated[
        int | None,
        typer.Option(
            "--ctx",
            "--ctx-size",
            "-c",
            min=16,
            max=_MAX_INT,
            metavar="TOKENS",
            help="Context size; the model's own, at most 8192, by default.",
            rich_help_panel=_PAIR,
        ),
    ] = None
    gpu_layers: Annotated[
        int | None,
        typer.Option(
            "--gpu-layers",
            "-ngl",
            min=-1,
            max=_MAX_INT,
            help="Layers of the target on the GPU; -1 (default) is all.",
            rich_help_panel=_PAIR,
        ),
    ] = None
    draft_gpu_layers: Annotated[
        int | None,
        typer.Option(
            "--draft-gpu-layers", "-ngld", min=-1, max=_MAX_INT, help="The same for the draft.", rich_help_panel=_PAIR
        ),
    ] = None
    kv_type: Annotated[
        KvType | None,
        typer.Option("--kv-type", "-ctk", help="Type of the target's KV cache (f16).", rich_help_panel=_PAIR),
    ] = None
    draft_kv_type: Annotated[
        KvType | None,
        typer.Option("--draft-kv-type", "-ctkd", help="Type of the draft's KV cache (f16).", rich_help_panel=_PAIR),
    ] = None
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            "-t",
            min=1,
            max=512,
            help="CPU threads; one per physical core by default.",
            rich_help_panel=_PAIR,
        ),
    ] = None
    lookup_min_ngram: Annotated[
        int | None,
        typer.Option(
            min=1, max=MAX_NGRAM, help="Fewest tokens that prompt lookup finds again (2).", rich_help_panel=_PAIR
        ),
    ] = None
    lookup_max_ngram: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_NGRAM, help="Most tokens that it tries to find (4).", rich_help_panel=_PAIR),
    ] = None


@dataclass(frozen=True)
class TunedOptions:
    """For commands that use what was tuned; the others measure, and say by flags what."""

    no_profile: Annotated[
        bool,
        typer.Option(
            "--no-profile", help="Ignore the settings that `localspec tune` stored for the pair.", rich_help_panel=_PAIR
        ),
    ] = False


@dataclass(frozen=True)
class SamplingOptions:
    """How tokens are sampled. Ranges are checked by `SamplingParams`, which names field, value and range."""

    temperature: Annotated[
        float | None,
        typer.Option("--temperature", "--temp", help="0 is greedy (0.8).", rich_help_panel=_SAMPLING),
    ] = None
    top_k: Annotated[int | None, typer.Option(help="0 is off (40).", rich_help_panel=_SAMPLING)] = None
    top_p: Annotated[float | None, typer.Option(help="1 is off (0.95).", rich_help_panel=_SAMPLING)] = None
    min_p: Annotated[float | None, typer.Option(help="0 is off (0.05).", rich_help_panel=_SAMPLING)] = None
    typical_p: Annotated[float | None, typer.Option("--typical", help="1 is off (1).", rich_help_panel=_SAMPLING)] = (
        None
    )
    top_n_sigma: Annotated[
        float | None, typer.Option("--top-nsigma", help="-1 is off (-1).", rich_help_panel=_SAMPLING)
    ] = None
    xtc_probability: Annotated[float | None, typer.Option(help="0 is off (0).", rich_help_panel=_SAMPLING)] = None
    xtc_threshold: Annotated[float | None, typer.Option(help="(0.1)", rich_help_panel=_SAMPLING)] = None
    dynatemp_range: Annotated[float | None, typer.Option(help="0 is off (0).", rich_help_panel=_SAMPLING)] = None
    dynatemp_exponent: Annotated[
        float | None, typer.Option("--dynatemp-exp", help="(1)", rich_help_panel=_SAMPLING)
    ] = None
    repeat_penalty: Annotated[float | None, typer.Option(help="1 is off (1).", rich_help_panel=_SAMPLING)] = None
    repeat_last_n: Annotated[
        int | None, typer.Option(help="Tokens that penalties look back; -1 is all (64).", rich_help_panel=_SAMPLING)
    ] = None
    frequency_penalty: Annotated[float | None, typer.Option(help="0 is off (0).", rich_help_panel=_SAMPLING)] = None
    presence_penalty: Annotated[float | None, typer.Option(help="0 is off (0).", rich_help_panel=_SAMPLING)] = None
    dry_multiplier: Annotated[float | None, typer.Option(help="0 is off (0).", rich_help_panel=_SAMPLING)] = None
    dry_base: Annotated[float | None, typer.Option(help="(1.75)", rich_help_panel=_SAMPLING)] = None
    dry_allowed_length: Annotated[int | None, typer.Option(help="(2)", rich_help_panel=_SAMPLING)] = None
    dry_penalty_last_n: Annotated[int | None, typer.Option(help="-1 is all (-1).", rich_help_panel=_SAMPLING)] = None
    dry_sequence_breakers: Annotated[
        list[str] | None,
        typer.Option("--dry-sequence-breaker", help="May be given several times.", rich_help_panel=_SAMPLING),
    ] = None
    logit_bias: Annotated[
        list[str] | None,
        typer.Option(
            "--logit-bias",
            "-l",
            metavar="ID(+|-)BIAS",
            help="Such as 15043+1; may be given several times.",
            rich_help_panel=_SAMPLING,
        ),
    ] = None
    grammar: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="GBNF grammar that the reply follows.", rich_help_panel=_SAMPLING),
    ] = None
    json_schema: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="JSON schema that the reply follows.", rich_help_panel=_SAMPLING),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            "-s",
            help="-1 draws one (-1). It repeats a reply where lengths are fixed.",
            rich_help_panel=_SAMPLING,
        ),
    ] = None


@dataclass(frozen=True)
class SpeculationOptions:
    """How replies are accelerated. Fields go by the names of the settings."""

    mode: Annotated[
        Mode | None,
        typer.Option(
            help="Where drafts come from; auto chooses at each step between the draft model and copies from the text.",
            rich_help_panel=_REPLY,
        ),
    ] = None
    num_speculative_tokens: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_NUM_SPECULATIVE_TOKENS,
            help=CEILING_HELP,
            rich_help_panel=_REPLY,
        ),
    ] = None
    fixed_length: Annotated[
        bool | None,
        typer.Option(
            "--fixed-length/--adaptive-length",
            help="Always draft that many; not in mode auto.",
            show_default=False,
            rich_help_panel=_REPLY,
        ),
    ] = None


@dataclass(frozen=True)
class ReplyOptions(SpeculationOptions):
    """How replies are made. Fields go by the names of the settings."""

    system: Annotated[str | None, typer.Option(help="System prompt.", rich_help_panel=_REPLY)] = None
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", "-n", min=1, max=_MAX_INT, help="Most tokens per reply.", rich_help_panel=_REPLY),
    ] = None
