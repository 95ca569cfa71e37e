"""`localspec generate` as a process: what it prints where, and the exit code of every kind of ending."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Localspec, run_localspec
from tests.native_fixtures import TinyModels
from tests.tiny_models import write_tiny_model

pytestmark = pytest.mark.native

GREEDY = ["--temperature", 0]
METRICS = {
    "ttft_s",
    "tokens_per_second",
    "tpot_s",
    "itl_p50_s",
    "itl_p95_s",
    "n_steps",
    "n_drafted",
    "n_accepted",
    "draft_acceptance_rate",
    "mean_acceptance_length",
    "acceptance_histogram",
    "draft_s",
    "verify_s",
    "overhead_s",
    "n_prompt_tokens",
    "n_cached_tokens",
}


def test_text_goes_to_stdout_and_the_rest_to_stderr(localspec: Localspec, tiny: list[object]):
    done = localspec("generate", *tiny, *GREEDY, "-n", 20, "Hello", check=0)
    assert done.stdout
    assert b"tokens/s" in done.stderr
    assert b"auto mode" in done.stderr
    assert b"tokens/s" not in done.stdout


def test_modes_give_the_same_greedy_text(localspec: Localspec, tiny: list[object]):
    texts = {
        localspec("generate", *tiny, *GREEDY, "--mode", mode, "-n", 40, "Hello", check=0).stdout
        for mode in ("auto", "draft", "lookup", "plain")
    }
    assert len(texts) == 1


def test_json_is_one_object_with_everything(localspec: Localspec, tiny: list[object]):
    done = localspec("generate", *tiny, "--json", "--seed", 7, "-n", 30, "Hello", check=0)
    answer = json.loads(done.stdout)
    assert done.stdout.count(b"\n") == 1
    assert set(answer["metrics"]) >= METRICS
    assert len(answer["token_ids"]) == len(answer["origins"]) == answer["metrics"]["n_tokens"]
    assert set(answer["origins"]) <= {"draft", "copied", "residual", "bonus", "target"}
    assert answer["finish_reason"] in {"stop", "length"}
    assert answer["model"] == {"target": "target", "draft": "draft"}
    assert (answer["mode"], answer["fixed_length"], answer["seed"]) == ("auto", False, 7)


def test_a_seed_repeats_where_lengths_are_fixed(localspec: Localspec, tiny: list[object]):
    def tokens(seed: int) -> list[int]:
        hot = ["--temperature", 1.5, "--min-p", 0, "--mode", "draft", "--fixed-length"]
        return json.loads(localspec("generate", *tiny, *hot, "--json", "--seed", seed, "-n", 30, "Hi").stdout)[
            "token_ids"
        ]

    assert tokens(1) == tokens(1) != tokens(2)


def test_the_prompt_may_come_from_stdin(localspec: Localspec, tiny: list[object]):
    as_argument = localspec("generate", *tiny, *GREEDY, "-n", 20, "Zażółć gęślą", check=0)
    for args in ([], ["-"]):
        piped = localspec("generate", *tiny, *GREEDY, "-n", 20, *args, stdin="Zażółć gęślą\n".encode(), check=0)
        assert piped.stdout == as_argument.stdout


def test_stdin_goes_where_the_dash_is(localspec: Localspec, tiny: list[object]):
    def n_prompt(*args: object, stdin: bytes = b"") -> int:
        done = localspec("generate", *tiny, "--raw", "--json", "-n", 1, *args, stdin=stdin, check=0)
        assert (b"stdin is not read" in done.stderr) == (bool(stdin) and "-" not in args)
        return json.loads(done.stdout)["metrics"]["n_prompt_tokens"]

    assert n_prompt("abc", "-", "de", stdin=b"12345\n") == len("abc\n\n12345\n\nde")
    assert n_prompt("abc", stdin=b"12345") == 3
    assert n_prompt("abc") == 3


def test_a_full_disk_under_stdout_is_no_bug(environment: dict[str, str], tiny: list[object]):
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "localspec", "generate", *map(str, tiny), "-n", "5", "Hello"]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment,
            timeout=60,
            check=False,
        )
    assert done.returncode == 4
    assert b"No space left" in done.stderr
    assert b"bug" not in done.stderr


def test_a_reply_that_was_cut_says_so(localspec: Localspec, tiny: list[object]):
    endless = ["--logit-bias", "257-100"]
    assert b"cut at --max-tokens" in localspec("generate", *tiny, *endless, "-n", 5, "Hello", check=0).stderr
    assert b"context is full" in localspec("generate", *tiny, *endless, "Hello", check=0).stderr


def test_raw_skips_the_template_and_system_is_part_of_it(localspec: Localspec, tiny: list[object]):
    def n_prompt(*args: object) -> int:
        answer = json.loads(localspec("generate", *tiny, "--json", "-n", 1, *args, check=0).stdout)
        return answer["metrics"]["n_prompt_tokens"]

    assert n_prompt("--raw", "abc") == 3
    assert n_prompt("abc") > 3
    assert n_prompt("--system", "xyz", "abc") > n_prompt("abc")


def test_a_stop_string_ends_the_answer(localspec: Localspec, tiny: list[object]):
    whole = localspec("generate", *tiny, *GREEDY, "-n", 60, "Hello", check=0).stdout.decode()
    stop = whole[10:13]
    done = localspec("generate", *tiny, *GREEDY, "-n", 60, "--stop", stop, "Hello", check=0)
    assert done.stdout.decode() == whole[: whole.index(stop)]


def test_grammar_and_schema_files(localspec: Localspec, tiny: list[object], tmp_path: Path):
    (tmp_path / "g.gbnf").write_text('root ::= "yes" | "no"')
    assert localspec("generate", *tiny, "--grammar", "g.gbnf", "Well?", check=0).stdout in {b"yes", b"no"}
    (tmp_path / "s.json").write_text(json.dumps({"type": "array", "items": {"const": 1}, "minItems": 2, "maxItems": 3}))
    text = localspec("generate", *tiny, "--json-schema", "s.json", "-n", 40, "Well?", check=0).stdout
    assert set(json.loads(text)) == {1}


def test_without_a_draft_auto_is_lookup_and_needs_no_word(localspec: Localspec, tiny_models: TinyModels):
    done = localspec("generate", "--target", tiny_models.target, "-n", 5, "Hello", check=0)
    assert b"No draft model" not in done.stderr
    assert b"lookup mode" in done.stderr


def test_a_fixed_length_is_kept_to(localspec: Localspec, tiny_models: TinyModels):
    """The target drafts for itself: every draft is accepted, and has the length that it is told to have."""
    itself = ["--target", tiny_models.target, "--draft", tiny_models.target, "--ctx", 256, "--threads", 1, *GREEDY]
    args = [*itself, "--mode", "draft", "--fixed-length", "--num-speculative-tokens", 3, "--logit-bias", "257-100"]
    answer = json.loads(localspec("generate", *args, "--json", "-n", 41, "Hello", check=0).stdout)
    assert (answer["fixed_length"], answer["num_speculative_tokens"]) == (True, 3)
    assert answer["metrics"]["acceptance_histogram"] == [0, 0, 0, 10]


def test_ngrams_of_lookup_reach_the_engine(localspec: Localspec, tiny_models: TinyModels):
    """What is copied after one repeated letter is not copied where eight of them must repeat."""
    args = ["--target", tiny_models.target, "--mode", "lookup", "--fixed-length", "--ctx", 256, *GREEDY]

    def n_drafted(low: int, high: int) -> int:
        sizes = ["--lookup-min-ngram", low, "--lookup-max-ngram", high]
        done = localspec("generate", *args, *sizes, "--raw", "--json", "-n", 12, "abcadaeafagah", check=0)
        return json.loads(done.stdout)["metrics"]["n_drafted"]

    assert n_drafted(1, 2) > n_drafted(8, 16)


def test_a_named_pair_of_the_configuration(localspec: Localspec, tiny_models: TinyModels, tmp_path: Path):
    folder = tmp_path / "home" / "config"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(
        f'pair = "mine"\n[pairs.mine]\ntarget = "{tiny_models.target}"\ndraft = "{tiny_models.draft}"\nctx = 128\n'
        "[sampling]\ntemperature = 0\n"
    )
    by_default = json.loads(localspec("generate", "--json", "-n", 5, "Hello", check=0).stdout)
    by_name = json.loads(localspec("generate", "--pair", "mine", "--json", "-n", 5, "Hello", check=0).stdout)
    assert by_default["model"] == by_name["model"] == {"target": "target", "draft": "draft"}
    assert by_default["token_ids"] == by_name["token_ids"]
    assert b"128" in localspec("generate", "Hello " * 100, check=4).stderr
    localspec("generate", "--ctx", 2048, "-n", 2, "Hello " * 100, check=0)  # a flag goes before the file


def test_the_ceiling_comes_from_the_flag_then_the_pair_then_the_settings(
    localspec: Localspec, tiny_models: TinyModels, tmp_path: Path
):
    def ceiling(*args: object) -> int:
        done = localspec("--config", "c.toml", "generate", "--json", "-n", 3, *args, "Hi", check=0)
        return json.loads(done.stdout)["num_speculative_tokens"]

    pair = f'[pairs.{{}}]\ntarget = "{tiny_models.target}"\n'
    (tmp_path / "c.toml").write_text(
        "num_speculative_tokens = 7\n" + pair.format("own") + "num_speculative_tokens = 3\n" + pair.format("plain")
    )
    assert ceiling("--pair", "own", "--num-speculative-tokens", 2) == 2
    assert ceiling("--pair", "own") == 3
    assert ceiling("--pair", "plain") == 7
    assert ceiling("--target", tiny_models.target) == 7


def test_flags_go_before_the_environment_and_that_before_the_file(home: Path, tiny_models: TinyModels, tmp_path: Path):
    """Also for what the entry of a pair says; -1 draws a seed although the file has one."""
    (tmp_path / "c.toml").write_text(
        f'ctx = 64\n[sampling]\nseed = 42\n[pairs.x]\ntarget = "{tiny_models.target}"\nctx = 128\n'
    )
    long = ["--config", "c.toml", "generate", "--pair", "x", "--raw", "x" * 200]

    def refusal(*args: object, **variables: str) -> str:
        return run_localspec([*long, *args], home, tmp_path, variables=variables).stderr.decode()

    assert "holds 128" in refusal()
    assert "holds 100" in refusal(LOCALSPEC_CTX="100")
    assert "holds 90" in refusal("--ctx", 90, LOCALSPEC_CTX="100")
    short = ["--config", "c.toml", "generate", "--pair", "x", "--json", "-n", 2]
    assert json.loads(run_localspec([*short, "Hi"], home, tmp_path).stdout)["seed"] == 42
    drawn = [json.loads(run_localspec([*short, "--seed", -1, "Hi"], home, tmp_path).stdout)["seed"] for _ in range(2)]
    assert drawn[0] != drawn[1]


class TestInterrupt:
    def start(self, environment: dict[str, str], *args: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "localspec", "generate", *map(str, args)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )

    @pytest.mark.parametrize("as_json", [False, True])
    def test_ctrl_c_prints_what_there_is(self, environment: dict[str, str], tiny_models: TinyModels, as_json: bool):
        # A context so long that the answer cannot end by itself in time.
        endless = ["--target", tiny_models.target, "--ctx", 300_000, "--logit-bias", "257-100", "--threads", 1]
        with_note = environment | {"LOCALSPEC_MODE": "draft"}
        process = self.start(with_note, *endless, *(["--json"] if as_json else []), "Hello")
        if as_json:
            # Nothing is printed before the end; the note that there is no draft model comes when the request starts.
            assert process.stderr is not None
            process.stderr.readline()
            time.sleep(1)
        else:
            assert process.stdout is not None
            process.stdout.read(20)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
        assert process.returncode == 130, stderr.decode()
        assert b"Traceback" not in stderr
        if as_json:
            answer = json.loads(stdout)
            assert answer["finish_reason"] == "cancelled"
            assert answer["token_ids"]
        else:
            assert b"tokens/s" in stderr

    def test_a_reader_that_leaves_is_not_an_error(self, environment: dict[str, str], tiny_models: TinyModels):
        process = self.start(environment, "--target", tiny_models.target, "--ctx", 4096, "-n", 2000, "Hello")
        assert process.stdout is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr is not None
        stderr = process.stderr.read()
        process.stderr.close()
        assert process.wait(60) == 1
        assert b"Traceback" not in stderr
        assert b"BrokenPipe" not in stderr


class TestBadInput:
    def test_no_prompt(self, localspec: Localspec, tiny: list[object]):
        assert b"prompt" in localspec("generate", *tiny, check=2).stderr

    def test_invalid_utf8_on_stdin(self, localspec: Localspec, tiny: list[object]):
        done = localspec("generate", *tiny, stdin=b"abc\xff\xfe", check=2)
        assert b"byte 3 is 0xff" in done.stderr

    @pytest.mark.parametrize(
        ("args", "words"),
        [
            (["--temperature", -1], "temperature"),
            (["--temperature", "nan"], "temperature"),
            (["--top-p", 1.5], "top-p"),
            (["--ctx", -5], "ctx"),
            (["--ctx", 0], "ctx"),
            (["--num-speculative-tokens", 1000], "num-speculative-tokens"),
            (["--max-tokens", 0], "max-tokens"),
            (["--max-tokens", "many"], "max-tokens"),
            (["--gpu-layers", -7], "gpu-layers"),
            (["--threads", 0], "threads"),
            (["--mode", "fast"], "mode"),
            (["--fixed-length"], "mode is auto"),
            (["--mode", "auto", "--fixed-length"], "draft or lookup"),
            (["--lookup-min-ngram", 0], "lookup-min-ngram"),
            (["--lookup-max-ngram", 17], "lookup-max-ngram"),
            (["--lookup-min-ngram", 5], "lookup_max_ngram is 4"),
            (["--kv-type", "q3"], "kv-type"),
            (["--seed", -3], "seed"),
            (["--stop", ""], "stop"),
            (["--logit-bias", "x+1"], "logit-bias"),
            (["--logit-bias", "999999+1"], "999999"),
            (["--logit-bias", "5+nan"], "nan"),
            (["--logit-bias", "5+inf"], "inf"),
            (["--grammar", "nothing-here.gbnf"], "nothing-here"),
            (["--demo"], "--demo"),
            (["--no-such-flag"], "no-such-flag"),
            (["--raw", "--system", "x"], "--raw"),
        ],
    )
    def test_flags(self, localspec: Localspec, tiny: list[object], args: list[object], words: str):
        done = localspec("generate", *tiny, *args, "Hello", check=2)
        assert words in done.stderr.decode()
        assert done.stdout == b""

    def test_an_absurd_context_is_refused_before_memory_is_taken(self, localspec: Localspec, tiny_models: TinyModels):
        done = localspec("generate", "--target", tiny_models.target, "--ctx", 2_000_000_000, "Hello", check=4)
        assert b"GiB" in done.stderr

    def test_a_draft_without_a_target(self, localspec: Localspec, tiny_models: TinyModels):
        assert b"--target" in localspec("generate", "--draft", tiny_models.draft, "Hello", check=2).stderr

    def test_draft_mode_without_a_draft(self, localspec: Localspec, tiny_models: TinyModels):
        done = localspec("generate", "--target", tiny_models.target, "--mode", "draft", "Hello", check=2)
        assert b"--draft" in done.stderr

    def test_an_unknown_pair(self, localspec: Localspec):
        assert b"nobody" in localspec("generate", "--pair", "nobody", "Hello", check=2).stderr

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "empty"),
            (b"GGUF", "cut"),
            (b"<!DOCTYPE html><html>", "page"),
            (b"\0" * 4096, "GGUF"),
            (None, "folder"),
        ],
    )
    def test_files_that_are_no_model(self, localspec: Localspec, tmp_path: Path, content: bytes | None, words: str):
        path = tmp_path / "model.gguf"
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content)
        done = localspec("generate", "--target", path, "Hello", check=3)
        assert words in done.stderr.decode()
        assert "model.gguf" in done.stderr.decode()

    def test_a_missing_file(self, localspec: Localspec):
        assert b"none.gguf does not exist" in localspec("generate", "--target", "none.gguf", "Hi", check=3).stderr

    def test_a_truncated_model(self, localspec: Localspec, tiny_models: TinyModels, tmp_path: Path):
        whole = tiny_models.target.read_bytes()
        for n in (len(whole) - 1, len(whole) // 2, 3000, 100, 25):
            (tmp_path / "cut.gguf").write_bytes(whole[:n])
            assert b"cut.gguf" in localspec("generate", "--target", "cut.gguf", "Hello", check=3).stderr

    def test_an_unknown_architecture(self, localspec: Localspec, tmp_path: Path):
        write_tiny_model(tmp_path / "new.gguf", architecture="notyetknown")
        done = localspec("generate", "--target", "new.gguf", "Hello", check=3)
        assert b"notyetknown" in done.stderr
        assert b"llama-cpp-python" in done.stderr

    def test_an_incompatible_draft_names_the_rule_and_both_values(
        self, localspec: Localspec, tiny_models: TinyModels, tmp_path: Path
    ):
        write_tiny_model(tmp_path / "other.gguf", extra_tokens=300)
        done = localspec("generate", "--target", tiny_models.target, "--draft", "other.gguf", "Hello", check=3)
        assert b"259" in done.stderr
        assert b"559" in done.stderr

    def test_an_embedding_model(self, localspec: Localspec, tmp_path: Path):
        write_tiny_model(tmp_path / "bert.gguf", architecture="bert")
        assert b"bert" in localspec("generate", "--target", "bert.gguf", "Hello", check=3).stderr

    @pytest.mark.parametrize(
        ("template", "words"),
        [
            ("{{ raise_exception('only Tuesdays') }}", "only Tuesdays"),
            ("{% for m in messages %}", "Jinja"),
            ("{{ messages[0].nothing.deeper }}", "template"),
            ("{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}", "template"),
        ],
    )
    def test_a_template_that_fails(self, localspec: Localspec, tmp_path: Path, template: str, words: str):
        write_tiny_model(tmp_path / "model.gguf", template=template)
        done = localspec("generate", "--target", "model.gguf", "Hello", check=3)
        assert words in done.stderr.decode()
        # The model itself is fine.
        localspec("generate", "--target", "model.gguf", "--raw", "-n", 2, "Hello", check=0)

    def test_a_prompt_longer_than_the_context(self, localspec: Localspec, tiny: list[object]):
        done = localspec("generate", *tiny, "--raw", "x" * 300, check=4)
        assert b"300" in done.stderr
        assert b"256" in done.stderr

    @pytest.mark.parametrize("bias", ["5+1", "5-1.5", "5+1e-5", "5-1E+2", "5-inf", "5+.5"])
    def test_forms_of_a_logit_bias(self, localspec: Localspec, tiny: list[object], bias: str):
        expected = 2 if bias == "5+.5" else 0
        localspec("generate", *tiny, "--logit-bias", bias, "-n", 1, "Hello", check=expected)

    @pytest.mark.parametrize("name", ["~nosuchuser/x", "x" * 300, "/dev/null/x"])
    def test_a_home_that_cannot_be_used(self, tmp_path: Path, tiny: list[object], name: str):
        done = run_localspec(["generate", *tiny, "-n", 1, "Hi"], Path(name), tmp_path)
        assert done.returncode in {0, 2}
        assert b"bug" not in done.stderr

    @pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
    def test_streams_that_are_closed(self, environment: dict[str, str], tiny: list[object], closed: str):
        command = f"{sys.executable} -m localspec generate --target none.gguf Hi {closed}"
        done = subprocess.run(command, shell=True, capture_output=True, env=environment, timeout=60, check=False)
        assert done.returncode == 3
        assert b"bug" not in done.stderr

    def test_a_broken_configuration_names_its_file(self, localspec: Localspec, tmp_path: Path):
        (tmp_path / "broken.toml").write_text("pair = \n")
        assert b"broken.toml" in localspec("--config", "broken.toml", "generate", "Hello", check=2).stderr


def test_model_output_cannot_steer_a_terminal(environment: dict[str, str], tiny_models: TinyModels):
    """On a terminal control characters are shown, not obeyed; into a pipe the bytes go as they are."""
    args = ["--target", tiny_models.target, "--ctx", "256", "--logit-bias", "27+100", "-n", "5", "--raw", "Hello"]
    command = [sys.executable, "-m", "localspec", "generate", *map(str, args)]
    piped = subprocess.run(command, capture_output=True, env=environment, timeout=60, check=True)
    assert piped.stdout == b"\x1b" * 5
    master, slave = pty.openpty()
    subprocess.run(command, stdin=slave, stdout=slave, stderr=subprocess.PIPE, env=environment, timeout=60, check=True)
    os.close(slave)
    shown = os.read(master, 4096)
    os.close(master)
    assert b"\x1b" not in shown
    assert "␛␛␛␛␛" in shown.decode()
