"""The commands that serve a pair with llama-server, vLLM and SGLang, and what cannot be carried over to each.

Flags are those of `llama-server --help` (llama.cpp b11434, and how it spelled them before), and of the documentation
of vLLM (engine arguments, `--speculative-config`) and of SGLang (server arguments, speculative decoding).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from localspec.engine.requests import KvType, Mode, PairSpec
from localspec.errors import UsageError

__all__ = ["Exported", "Plan", "Repositories", "llama_server", "sglang", "vllm"]

# There lengths do not adapt, so our ceilings would draft too much. What vLLM's documentation begins with.
_USUAL_DRAFT: Final = 5
_USUAL_COPY: Final = 10
_ALL_LAYERS: Final = 999  # "all", in the words of every build
# Names of samplers' settings that llama-server spells otherwise.
_SAMPLING_FLAGS: Final = {
    "temperature": "--temp",
    "typical_p": "--typical",
    "top_n_sigma": "--top-nsigma",
    "dynatemp_exponent": "--dynatemp-exp",
    "dry_sequence_breakers": "--dry-sequence-breaker",
}
_WINDOWS: Final = ("repeat_last_n", "dry_penalty_last_n")
_WHOLE_CONTEXT: Final = -1
_MAX_LLAMA_SEED: Final = 2**32 - 1
# What vLLM takes as defaults for requests that do not say, by its names.
_VLLM_DEFAULTS: Final = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repeat_penalty": "repetition_penalty",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be served: the pair with its context, and how. `n_draft` None: nobody has said.

    `sampling`: the defaults that were set, by the names of `SamplingParams`. `asks_for_key`: the key itself stays in
    LOCALSPEC_API_KEY.
    """

    pair: PairSpec
    n_ctx: int
    mode: Mode
    n_draft: int | None
    host: str
    port: int
    n_parallel: int
    alias: str | None
    asks_for_key: bool = False
    key_file: Path | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)

    @property
    def uses_draft(self) -> bool:
        """Whether a draft model proposes."""
        return self.pair.draft is not None and self.mode in {Mode.AUTO, Mode.DRAFT}

    @property
    def uses_copies(self) -> bool:
        """Whether text is copied from what was written so far; of engines that do one of the two, with `uses_draft`."""
        return self.mode in {Mode.AUTO, Mode.LOOKUP}


@dataclass(frozen=True, slots=True)
class Exported:
    """A command, the variables that it needs by what a shell puts there, and what a person should know of it."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    notes: tuple[str, ...]

    @property
    def shell(self) -> str:
        """For a POSIX shell. A word that is a variable's name after $ stays one."""
        words = [f"{name}={_word(value)}" for name, value in self.environment.items()]
        return " ".join([*words, *map(_word, self.command)])


_KEY: Final = "$LOCALSPEC_API_KEY"


def _word(text: str) -> str:
    return f'"{text}"' if text == _KEY else shlex.quote(text)


@dataclass(frozen=True, slots=True)
class Repositories:
    """The models in Hugging Face's own form: repositories on the Hub, or folders."""

    target: str
    draft: str | None


# --- llama-server -----------------------------------------------------------------------------------------------------


def llama_server(plan: Plan, help_text: str) -> Exported:
    """For llama.cpp's own server. `help_text` is what the installed one says with --help; "": take a current one."""
    target, draft = plan.pair.target, plan.pair.draft if plan.uses_draft else None
    notes: list[str] = []
    words: list[str | Path | int] = ["llama-server", "--model", target.path]
    words += ["--ctx-size", plan.n_ctx, "--parallel", plan.n_parallel]
    if _has(help_text, "--kv-unified"):
        words += ["--kv-unified"]
    elif plan.n_parallel > 1:
        notes.append("The llama-server here divides the context among its slots: a newer one has --kv-unified.")
    words += ["--gpu-layers", _layers(target.n_gpu_layers)]
    words += ["--cache-type-k", target.kv_type.value, "--cache-type-v", target.kv_type.value]
    if plan.pair.n_threads is not None:
        words += ["--threads", plan.pair.n_threads]
    if draft is not None:
        words += ["--model-draft", draft.path, "--gpu-layers-draft", _layers(draft.n_gpu_layers)]
        if _has(help_text, "--cache-type-k-draft"):
            words += ["--cache-type-k-draft", draft.kv_type.value, "--cache-type-v-draft", draft.kv_type.value]
    words += _llama_speculation(plan, help_text, notes)
    words += [*_llama_sampling(plan, notes), "--host", plan.host, "--port", plan.port]
    if plan.alias is not None:
        words += ["--alias", plan.alias]
    if plan.key_file is not None:
        words += ["--api-key-file", plan.key_file]
    if target.unpacked_from is not None and not target.path.exists():
        notes.append(f"{target.path} is written when localspec loads the pair for the first time: do that before.")
    environment = {"LLAMA_API_KEY": _KEY} if plan.asks_for_key else {}
    return Exported(tuple(map(str, words)), environment, tuple(notes))


