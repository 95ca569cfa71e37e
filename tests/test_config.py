import dataclasses
import os
import pickle
import typing
from pathlib import Path

import pytest

from localspec import config, paths
from localspec.config import PairEntry, SamplingSettings, Settings, TunedSettings, left_to, load_settings
from localspec.engine import requests
from localspec.errors import ConfigError, UsageError
from localspec.llama import sampling_params
from localspec.llama.sampling_params import SamplingParams


def load(
    tmp_path: Path, text: str, environ: dict[str, str] | None = None, flags: dict[str, object] | None = None
) -> Settings:
    file = tmp_path / "config.toml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file, environ or {}, flags or {})


def error_of(
    tmp_path: Path, text: str = "", environ: dict[str, str] | None = None, flags: dict[str, object] | None = None
) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, environ, flags)
    assert caught.value.hint
    return pickle.loads(pickle.dumps(caught.value))


# --- the merge --------------------------------------------------------------------------------------------------------


def test_defaults_stand_without_any_layer() -> None:
    assert load_settings(None, {}, {}) == Settings()


@pytest.mark.parametrize(
    ("environ", "flags", "ctx", "temperature"),
    [
        ({}, {}, 1000, 0.1),
        ({"LOCALSPEC_CTX": "2000", "LOCALSPEC_SAMPLING_TEMPERATURE": "0.2"}, {}, 2000, 0.2),
        ({"LOCALSPEC_CTX": "2000"}, {"temperature": 0.3}, 2000, 0.3),
        ({"LOCALSPEC_CTX": "2000", "LOCALSPEC_SAMPLING_TEMPERATURE": "0.2"}, {"ctx": 3000, "temperature": 0}, 3000, 0),
        ({"LOCALSPEC_CTX": ""}, {"ctx": None}, 1000, 0.1),
    ],
)
def test_flags_over_environment_over_file(
    tmp_path: Path, environ: dict[str, str], flags: dict[str, object], ctx: int, temperature: float
) -> None:
    settings = load(tmp_path, "ctx = 1000\n[sampling]\ntemperature = 0.1\ntop_k = 7\n", environ, flags)
    assert settings.ctx == ctx
    assert settings.sampling.given() == {"temperature": temperature, "top_k": 7}
    assert settings.num_speculative_tokens == Settings().num_speculative_tokens


def test_every_kind_of_setting_in_one_file(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        """
        pair = "a"
        mode = "lookup"
        num_speculative_tokens = 0
        fixed_length = true
        lookup_min_ngram = 1
        lookup_max_ngram = 16
        threads = 4
        kv_type = "q8_0"
        [chat]
        system = "Be brief."
        max_tokens = 100
        [sampling]
        dry_sequence_breakers = ["\\n"]
        seed = 18446744073709551615
        top_p = 1
        [pairs.a]
        target = "/models/t.gguf"
        [pairs."b c"]
        target = "t.gguf"
        draft = "sub/d.gguf"
        ctx = 4096
        gpu_layers = 0
        draft_gpu_layers = -1
        draft_kv_type = "bf16"
        """,
    )
    assert (settings.pair, settings.mode, settings.num_speculative_tokens, settings.threads) == ("a", "lookup", 0, 4)
    assert (settings.kv_type, settings.draft_kv_type) == ("q8_0", "f16")
    assert (settings.fixed_length, settings.lookup_min_ngram, settings.lookup_max_ngram) == (True, 1, 16)
    assert (settings.chat.system, settings.chat.max_tokens) == ("Be brief.", 100)
    assert settings.pairs["a"] == PairEntry(target=Path("/models/t.gguf"))
    assert settings.pairs["b c"].draft == tmp_path / "sub" / "d.gguf"
    assert (settings.pairs["b c"].ctx, settings.pairs["b c"].gpu_layers) == (4096, 0)
    assert SamplingParams(**settings.sampling.given()) == SamplingParams(
        dry_sequence_breakers=("\n",), seed=2**64 - 1, top_p=1.0
    )


def test_paths_in_the_file_expand_and_start_at_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text('[pairs.x]\ntarget = "~/t.gguf"\ndraft = "d.gguf"\n')
    entry = load_settings(Path("config.toml"), {}, {}).pairs["x"]
    assert entry.target == tmp_path / "home" / "t.gguf"
    assert entry.draft == tmp_path / "d.gguf"


def test_flags_may_be_enum_members_and_other_variables_are_none_of_our_business(tmp_path: Path) -> None:
    settings = load(tmp_path, "", {"PATH": "x", "LOCALSPEC_HOME": "y"}, {"mode": requests.Mode.PLAIN})
    assert settings.mode == "plain"


