"""The text of a reply in pieces, each with where it came from: as the engine tells it, but copies are told apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from localspec.engine.events import Step, TextSpan
from localspec.speculative.drafter import DraftSource
from localspec.speculative.rejection import Origin


class TokenOrigin(StrEnum):
    """Where a token came from. To the engine a copy that was accepted is a draft like any other; to a reader not."""

    DRAFT = "draft"
    COPIED = "copied"
    RESIDUAL = "residual"
    BONUS = "bonus"
    TARGET = "target"


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a reply and where its last token came from."""

    text: str
    origin: TokenOrigin


def token_origin(origin: Origin, source: DraftSource | None) -> TokenOrigin:
    """The origin of a token in a step whose draft came from `source`."""
    if origin is Origin.DRAFT and source is DraftSource.LOOKUP:
        return TokenOrigin.COPIED
    return TokenOrigin(origin.value)


def token_origins(step: Step) -> list[TokenOrigin]:
    """The origins of the tokens that a step committed."""
    return [token_origin(origin, step.source) for origin in step.origins]


def spans_of(spans: Iterable[TextSpan], source: DraftSource | None) -> tuple[Span, ...]:
    """What a step released. Without stop strings no text waits for a later step: its drafts are those of this one."""
    return tuple(Span(span.text, token_origin(span.origin, source)) for span in spans)
