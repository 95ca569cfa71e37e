"""What all request bodies have in common: unknown fields are refused by name, and null means not given."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, model_validator

__all__ = ["BODY_CONFIG", "RequestBody", "text_or_list"]

# Types are JSON's own: no number in quotes, no true for 1.
BODY_CONFIG: Final = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class RequestBody(BaseModel):
    """A JSON object from a client."""

    model_config = BODY_CONFIG

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, body: Any) -> Any:
        """Clients send null for a field that they leave to the server."""
        return {key: value for key, value in body.items() if value is not None} if isinstance(body, dict) else body


def text_or_list(value: object) -> str:
    """For a field that takes both: the tag of the form that was sent, so that errors are about that one.

    Tags are in brackets, and never part of the names in error objects.
    """
    return "[list]" if isinstance(value, list) else "[text]"