def test_the_environment_is_text_and_is_converted(tmp_path: Path) -> None:
    environ = {
        "LOCALSPEC_THREADS": "8",
        "LOCALSPEC_CHAT_SYSTEM": "8",
        "LOCALSPEC_SAMPLING_MIN_P": "1e-3",
        "LOCALSPEC_MODE": "plain",
    }
    settings = load(tmp_path, "", environ)
    assert (settings.threads, settings.chat.system, settings.sampling.min_p, settings.mode) == (8, "8", 0.001, "plain")


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().ctx = 1  # type: ignore[misc]


# --- settings that belong together ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "environ", "flags", "words"),
    [
        ("fixed_length = true", {}, {}, "fixed_length is set and the mode is auto"),
        ("", {}, {"fixed_length": True}, "fixed_length is set and the mode is auto"),
        ('mode = "draft"\nfixed_length = true', {}, {"mode": "auto"}, "fixed_length is set and the mode is auto"),
        ("lookup_min_ngram = 5", {}, {}, "lookup_min_ngram is 5 and lookup_max_ngram is 4"),
        ("lookup_min_ngram = 3", {"LOCALSPEC_LOOKUP_MAX_NGRAM": "2"}, {}, "lookup_min_ngram is 3 and lookup_max"),
        ("", {}, {"lookup_max_ngram": 1}, "lookup_min_ngram is 2 and lookup_max_ngram is 1"),
    ],
)
def test_values_that_contradict_each_other_across_layers(
    tmp_path: Path, text: str, environ: dict[str, str], flags: dict[str, object], words: str
) -> None:
    assert error_of(tmp_path, text, environ, flags).message.startswith(words)


def test_a_contradiction_may_be_resolved_by_a_later_layer(tmp_path: Path) -> None:
    assert load(tmp_path, "fixed_length = true", flags={"mode": "draft"}).fixed_length
    assert not load(tmp_path, "fixed_length = true", flags={"fixed_length": False}).fixed_length
    assert load(tmp_path, "lookup_min_ngram = 9", flags={"lookup_max_ngram": 9}).lookup_max_ngram == 9


TUNED = TunedSettings(
    mode="draft",
    num_speculative_tokens=6,
    fixed_length=True,
    lookup_min_ngram=5,
    lookup_max_ngram=8,
    kv_type="f16",
    draft_kv_type="q8_0",
    threads=3,
)


def with_tuned(settings: Settings) -> Settings:
    return settings.model_copy(update=left_to(TUNED, settings.model_fields_set))


def test_tuned_settings_lie_between_the_defaults_and_all_that_a_user_says(tmp_path: Path) -> None:
    def loaded(text: str = "", environ: dict[str, str] | None = None, **flags: object) -> Settings:
        file = tmp_path / "config.toml"
        file.write_text(text)
        return with_tuned(load_settings(file, environ or {}, flags, pair="x"))

    assert loaded().model_dump(include=set(TunedSettings.model_fields)) == TUNED.model_dump()
    assert loaded("threads = 1").threads == 1
    assert loaded('[pairs.x]\ntarget = "t"\ndraft_kv_type = "f16"').draft_kv_type == "f16"
    assert loaded("threads = 1", {"LOCALSPEC_THREADS": "2"}).threads == 2
    assert loaded("threads = 1", {"LOCALSPEC_THREADS": "2"}, threads=4).threads == 4
    assert loaded("threads = 1").num_speculative_tokens == 6


def test_what_a_user_says_takes_along_what_was_tuned_with_it(tmp_path: Path) -> None:
    """A fixed length that was found for draft mode means nothing in auto mode, and is no contradiction either."""
    by_mode = with_tuned(load_settings(None, {}, {"mode": "auto"}))
    assert (by_mode.mode, by_mode.fixed_length, by_mode.num_speculative_tokens) == ("auto", False, None)
    by_ceiling = with_tuned(load_settings(None, {}, {"num_speculative_tokens": 12}))
    assert (by_ceiling.mode, by_ceiling.fixed_length, by_ceiling.num_speculative_tokens) == ("auto", False, 12)
    by_length = with_tuned(load_settings(None, {"LOCALSPEC_FIXED_LENGTH": "no"}, {}))
    assert (by_length.mode, by_length.num_speculative_tokens, by_length.threads) == ("auto", None, 3)
    by_ngram = with_tuned(load_settings(None, {}, {"lookup_max_ngram": 3}))
    assert (by_ngram.lookup_min_ngram, by_ngram.lookup_max_ngram) == (2, 3)
    assert by_ngram.mode == "draft"


def test_what_was_set_is_told_from_what_was_not(tmp_path: Path) -> None:
    settings = load(tmp_path, "threads = 2", {"LOCALSPEC_MODE": "plain"}, {"ctx": 64, "kv_type": None})
    assert settings.model_fields_set == {"threads", "mode", "ctx"}


