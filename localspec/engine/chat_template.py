"""Messages to prompt text, by the Jinja template that a model carries in its GGUF metadata."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

import jinja2

from localspec.engine.requests import Message
from localspec.engine.template_sandbox import TemplateRefusalError, TooMuchError, compile_template, run
from localspec.errors import ChatTemplateError, UsageError

__all__ = ["FALLBACK_SOURCE", "ChatTemplate"]

FALLBACK_SOURCE: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML, for a model that carries no template. It is a guess: whoever uses it says so to the user."""

MAX_SOURCE: Final = 128 * 1024  # characters; the longest template in wide use has 17,000
_MAX_MESSAGES: Final = 2_000_000  # characters; half a million tokens of text, and the template has room to copy it
_USE_RAW: Final = "Use the raw prompt (no template) with this model, or another file of it."


class ChatTemplate:
    """One compiled template. Renders as `transformers` does, within the bounds of `template_sandbox`.

    Raises:
        ChatTemplateError: the source is too long or not valid Jinja; the message names the line.
    """

    def __init__(self, source: str, *, bos_token: str, eos_token: str) -> None:
        if len(source) > MAX_SOURCE:
            raise ChatTemplateError(
                f"The model's chat template has {len(source):,} characters; at most {MAX_SOURCE:,} are accepted.",
                hint=_USE_RAW,
            )
        self._special_tokens = {"bos_token": bos_token, "eos_token": eos_token}
        try:
            self._template = compile_template(source)
        except jinja2.TemplateSyntaxError as error:
            raise ChatTemplateError(
                f"The model's chat template is not valid Jinja, line {error.lineno}: {_words(error)}", hint=_USE_RAW
            ) from error
        except Exception as error:  # a program from outside: the compiler may fail in any way
            raise ChatTemplateError(
                f"The model's chat template cannot be compiled: {_words(error)}", hint=_USE_RAW
            ) from error

    @classmethod
    def fallback(cls, *, bos_token: str = "", eos_token: str = "") -> Self:
        """ChatML, for a model without a template of its own."""
        return cls(FALLBACK_SOURCE, bos_token=bos_token, eos_token=eos_token)

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        extra: Mapping[str, object] | None = None,
    ) -> str:
        """The prompt text, special tokens included, ready for the assistant's turn unless told otherwise.

        `extra` are further variables of the template (`enable_thinking`, `tools` ...). When the template itself refuses
        a conversation that starts with a system message, its text goes before the first user message instead.

        Raises:
            ChatTemplateError: the template refuses the conversation (in its own words), fails, or does too much.
            UsageError: the messages alone are longer than anything a model can read.
        """
        n_chars = sum(len(message.content) for message in messages)
        if n_chars > _MAX_MESSAGES:
            raise UsageError(
                f"The conversation has {n_chars:,} characters; at most {_MAX_MESSAGES:,} can be sent.",
                hint="Shorten the prompt or start a new chat.",
            )
        turns = [{**message.more, "role": message.role, "content": message.content} for message in messages]
        variables = {**self._special_tokens, "add_generation_prompt": add_generation_prompt, **(extra or {})}
        try:
            return self._run(turns, variables)
        except TemplateRefusalError as refusal:
            merged = _without_system(turns)
            if merged is None:
                raise _refused(refusal) from refusal
        try:
            return self._run(merged, variables)
        except TemplateRefusalError as refusal:
            raise _refused(refusal) from refusal

    def _run(self, turns: list[dict[str, Any]], variables: Mapping[str, Any]) -> str:
        try:
            return run(self._template, {**variables, "messages": turns})
        except TemplateRefusalError:
            raise
        except TooMuchError as error:
            raise ChatTemplateError(
                f"The model's chat template was stopped: {error}. No chat needs that; the file may be hostile.",
                hint=_USE_RAW,
            ) from error
        except Exception as error:  # a program from outside: it may fail in any way
            line = _line_of(error)
            raise ChatTemplateError(
                f"The model's chat template failed{f' in line {line}' if line else ''}: {_words(error)}", hint=_USE_RAW
            ) from error


def _without_system(turns: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """The turns with a leading system text moved into the first user turn; None where that cannot be done."""
    if len(turns) < 2 or turns[0]["role"] != "system" or turns[1]["role"] != "user":
        return None
    system, user, *rest = turns
    return [{"role": "user", "content": f"{system['content']}\n\n{user['content']}"}, *rest]


def _refused(refusal: TemplateRefusalError) -> ChatTemplateError:
    return ChatTemplateError(
        f'The model\'s chat template refuses this conversation: "{_words(refusal)}"',
        hint="Change the messages as it says; user and assistant usually have to take turns.",
    )


def _words(error: Exception) -> str:
    """An error's text without control characters: the template chose it, and it goes to a terminal."""
    if isinstance(error, jinja2.TemplateError):
        text = error.message or type(error).__name__
    else:
        text = f"{type(error).__name__}: {error}"
    return "".join(char if char.isprintable() else " " for char in text[:400]).strip()


def _line_of(error: Exception) -> int | None:
    """The template's line: Jinja puts frames of the template into the traceback, in place of its compiled code."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if "__jinja_exception__" in frame.f_globals]
    return lines[-1] if lines else None
