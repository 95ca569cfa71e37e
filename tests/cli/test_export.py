"""`localspec export`: commands for other engines, as a shell would take them apart, and what is said beside them."""

from __future__ import annotations

import json
import shlex
import stat
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from localspec.cli.export_commands import Plan, llama_server
from localspec.engine.requests import KvType, Mode, ModelSpec, PairSpec
from tests.cli.conftest import Localspec, run_localspec
from tests.native_fixtures import TinyModels

# Of what llama-server says with --help: today, when --spec-type was new, and before.
CURRENT = """
-kvu,  --kv-unified, -no-kvu, --no-kv-unified
--spec-draft-type-k, -ctkd, --cache-type-k-draft TYPE
--spec-draft-n-max N                    number of tokens to draft for speculative decoding (default: 3)
--spec-draft-sampling {greedy,probabilistic}
--spec-type none,draft-simple,draft-eagle3,draft-mtp,ngram-simple,ngram-map-k,ngram-mod
--spec-ngram-simple-size-n N            ngram size N for ngram-simple speculative decoding
--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max
--spec-ngram-size-n N                   the argument has been removed.
"""
OLDER = """
--kv-unified, -kvu
-ctkd, --cache-type-k-draft TYPE
--draft-max, --draft, --draft-n N       number of tokens to draft for speculative decoding (default: 16)
--spec-type [none|ngram-cache|ngram-simple|ngram-map-k|ngram-mod]
--spec-ngram-size-n N                   ngram size N for ngram-simple/ngram-map speculative decoding
"""
OLD = "--draft-max, --draft, --draft-n N       number of tokens to draft for speculative decoding (default: 16)"
REPOSITORIES = ["--hf-target", "Qwen/Qwen3-8B", "--hf-draft", "Qwen/Qwen3-0.6B"]


def options_in(words: list[str]) -> dict[str, str]:
    """Flags and their values; of a flag without one, the next flag."""
    return {word: after for word, after in zip(words, [*words[1:], ""], strict=True) if word.startswith("--")}


def plan(**changes: Any) -> Plan:
    pair = PairSpec("x", ModelSpec(Path("/m/a b.gguf"), -1, KvType.Q8_0), ModelSpec(Path("/m/d.gguf"), 3), n_threads=5)
    values: dict[str, Any] = {
        "pair": pair,
        "n_ctx": 4096,
        "mode": Mode.DRAFT,
        "n_draft": None,
        "host": "127.0.0.1",
        "port": 8080,
        "n_parallel": 2,
        "alias": None,
    }
    return Plan(**(values | changes))


# --- llama-server -----------------------------------------------------------------------------------------------------


def test_llama_server_gets_the_whole_pair() -> None:
    exported = llama_server(
        plan(n_draft=7, alias="it's mine", sampling={"temperature": 0.2, "top_n_sigma": 1.5}), CURRENT
    )
    assert shlex.split(exported.shell) == list(exported.command)
    given = options_in(list(exported.command))
    assert given == {
        "--model": "/m/a b.gguf",
        "--ctx-size": "4096",
        "--parallel": "2",
        "--kv-unified": "--gpu-layers",
        "--gpu-layers": "999",
        "--cache-type-k": "q8_0",
        "--cache-type-v": "q8_0",
        "--threads": "5",
        "--model-draft": "/m/d.gguf",
        "--gpu-layers-draft": "3",
        "--cache-type-k-draft": "f16",
        "--cache-type-v-draft": "f16",
        "--spec-type": "draft-simple",
        "--spec-draft-n-max": "7",
        "--spec-draft-sampling": "probabilistic",
        "--temp": "0.2",
        "--top-nsigma": "1.5",
        "--host": "127.0.0.1",
        "--port": "8080",
        "--alias": "it's mine",
    }
    assert exported.notes == ()


@pytest.mark.parametrize(
    ("mode", "kinds"),
    [
        (Mode.AUTO, "draft-simple,ngram-simple"),
        (Mode.DRAFT, "draft-simple"),
        (Mode.LOOKUP, "ngram-simple"),
        (Mode.PLAIN, None),
    ],
)
def test_each_mode_has_its_kind_of_speculation(mode: Mode, kinds: str | None) -> None:
    given = options_in(list(llama_server(plan(mode=mode), CURRENT).command))
    assert given.get("--spec-type") == kinds
    assert ("--model-draft" in given) == (mode in {Mode.AUTO, Mode.DRAFT})
    assert ("--spec-ngram-simple-size-n" in given) == (mode in {Mode.AUTO, Mode.LOOKUP})


