"""The code in a reply, as it is copied."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.tui.code import language_of
from localspec.tui.markdown_text import parse_markdown


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A fenced block: the language that it names, or "", and its text."""

    language: str
    code: str


def code_blocks(source: str) -> list[CodeBlock]:
    """All code blocks of a Markdown text, in order; the empty ones are left out."""
    return [
        CodeBlock(language_of(token.info), token.content.removesuffix("\n"))
        for token in parse_markdown(source)
        if token.type in ("fence", "code_block") and token.content.strip()
    ]
