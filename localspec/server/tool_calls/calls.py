"""Where readers of a format put the calls that they find, and how they say that there is none."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from localspec.server.tool_calls.deltas import Delta, ToolArguments, ToolCallStart
from localspec.server.tool_calls.source import Source
from localspec.server.tool_calls.tools import name_of, parameters_of


class NotACallError(Exception):
    """What was read is no call after all, or the reply ended within it."""


class CallSink:
    """Calls become deltas. Text that was read is given up to content until a call has begun, and then no more."""

    def __init__(self, source: Source, tools: Sequence[Mapping[str, Any]], emit: Callable[[Delta], None]) -> None:
        self._source = source
        self._emit = emit
        self._schemas = {name_of(tool): parameters_of(tool) for tool in tools}
        self.n_begun = 0
        self.is_open = False

    def schema(self, name: str) -> Mapping[str, Any]:
        """The JSON schema of a tool's arguments.

        Raises:
            NotACallError: there is no such tool.
        """
        if name not in self._schemas:
            raise NotACallError(name)
        return self._schemas[name]

    def begin(self, name: str) -> None:
        """A call of a tool that `schema` knows."""
        self._source.release()
        self.n_begun += 1
        self.is_open = True
        self._emit(ToolCallStart(self.n_begun - 1, f"call_{secrets.token_hex(12)}", name))

    def arguments(self, text: str) -> None:
        if text:
            self._emit(ToolArguments(self.n_begun - 1, text))

    def end(self) -> None:
        """The call is complete; what is read from here on may turn out to be content."""
        self.is_open = False
        self._source.hold()

    def call(self, name: str, arguments: str) -> None:
        """A whole call at once; the arguments are the text of a JSON object."""
        self.begin(name)
        self.arguments(arguments)
        self.end()
