"""The prompts that speeds are measured on, in the kinds that separate the sources of drafts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localspec.engine.requests import ChatPrompt, Message
from localspec.errors import UsageError

STANDARD: Final = Path(__file__).with_name("standard.jsonl")


@dataclass(frozen=True, slots=True)
class Workload:
    """One prompt. `kind` is chat, reasoning, code, edit, summary, extraction or rag."""

    kind: str
    name: str
    system: str | None
    prompt: str
    max_tokens: int

    @property
    def chat(self) -> ChatPrompt:
        """The prompt as a chat's first turn."""
        system = () if self.system is None else (Message("system", self.system),)
        return ChatPrompt((*system, Message("user", self.prompt)))


def read_workloads(file: Path = STANDARD) -> list[Workload]:
    """The workloads of a JSON Lines file with the fields of `Workload`.

    Raises:
        UsageError: the file cannot be read, or a line is not such an object; the message names the line.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The workload file {file} cannot be read: {error}.") from error
    workloads = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                workloads.append(Workload(**json.loads(line)))
            except (TypeError, ValueError) as error:
                raise UsageError(f"{file}, line {number}: {error}.") from error
    if not workloads:
        raise UsageError(f"The workload file {file} is empty.")
    return workloads
