"""Ready-made settings for editors and clients: text to paste, each in its program's own form.

Keys are those of the programs' documentation: Continue's config.yaml reference, Zed's pages on AI providers, Cline's
on OpenAI-compatible ones, the READMEs of llama.vim and llama.vscode, aider's pages on models and options.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from localspec.printable import one_line

__all__ = ["PROGRAMS", "Served", "base_url", "is_any_address", "settings_for"]

_ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
_KEY: Final = "YOUR_API_KEY"
_NO_KEY: Final = "no-key-needed"  # several programs send none at all only if they are given none, and refuse that


def is_any_address(host: str) -> bool:
    """Whether this host stands for all addresses of the machine."""
    return host.strip("[]") in _ANY_ADDRESS


def base_url(host: str, port: int) -> str:
    """Where a program on this machine finds a server that listens on `host`."""
    name = _ANY_ADDRESS.get(host.strip("[]"), host.strip("[]"))
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


@dataclass(frozen=True, slots=True)
class Served:
    """What the settings are about: `url` without a path, and the model by the name that it is served by."""

    url: str
    model: str
    n_ctx: int
    needs_key: bool

    @property
    def openai_url(self) -> str:
        """The base URL for clients of OpenAI."""
        return f"{self.url}/v1"

    @property
    def key(self) -> str:
        """What stands in the place of the key."""
        return _KEY if self.needs_key else _NO_KEY

    @property
    def reply_tokens(self) -> int:
        """A share of the context for replies, where a program wants to divide it beforehand."""
        return max(1, self.n_ctx // 4)


def settings_for(program: str, served: Served) -> str:
    """The text for one of PROGRAMS. It ends with a line end."""
    return PROGRAMS[program](served)


def _continue(served: Served) -> str:
    return f"""\
# Continue: ~/.continue/config.yaml. The second entry completes code; that needs a model that fills in the middle.
name: localspec
version: 1.0.0
schema: v1
models:
  - name: localspec
    provider: openai
    model: {_quoted(served.model)}
    apiBase: {_quoted(served.openai_url)}
    apiKey: {_quoted(served.key)}
    roles: [chat, edit, apply]
    capabilities: [tool_use]
    defaultCompletionOptions:
      contextLength: {served.n_ctx}
      maxTokens: {served.reply_tokens}
  - name: localspec autocomplete
    provider: llama.cpp
    model: {_quoted(served.model)}
    apiBase: {_quoted(served.url)}
    apiKey: {_quoted(served.key)}
    roles: [autocomplete]
    defaultCompletionOptions:
      contextLength: {served.n_ctx}
"""


def _zed(served: Served) -> str:
    model = {
        "name": served.model,
        "display_name": f"{served.model} (localspec)",
        "max_tokens": served.n_ctx,
        "max_output_tokens": served.reply_tokens,
        "capabilities": {
            "tools": True,
            "images": False,
            "parallel_tool_calls": False,
            "prompt_cache_key": False,
            "chat_completions": True,
        },
    }
    settings = {
        "language_models": {
            "openai_compatible": {"localspec": {"api_url": served.openai_url, "available_models": [model]}}
        },
        "edit_predictions": {
            "provider": "open_ai_compatible_api",
            "open_ai_compatible_api": {
                "api_url": f"{served.openai_url}/completions",
                "model": served.model,
                "max_output_tokens": 64,
            },
        },
    }
    return (
        "// Zed: settings.json. Keys are not in it: start Zed with "
        f"LOCALSPEC_API_KEY={served.key} and, for the edit\n"
        f"// predictions, which need a model that fills in the middle, ZED_OPEN_AI_COMPATIBLE_EDIT_PREDICTION_API_KEY="
        f"{served.key}.\n{_json(settings)}"
    )


def _cline(served: Served) -> str:
    words = ["cline", "auth", "--provider", "openai-compatible", "--apikey", served.key]
    words += ["--modelid", served.model, "--baseurl", served.openai_url]
    return f"""\
# Cline: this command, or in its settings
#   API Provider         OpenAI Compatible
#   Base URL             {served.openai_url}
#   API Key              {served.key}
#   Model ID             {one_line(served.model)}
#   Context Window Size  {served.n_ctx}
#   Max Output Tokens    {served.reply_tokens}
{shlex.join(words)}
"""


def _llama_vim(served: Served) -> str:
    entries = {
        "endpoint_fim": f"{served.url}/infill",
        "endpoint_inst": f"{served.openai_url}/chat/completions",
        "model_fim": served.model,
        "model_inst": served.model,
        "api_key": served.key if served.needs_key else "",
    }
    lines = "".join(f"    \\ {_vim(key)}: {_vim(value)},\n" for key, value in entries.items())
    return (
        '" llama.vim: vimrc, before the plugin is loaded. It needs a model that fills in the middle.\n'
        f"let g:llama_config = {{\n{lines}    \\ }}\n"
    )


def _llama_vscode(served: Served) -> str:
    key = served.key if served.needs_key else ""
    settings = {
        "llama-vscode.endpoint": served.url,
        "llama-vscode.endpoint_chat": served.url,
        "llama-vscode.endpoint_tools": served.url,
        "llama-vscode.api_key": key,
        "llama-vscode.api_key_chat": key,
        "llama-vscode.api_key_tools": key,
        "llama-vscode.ai_model": served.model,
    }
    return f"// llama.vscode: settings.json. Completion needs a model that fills in the middle.\n{_json(settings)}"


def _aider(served: Served) -> str:
    model = f"openai/{served.model}"
    metadata = {
        model: {
            "max_tokens": served.reply_tokens,
            "max_input_tokens": served.n_ctx,
            "max_output_tokens": served.reply_tokens,
            "input_cost_per_token": 0,
            "output_cost_per_token": 0,
            "litellm_provider": "openai",
            "mode": "chat",
        }
    }
    return f"""\
# aider: .aider.conf.yml
model: {_quoted(model)}
openai-api-base: {_quoted(served.openai_url)}
openai-api-key: {_quoted(served.key)}

// aider: .aider.model.metadata.json, so that it knows the context
{_json(metadata)}"""


def _openai(served: Served) -> str:
    return f"""\
# The openai client for Python. Others: OPENAI_BASE_URL={served.openai_url} OPENAI_API_KEY={served.key}
from openai import OpenAI

client = OpenAI(base_url={_quoted(served.openai_url)}, api_key={_quoted(served.key)})
reply = client.chat.completions.create(
    model={_quoted(served.model)},
    messages=[{{"role": "user", "content": "Hello!"}}],
)
print(reply.choices[0].message.content)
"""


PROGRAMS: Final[Mapping[str, Callable[[Served], str]]] = MappingProxyType(
    {
        "continue": _continue,
        "zed": _zed,
        "cline": _cline,
        "llama.vim": _llama_vim,
        "llama.vscode": _llama_vscode,
        "aider": _aider,
        "openai": _openai,
    }
)


def _quoted(text: str) -> str:
    """As JSON, which YAML and Python read as it is."""
    return json.dumps(text, ensure_ascii=False)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _vim(text: str) -> str:
    """A literal string of Vim's: only the quote is doubled."""
    return "'" + text.replace("'", "''") + "'"