def _has(help_text: str, word: str) -> bool:
    """Whether the llama-server here knows it, or a current one would."""
    return not help_text or word in help_text


def _llama_speculation(plan: Plan, help_text: str, notes: list[str]) -> list[str | int]:
    """Its flags were named anew: drafts by a model are older than --spec-type, which knew only copies at first."""
    kinds: list[str] = []
    words: list[str | int] = []
    if plan.uses_draft:
        if _has(help_text, "draft-simple"):
            kinds.append("draft-simple")
        is_current = _has(help_text, "--spec-draft-n-max")
        words += ["--spec-draft-n-max" if is_current else "--draft-max", _n_draft(plan, notes)]
        if "--spec-draft-sampling" in help_text:
            words += ["--spec-draft-sampling", "probabilistic"]
        else:
            notes.append(
                "llama-server compares drafts with what it samples itself, so at a temperature fewer are accepted; a "
                "build that has --spec-draft-sampling probabilistic verifies them by rejection sampling as localspec."
            )
    if plan.uses_copies and not _has(help_text, "ngram-simple"):
        notes.append("The llama-server here copies nothing from the text so far: a newer one has --spec-type.")
    elif plan.uses_copies:
        kinds.append("ngram-simple")
        size = "--spec-ngram-simple-size" if _has(help_text, "--spec-ngram-simple-size-n") else "--spec-ngram-size"
        n_copied = plan.n_draft if plan.n_draft is not None and not plan.uses_draft else _USUAL_COPY
        words += [f"{size}-n", plan.pair.lookup_max_ngram, f"{size}-m", n_copied]
        if plan.pair.lookup_min_ngram != plan.pair.lookup_max_ngram:
            notes.append(
                f"It looks for n-grams of one length: {plan.pair.lookup_max_ngram} tokens, and none down to "
                f"{plan.pair.lookup_min_ngram}."
            )
    return ["--spec-type", ",".join(kinds), *words] if kinds else words


def _llama_sampling(plan: Plan, notes: list[str]) -> list[str]:
    settings = dict(plan.sampling)
    if settings.get("dry_multiplier"):
        settings.setdefault("dry_penalty_last_n", _WHOLE_CONTEXT)  # its own default is a few tokens
    if settings.get("seed", 0) > _MAX_LLAMA_SEED:
        notes.append(f"The seed stays behind: llama-server's go up to {_MAX_LLAMA_SEED}.")
        del settings["seed"]
    words: list[str] = []
    for name, value in settings.items():
        if name == "logit_bias":
            words += [word for token, bias in value for word in ("--logit-bias", f"{token}{bias:+}")]
            continue
        if name in _WINDOWS and value == _WHOLE_CONTEXT:
            value = plan.n_ctx  # noqa: PLW2901 - newer builds refuse -1
        flag = _SAMPLING_FLAGS.get(name, "--" + name.replace("_", "-"))
        for each in (value or ("none",)) if isinstance(value, tuple) else (value,):
            words += [flag, str(each)]
    return words


def _layers(n_layers: int) -> int:
    return _ALL_LAYERS if n_layers < 0 else n_layers


# --- vLLM and SGLang --------------------------------------------------------------------------------------------------


def vllm(plan: Plan, repositories: Repositories) -> Exported:
    """For `vllm serve`."""
    defaults = {new: plan.sampling[name] for name, new in _VLLM_DEFAULTS.items() if name in plan.sampling}
    notes = _notes_of_other_weights(plan, "vLLM", carried=_VLLM_DEFAULTS)
    words: list[str | int] = ["vllm", "serve", repositories.target, "--max-model-len", plan.n_ctx]
    words += ["--max-num-seqs", plan.n_parallel, "--host", plan.host, "--port", plan.port]
    if plan.alias is not None:
        words += ["--served-model-name", plan.alias]
    speculation: dict[str, Any] | None = None
    if plan.uses_draft:
        draft = _required_draft(repositories)
        speculation = {"method": "draft_model", "model": draft, "num_speculative_tokens": _n_draft(plan, notes)}
        notes.append(
            "vLLM drafts greedily, so at a temperature fewer tokens are accepted; where --speculative-config knows "
            '"draft_sample_method": "probabilistic", that drafts as localspec, and takes more memory.'
        )
    elif plan.uses_copies:
        speculation = {
            "method": "ngram",
            "num_speculative_tokens": _n_draft(plan, notes),
            "prompt_lookup_min": plan.pair.lookup_min_ngram,
            "prompt_lookup_max": plan.pair.lookup_max_ngram,
        }
    if speculation is not None:
        words += ["--speculative-config", json.dumps(speculation)]
    if defaults:
        words += ["--override-generation-config", json.dumps(defaults)]
    notes.append(
        "The GGUF files are not used. vLLM reads some by its plugin vllm-gguf-plugin, a model in a single file, with "
        "the repository as its --tokenizer, and calls that experimental."
    )
    environment = {"VLLM_API_KEY": _KEY} if plan.asks_for_key else {}
    return Exported(tuple(map(str, words)), environment, tuple(notes))