def test_an_old_llama_server_gets_the_flags_that_it_has() -> None:
    exported = llama_server(plan(mode=Mode.AUTO, n_draft=4), OLD)
    given = options_in(list(exported.command))
    assert given["--draft-max"] == "4"
    assert not [flag for flag in given if flag.startswith("--spec") or flag in {"--kv-unified", "--cache-type-k-draft"}]
    assert [note for note in exported.notes if "copies nothing" in note]
    assert [note for note in exported.notes if "divides the context" in note]


def test_flags_of_the_time_when_only_copies_had_a_type() -> None:
    given = options_in(list(llama_server(plan(mode=Mode.AUTO, n_draft=4), OLDER).command))
    spec = {flag: value for flag, value in given.items() if "spec" in flag or flag.startswith("--draft")}
    assert spec == {
        "--spec-type": "ngram-simple",
        "--draft-max": "4",
        "--spec-ngram-size-n": "4",
        "--spec-ngram-size-m": "10",
    }
    assert "--spec-type" not in options_in(list(llama_server(plan(mode=Mode.DRAFT), OLDER).command))


def test_without_a_llama_server_here_a_current_one_is_meant() -> None:
    unknown, current = (llama_server(plan(mode=Mode.AUTO), text).command for text in ("", CURRENT))
    assert set(current) - set(unknown) == {"--spec-draft-sampling", "probabilistic"}


def test_sampling_goes_along_in_the_words_of_llama_server() -> None:
    sampling = {
        "logit_bias": ((5, -1.5), (7, float("-inf")), (9, 2.0)),
        "dry_multiplier": 0.8,
        "dry_sequence_breakers": ("x", "\n"),
        "repeat_last_n": -1,
    }
    words = list(llama_server(plan(sampling=sampling), CURRENT).command)
    values = {flag: [after for word, after in pairwise(words) if word == flag] for flag in words}
    assert values["--logit-bias"] == ["5-1.5", "7-inf", "9+2.0"]
    assert values["--dry-sequence-breaker"] == ["x", "\n"]
    # The whole context, which is -1 here, and is refused there.
    given = options_in(words)
    assert (given["--repeat-last-n"], given["--dry-penalty-last-n"]) == ("4096", "4096")
    assert "-1" not in words


def test_a_seed_that_is_too_large_there_is_told_and_left_out() -> None:
    exported = llama_server(plan(n_draft=1, sampling={"seed": 2**32}), CURRENT)
    assert "--seed" not in exported.command
    assert [note for note in exported.notes if "4294967295" in note]


def test_no_sequence_breakers_are_none_there_too() -> None:
    assert (
        options_in(list(llama_server(plan(sampling={"dry_sequence_breakers": ()}), CURRENT).command))[
            "--dry-sequence-breaker"
        ]
        == "none"
    )


def test_what_differs_there_is_said() -> None:
    notes = " ".join(llama_server(plan(mode=Mode.AUTO), OLDER).notes)
    assert "Lengths do not adapt" in notes
    assert "--spec-draft-sampling" in notes
    assert "one length" in notes


def test_a_key_stays_where_it_is(tmp_path: Path) -> None:
    exported = llama_server(plan(asks_for_key=True, key_file=tmp_path / "keys"), CURRENT)
    assert exported.shell.startswith('LLAMA_API_KEY="$LOCALSPEC_API_KEY" llama-server ')
    assert options_in(list(exported.command))["--api-key-file"] == str(tmp_path / "keys")


def test_the_shell_line_reaches_the_program_word_by_word(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text('#!/bin/sh\nprintf "%s\\0" "$LLAMA_API_KEY" "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    exported = llama_server(plan(alias='$(touch x) `y` "z" \'\n', asks_for_key=True), CURRENT)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "LOCALSPEC_API_KEY": "$ecret 'key'"}
    ran = subprocess.run(["sh", "-c", exported.shell], capture_output=True, env=environment, cwd=tmp_path, check=True)
    assert ran.stdout.decode().split("\0")[:-1] == ["$ecret 'key'", *exported.command[1:]]


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_line_is_alone_on_stdout(localspec: Localspec, tiny: list[object], tiny_models: TinyModels) -> None:
    done = localspec("export", "--engine", "llama-server", *tiny, "--mode", "draft", "--port", 9000, check=0)
    words = shlex.split(done.stdout.decode())
    given = options_in(words)
    assert words[0] == "llama-server"
    assert (given["--model"], given["--model-draft"]) == (str(tiny_models.target), str(tiny_models.draft))
    assert (given["--ctx-size"], given["--port"], given["--threads"]) == ("256", "9000", "1")
    assert b"Mind:" in done.stderr


