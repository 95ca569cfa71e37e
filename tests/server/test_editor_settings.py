"""Settings for editors: each text is what its program reads, with the values of the endpoint where they belong."""

from __future__ import annotations

import ast
import json
import re
import shlex
from typing import Any

import pytest
import yaml

from localspec.cli.serve import Program
from localspec.server.editor_settings import PROGRAMS, Served, base_url, settings_for

NAMES = ["Qwen2.5-Coder-7B-Q4_K_M", "two words", 'it\'s "quoted" \\ $HOME', "émoji 🙂: #1", "- yaml: [x]"]
URL = "http://127.0.0.1:8123"


@pytest.fixture(params=NAMES)
def served(request: pytest.FixtureRequest) -> Served:
    return Served(URL, request.param, 16384, needs_key=True)


def jsonc(text: str) -> Any:
    """JSON with comments on lines of their own."""
    return json.loads("\n".join(line for line in text.splitlines() if not line.startswith("//")))


def test_continue(served: Served) -> None:
    config = yaml.safe_load(settings_for("continue", served))
    assert {"name", "version", "schema"} <= set(config)
    chat, completion = config["models"]
    assert (chat["provider"], chat["model"], chat["apiBase"]) == ("openai", served.model, f"{URL}/v1")
    assert (completion["provider"], completion["model"], completion["apiBase"]) == ("llama.cpp", served.model, URL)
    assert completion["roles"] == ["autocomplete"]
    assert chat["apiKey"] == completion["apiKey"] == "YOUR_API_KEY"
    assert chat["defaultCompletionOptions"]["contextLength"] == 16384


def test_zed(served: Served) -> None:
    settings = jsonc(settings_for("zed", served))
    provider = settings["language_models"]["openai_compatible"]["localspec"]
    assert provider["api_url"] == f"{URL}/v1"
    (model,) = provider["available_models"]
    assert (model["name"], model["max_tokens"]) == (served.model, 16384)
    prediction = settings["edit_predictions"]["open_ai_compatible_api"]
    assert (prediction["api_url"], prediction["model"]) == (f"{URL}/v1/completions", served.model)


def test_cline(served: Served) -> None:
    lines = settings_for("cline", served).splitlines()
    assert all(line.startswith("#") for line in lines[:-1])
    words = shlex.split(lines[-1])
    assert words[:2] == ["cline", "auth"]
    assert dict(zip(words[2::2], words[3::2], strict=True)) == {
        "--provider": "openai-compatible",
        "--apikey": "YOUR_API_KEY",
        "--modelid": served.model,
        "--baseurl": f"{URL}/v1",
    }


def test_llama_vim(served: Served) -> None:
    comment, first, *lines = settings_for("llama.vim", served).splitlines()
    assert comment.startswith('"')
    assert first == "let g:llama_config = {"
    assert all(line.startswith("    \\ ") for line in lines)
    literal = "{" + "".join(line.removeprefix("    \\ ") for line in lines)
    # Vim's literal strings: a doubled quote is a quote, everything else stands for itself.
    literal = re.sub(r"'((?:[^']|'')*)'", lambda found: repr(found[1].replace("''", "'")), literal)
    assert ast.literal_eval(literal) == {
        "endpoint_fim": f"{URL}/infill",
        "endpoint_inst": f"{URL}/v1/chat/completions",
        "model_fim": served.model,
        "model_inst": served.model,
        "api_key": "YOUR_API_KEY",
    }


def test_llama_vscode(served: Served) -> None:
    settings = jsonc(settings_for("llama.vscode", served))
    assert {name.partition(".")[0] for name in settings} == {"llama-vscode"}
    assert settings["llama-vscode.endpoint"] == settings["llama-vscode.endpoint_chat"] == URL
    assert settings["llama-vscode.ai_model"] == served.model


def test_aider(served: Served) -> None:
    config, metadata = settings_for("aider", served).split("\n\n")
    options = yaml.safe_load(config)
    assert options["openai-api-base"] == f"{URL}/v1"
    assert jsonc(metadata)[options["model"]]["max_input_tokens"] == 16384
    assert options["model"] == f"openai/{served.model}"


def test_openai(served: Served) -> None:
    tree = ast.parse(settings_for("openai", served))
    given = {node.arg: ast.literal_eval(node.value) for node in ast.walk(tree) if isinstance(node, ast.keyword)}
    assert (given["base_url"], given["api_key"], given["model"]) == (f"{URL}/v1", "YOUR_API_KEY", served.model)


def test_where_no_key_is_asked_for_none_has_to_be_filled_in() -> None:
    for program in PROGRAMS:
        assert "YOUR_API_KEY" not in settings_for(program, Served(URL, "m", 4096, needs_key=False))


def test_the_command_knows_every_program() -> None:
    assert {each.value for each in Program} == {*PROGRAMS, "all"}


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("::1", "http://[::1]:80"),
        ("[::1]", "http://[::1]:80"),
        ("box.example", "http://box.example:80"),
    ],
)
def test_a_url_that_programs_on_this_machine_reach(host: str, url: str) -> None:
    assert base_url(host, 80) == url