def test_every_tuned_setting_is_a_setting_with_the_same_bounds() -> None:
    for name, field in TunedSettings.model_fields.items():
        assert field.annotation == Settings.model_fields[name].annotation
        assert field.metadata == Settings.model_fields[name].metadata


# --- agreement with the layers above, which config cannot import ------------------------------------------------------


def test_sampling_settings_are_those_of_sampling_params() -> None:
    names = {field.name for field in dataclasses.fields(SamplingParams)}
    of_one_request = {name for name in names if name in {"logit_bias", "json_schema"} or name.startswith("grammar")}
    assert set(SamplingSettings.model_fields) == names - of_one_request


@pytest.mark.parametrize("name", sorted(sampling_params._BOUNDS))
def test_sampling_bounds_are_those_of_sampling_params(name: str) -> None:
    for bound, outside in zip(sampling_params._BOUNDS[name], (-1, 1), strict=True):
        assert getattr(load_settings(None, {}, {name: bound}).sampling, name) == bound
        with pytest.raises(ConfigError):
            load_settings(None, {}, {name: bound + outside})
        with pytest.raises(UsageError):
            SamplingParams(**{name: bound + outside})


def test_choices_and_defaults_are_those_of_the_engine() -> None:
    assert set(typing.get_args(config._Mode)) == set(requests.Mode)
    assert set(typing.get_args(config._KvType)) == set(requests.KvType)
    defaults = Settings()
    assert load_settings(None, {}, {"num_speculative_tokens": requests.MAX_NUM_SPECULATIVE_TOKENS})
    with pytest.raises(ConfigError):
        load_settings(None, {}, {"num_speculative_tokens": requests.MAX_NUM_SPECULATIVE_TOKENS + 1})
    model = requests.ModelSpec(Path("x"))
    assert (defaults.gpu_layers, defaults.kv_type) == (model.n_gpu_layers, model.kv_type)
    assert (defaults.draft_gpu_layers, defaults.draft_kv_type) == (model.n_gpu_layers, model.kv_type)
    request = requests.GenerateRequest(requests.RawPrompt(""))
    assert (defaults.mode, defaults.fixed_length) == (request.mode, request.fixed_length)
    assert defaults.num_speculative_tokens == request.num_speculative_tokens
    pair = requests.PairSpec("x", model)
    assert (defaults.lookup_min_ngram, defaults.lookup_max_ngram) == (pair.lookup_min_ngram, pair.lookup_max_ngram)


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key", "value", "hint"),
    [
        ("temprature = 1", "temprature", "not a setting", "Known are: pair"),
        ("num_speculative_token = 1", "num_speculative_token", "not a setting", "num_speculative_tokens?"),
        ("[sampling]\ntemprature = 1", "sampling.temprature", "not a setting", "Did you mean temperature?"),
        ('[pairs.x]\ntarget = "t"\ndrift = "d"', "pairs.x.drift", "not a setting", "Did you mean draft?"),
        ("[samplings]\n", "samplings", "not a setting", "Did you mean sampling?"),
        ('ctx = "8192"', "ctx", "'8192'", "default"),
        ("ctx = 4.5", "ctx", "4.5", "default"),
        ("threads = true", "threads", "True", "default"),
        ("threads = 0", "threads", "0", "default"),
        ("lookup_min_ngram = 0", "lookup_min_ngram", "0", "default"),
        ("lookup_max_ngram = 17", "lookup_max_ngram", "17", "default"),
        ("fixed_length = 1", "fixed_length", "1", "default"),
        ("[sampling]\ntop_p = 1.5", "sampling.top_p", "1.5", "default"),
        ("[sampling]\ntemperature = nan", "sampling.temperature", "nan", "default"),
        ("[sampling]\ndry_base = inf", "sampling.dry_base", "inf", "default"),
        ('mode = "fast"', "mode", "'fast'; it should be 'auto', 'draft', 'lookup' or 'plain'", "default"),
        ('[pairs.x]\ntarget = "t"\nkv_type = "q3"', "pairs.x.kv_type", "'q3'", "default"),
        ('[pairs.x]\ndraft = "d"', "pairs.x.target", "missing", "target"),
        ("[pairs.x]\ntarget = 5", "pairs.x.target", "5; it should be a path", "default"),
        ('[pairs.x]\ntarget = ""', "pairs.x.target", "''", "default"),
        ('[pairs.x]\ntarget = "~no-such-user-here/t"', "pairs.x.target", "names no home folder", "default"),
        ("pairs = 3", "pairs", "3; it should be a section", "default"),
        ("pairs.x = 3", "pairs.x", "3; it should be a section", "default"),
        ("chat = []", "chat", "[]; it should be a section", "default"),
        (f'pair = ["{"a" * 500}"]', "pair", "...", "default"),
    ],
)
def test_bad_file_names_file_key_value_and_next_step(
    tmp_path: Path, text: str, key: str, value: str, hint: str
) -> None:
    error = error_of(tmp_path, text)
    assert error.message.startswith(f"{tmp_path / 'config.toml'}: {key} is ")
    assert value in error.message
    assert hint in error.hint
    assert len(error.message) < 400