def test_vllm_takes_the_speculation_as_json(localspec: Localspec, tiny: list[object]) -> None:
    done = localspec("export", "--engine", "vllm", *tiny, *REPOSITORIES, "--json", check=0)
    answer = json.loads(done.stdout)
    assert answer["engine"] == "vllm"
    assert shlex.split(answer["shell"]) == answer["command"]
    assert answer["command"][:3] == ["vllm", "serve", "Qwen/Qwen3-8B"]
    given = options_in(answer["command"])
    assert json.loads(given["--speculative-config"]) == {
        "method": "draft_model",
        "model": "Qwen/Qwen3-0.6B",
        "num_speculative_tokens": 5,
    }
    assert (given["--max-model-len"], given["--max-num-seqs"]) == ("256", "4")
    assert [note for note in answer["notes"] if "GGUF" in note]


def test_sampling_by_flags_goes_along(localspec: Localspec, tiny: list[object]) -> None:
    flags = ["--logit-bias", "5-1", "--dry-sequence-breaker", "x", "--temp", 0.5]
    done = localspec("export", "--engine", "llama-server", *tiny, *flags, check=0)
    given = options_in(shlex.split(done.stdout.decode()))
    assert (given["--logit-bias"], given["--dry-sequence-breaker"], given["--temp"]) == ("5-1.0", "x", "0.5")


def test_vllm_gets_the_sampling_defaults_that_it_takes(localspec: Localspec, tiny: list[object]) -> None:
    flags = ["--temp", 0.5, "--repeat-penalty", 1.1, "--xtc-probability", 0.1]
    done = localspec("export", "--engine", "vllm", *tiny, *REPOSITORIES, *flags, "--json", check=0)
    answer = json.loads(done.stdout)
    given = options_in(answer["command"])
    assert json.loads(given["--override-generation-config"]) == {"temperature": 0.5, "repetition_penalty": 1.1}
    (left,) = [note for note in answer["notes"] if "stay behind" in note and "Sampling" in note]
    assert left.endswith("xtc_probability.")
    for engine in ("vllm", "sglang"):
        done = localspec("export", "--engine", engine, *tiny, *REPOSITORIES, "--json", check=0)
        assert b"--override-generation-config" not in done.stdout
        assert b"generation_config.json decides" in done.stdout


def test_vllm_copies_by_n_grams(localspec: Localspec, tiny: list[object]) -> None:
    lookup = ["--mode", "lookup", "--lookup-min-ngram", 3, "--lookup-max-ngram", 6, "--num-speculative-tokens", 9]
    done = localspec("export", "--engine", "vllm", *tiny, *REPOSITORIES[:2], *lookup, check=0)
    given = options_in(shlex.split(done.stdout.decode()))
    assert json.loads(given["--speculative-config"]) == {
        "method": "ngram",
        "num_speculative_tokens": 9,
        "prompt_lookup_min": 3,
        "prompt_lookup_max": 6,
    }


def test_sglang_verifies_one_more_than_it_drafts(localspec: Localspec, tiny: list[object]) -> None:
    done = localspec("export", "--engine", "sglang", *tiny, *REPOSITORIES, "--num-speculative-tokens", 6, check=0)
    given = options_in(shlex.split(done.stdout.decode()))
    assert given["--speculative-algorithm"] == "STANDALONE"
    assert given["--speculative-draft-model-path"] == "Qwen/Qwen3-0.6B"
    steps = ("--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens")
    assert [given[flag] for flag in steps] == ["6", "1", "7"]
    copied = localspec("export", "--engine", "sglang", *tiny, *REPOSITORIES[:2], "--mode", "lookup", check=0)
    assert options_in(shlex.split(copied.stdout.decode()))["--speculative-algorithm"] == "NGRAM"


def test_keys_go_by_the_environment_where_that_is_possible(home: Path, tmp_path: Path, tiny: list[object]) -> None:
    for engine in ("llama-server", "vllm", "sglang"):
        args = ["export", "--engine", engine, *tiny, *REPOSITORIES]
        done = run_localspec(args, home, tmp_path, variables={"LOCALSPEC_API_KEY": "secret-key"})
        assert done.returncode == 0
        assert b"secret-key" not in done.stdout + done.stderr
        assert b'"$LOCALSPEC_API_KEY"' in done.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--engine", "vllm"], b"--hf-target OWNER/NAME"),
        (["--engine", "sglang", *REPOSITORIES[:2]], b"--hf-draft OWNER/NAME"),
        (["--engine", "vllm", "--hf-target", "no repository"], b"no repository"),
        (["--engine", "ollama"], b"llama-server"),
    ],
)
def test_what_is_missing_is_asked_for(localspec: Localspec, tiny: list[object], args: list[str], words: bytes) -> None:
    done = localspec("export", *args, *tiny, check=2)
    assert words in done.stderr
    assert done.stdout == b""
