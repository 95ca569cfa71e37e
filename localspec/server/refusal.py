"""An answer that says no before any route was asked, as an OpenAI error object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

__all__ = ["Refusal"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """`message` is read by whoever sent the request: nothing of this machine, and nothing of what was sent."""

    status: int
    message: str
    code: str
    headers: Mapping[str, str] = field(default_factory=dict)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        error = {"message": self.message, "type": "invalid_request_error", "param": None, "code": self.code}
        await JSONResponse({"error": error}, self.status, dict(self.headers))(scope, receive, send)