def test_a_bad_value_is_reported_even_where_a_flag_would_override_it(tmp_path: Path) -> None:
    assert "ctx is -1" in error_of(tmp_path, "ctx = -1", flags={"ctx": 100}).message


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"LOCALSPEC_CTX": "many"}, "LOCALSPEC_CTX is 'many'; it should be a valid integer"),
        ({"LOCALSPEC_SAMPLING_TOP_P": "2"}, "LOCALSPEC_SAMPLING_TOP_P is '2'; it should be less than or equal to 1"),
        ({"LOCALSPEC_TEMPERATURE": "1"}, "LOCALSPEC_TEMPERATURE is not a setting"),
        ({"LOCALSPEC_PAIRS": "x"}, "LOCALSPEC_PAIRS is not a setting"),
    ],
)
def test_bad_environment_names_the_variable(tmp_path: Path, environ: dict[str, str], message: str) -> None:
    assert error_of(tmp_path, environ=environ).message.startswith(message)


def test_a_misspelt_variable_gets_the_nearest_name(tmp_path: Path) -> None:
    assert (
        error_of(tmp_path, environ={"LOCALSPEC_TEMPERATURE": "1"}).hint
        == "Did you mean LOCALSPEC_SAMPLING_TEMPERATURE?"
    )


def test_bad_flag_is_named_as_it_was_typed(tmp_path: Path) -> None:
    error = error_of(tmp_path, flags={"num_speculative_tokens": -3})
    assert error.message.startswith("--num-speculative-tokens is -3;")
    assert error.exit_code == 2


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"a = 1\nb = \n", "line 2"),
        (b"a = 1\na = 2\n", "line 2"),
        (b"ctx = " + b"9" * 5000, "digits"),
        (b"pair = caf\xe9", "UTF-8"),
        (b"a = " + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_broken_toml(tmp_path: Path, raw: bytes, message: str) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(raw)
    with pytest.raises(ConfigError, match=message) as caught:
        load_settings(file, {}, {})
    assert caught.value.message.startswith(f"{file}: ")
    assert caught.value.hint


def test_unreadable_files(tmp_path: Path) -> None:
    for file in (tmp_path / "missing.toml", tmp_path):
        with pytest.raises(ConfigError, match=str(file)):
            load_settings(file, {}, {})


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(b"\xef\xbb\xbfctx = 1000\r\n")
    assert load_settings(file, {}, {}).ctx == 1000


# --- paths ------------------------------------------------------------------------------------------------------------

FOLDERS = {"config": paths.config_dir, "data": paths.data_dir, "cache": paths.cache_dir, "logs": paths.log_dir}


def test_one_variable_moves_everything_when_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for home in (tmp_path / "one", tmp_path / "two"):
        monkeypatch.setenv(paths.HOME_VARIABLE, str(home))
        assert {name: folder() for name, folder in FOLDERS.items()} == {name: home / name for name in FOLDERS}
        assert paths.config_file() == home / "config" / "config.toml"
        assert not home.exists()


def test_home_may_be_relative_or_start_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(paths.HOME_VARIABLE, "here")
    assert paths.cache_dir() == Path.cwd() / "here" / "cache"
    monkeypatch.setenv(paths.HOME_VARIABLE, "~/there")
    assert paths.cache_dir() == Path("~/there/cache").expanduser()


@pytest.mark.skipif(os.name == "nt", reason="the XDG variables are of Linux and macOS")
@pytest.mark.parametrize("home", [None, ""])
def test_by_the_systems_custom_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str | None) -> None:
    if home is None:
        monkeypatch.delenv(paths.HOME_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(paths.HOME_VARIABLE, home)
    monkeypatch.setenv("HOME", str(tmp_path))
    folders = [folder() for folder in FOLDERS.values()]
    assert all("localspec" in folder.parts and folder.is_absolute() for folder in folders)
    assert len(set(folders)) >= 3


@pytest.mark.parametrize(
    "value", ["0x" + "f" * 5_000, "1" * 5_000, "[0x" + "f" * 5_000 + "]", "{a = 0x" + "f" * 5_000 + "}"]
)
def test_a_number_of_thousands_of_digits_is_told(tmp_path: Path, value: str) -> None:
    for key in ("ctx", "pair", "chat", "models_dir"):
        assert len(str(error_of(tmp_path, f"{key} = {value}"))) < 400