def sglang(plan: Plan, repositories: Repositories) -> Exported:
    """For `python3 -m sglang.launch_server`."""
    notes = _notes_of_other_weights(plan, "SGLang")
    words: list[str | int] = ["python3", "-m", "sglang.launch_server", "--model-path", repositories.target]
    words += ["--context-length", plan.n_ctx, "--max-running-requests", plan.n_parallel]
    words += ["--host", plan.host, "--port", plan.port]
    if plan.alias is not None:
        words += ["--served-model-name", plan.alias]
    if plan.uses_draft:
        n_draft = _n_draft(plan, notes)
        # A chain, not a tree: as many to verify as were drafted, and the token before them.
        words += ["--speculative-algorithm", "STANDALONE"]
        words += ["--speculative-draft-model-path", _required_draft(repositories)]
        words += ["--speculative-num-steps", n_draft, "--speculative-eagle-topk", 1]
        words += ["--speculative-num-draft-tokens", n_draft + 1]
    elif plan.uses_copies:
        words += ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", _n_draft(plan, notes)]
        notes.append("SGLang's NGRAM needs CUDA; it finds text of all requests again, by a tree instead of n-grams.")
    if plan.asks_for_key:
        words += ["--api-key", _KEY]
        notes.append("SGLang takes the key as a flag, which others on that machine can see, or in its --config FILE.")
    return Exported(tuple(map(str, words)), {}, tuple(notes))


def _notes_of_other_weights(plan: Plan, engine: str, *, carried: Collection[str] = ()) -> list[str]:
    """What neither of the two can take from a pair of GGUF files. `carried`: sampling defaults that it does take."""
    notes = [
        f"{engine} serves the repositories' own weights, which take more memory than these files and answer a little "
        "otherwise than their quantizations."
    ]
    models = [plan.pair.target, *([plan.pair.draft] if plan.pair.draft and plan.uses_draft else [])]
    odd = sorted({each.kv_type.value for each in models} - {KvType.F16.value, KvType.BF16.value})
    if odd:
        notes.append(f"KV caches of type {' and '.join(odd)} stay behind: {engine} has others, by --kv-cache-dtype.")
    if any(each.n_gpu_layers >= 0 for each in models):
        notes.append(f"No layers stay on the CPU: {engine} wants the whole model on GPUs.")
    if plan.pair.n_threads is not None:
        notes.append(f"The number of CPU threads is left to {engine}.")
    if plan.mode is Mode.AUTO and plan.uses_draft:
        notes.append(f"Nothing is copied from the text so far: {engine} drafts by one source, here the draft model.")
    if left := [name for name in plan.sampling if name not in carried]:
        notes.append(f"Sampling defaults stay behind, and clients have to send them: {', '.join(left)}.")
    notes.append(
        "Where a request says nothing of sampling, the repository's generation_config.json decides, not llama.cpp's "
        "defaults."
    )
    if plan.key_file is not None:
        notes.append("The file of API keys stays behind: put one of them into LOCALSPEC_API_KEY.")
    return notes


def _n_draft(plan: Plan, notes: list[str]) -> int:
    """How many tokens are drafted at once, always."""
    if plan.n_draft is not None:
        return plan.n_draft
    usual = _USUAL_DRAFT if plan.uses_draft else _USUAL_COPY
    notes.append(f"Lengths do not adapt there: {usual} tokens are drafted at once; --num-speculative-tokens sets it.")
    return usual


def _required_draft(repositories: Repositories) -> str:
    if repositories.draft is None:
        raise UsageError("The draft model has no repository.", hint="Name it: --hf-draft OWNER/NAME.")
    return repositories.draft
