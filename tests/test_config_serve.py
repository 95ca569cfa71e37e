"""The section [serve] of the configuration, in its three layers."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.config import ServeSettings, load_settings
from localspec.errors import ConfigError


def serve(
    tmp_path: Path, text: str = "", environ: dict[str, str] | None = None, flags: dict[str, object] | None = None
) -> ServeSettings:
    file = tmp_path / "config.toml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file, environ or {}, flags or {}).serve


def test_without_a_word_it_is_for_this_machine_alone(tmp_path: Path) -> None:
    settings = serve(tmp_path)
    assert (settings.host, settings.port, settings.parallel, settings.cors_origins) == ("127.0.0.1", 8080, 4, ())


def test_every_setting_in_a_file(tmp_path: Path) -> None:
    text = """
        [serve]
        host = "0.0.0.0"
        port = 0
        parallel = 8
        queue = 0
        alias = "coder"
        timeout = 1.5
        acceptance_threshold = 0.4
        cors_origins = ["http://localhost:3000", "*"]
        allowed_hosts = ["box.example"]
        api_key_file = "keys.txt"
    """
    assert serve(tmp_path, text) == ServeSettings(
        host="0.0.0.0",
        port=0,
        parallel=8,
        queue=0,
        alias="coder",
        timeout=1.5,
        acceptance_threshold=0.4,
        cors_origins=("http://localhost:3000", "*"),
        allowed_hosts=("box.example",),
        api_key_file=tmp_path / "keys.txt",
    )


def test_flags_over_environment_over_file(tmp_path: Path) -> None:
    environ = {"LOCALSPEC_SERVE_PORT": "2", "LOCALSPEC_SERVE_QUEUE": "7"}
    settings = serve(tmp_path, "[serve]\nport = 1\nqueue = 6\nparallel = 5\n", environ, {"port": 3, "alias": None})
    assert (settings.port, settings.queue, settings.parallel, settings.alias) == (3, 7, 5, None)


def test_the_environment_lists_with_commas(tmp_path: Path) -> None:
    environ = {"LOCALSPEC_SERVE_CORS_ORIGINS": "http://a.example, http://b.example,"}
    assert serve(tmp_path, "", environ).cors_origins == ("http://a.example", "http://b.example")
    assert serve(tmp_path, "", environ, {"cors_origins": ("http://c.example",)}).cors_origins == ("http://c.example",)


def test_the_key_in_the_environment_is_no_setting(tmp_path: Path) -> None:
    assert serve(tmp_path, "", {"LOCALSPEC_API_KEY": "secret"}) == ServeSettings()


@pytest.mark.parametrize(
    ("text", "environ", "name", "words"),
    [
        ("[serve]\nport = 70000", {}, "serve.port", "70000"),
        ("[serve]\nparallel = 0", {}, "serve.parallel", "0"),
        ("[serve]\nqueue = -1", {}, "serve.queue", "-1"),
        ("[serve]\ntimeout = inf", {}, "serve.timeout", "inf"),
        ("[serve]\nhost = 1", {}, "serve.host", "string"),
        ("[serve]\ncors_origins = 5", {}, "serve.cors_origins", "5"),
        ("[serve]\ncors_origins = [1]", {}, "serve.cors_origins", "string"),
        ('[serve]\napi_key = "secret"', {}, "serve.api_key", "Did you mean api_key_file?"),
        ("serve = 8080", {}, "serve", "section"),
        ("", {"LOCALSPEC_SERVE_PORT": "eighty"}, "LOCALSPEC_SERVE_PORT", "eighty"),
        ("", {"LOCALSPEC_SERVE_PROT": "1"}, "LOCALSPEC_SERVE_PROT", "LOCALSPEC_SERVE_PORT"),
    ],
)
def test_what_cannot_be_used_is_named(
    tmp_path: Path, text: str, environ: dict[str, str], name: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        serve(tmp_path, text, environ)
    assert name in caught.value.message
    assert words in f"{caught.value.message} {caught.value.hint}"
