"""llama.cpp's `POST /apply-template`: a chat as the text that the model reads, for clients that count its tokens."""

from __future__ import annotations

from typing import cast

from fastapi import APIRouter
from pydantic import BaseModel

from localspec.engine.questions import Render
from localspec.server.chat_messages import turn_of
from localspec.server.chat_request import ChatRequest
from localspec.server.chat_turn import chat_turn
from localspec.server.state import Service

__all__ = ["router"]

router = APIRouter(tags=["llama.cpp"])


class TemplateAnswer(BaseModel):
    """A chat as text."""

    prompt: str


@router.post("/apply-template")
async def apply_template(body: ChatRequest, service: Service) -> TemplateAnswer:
    """What the model's chat template makes of a chat, which does not run. Takes the whole body of a chat."""
    turn = await chat_turn(
        service,
        [turn_of(message) for message in body.messages],
        tools=body.tools,
        tool_choice=body.tool_choice,
        parallel_tool_calls=body.parallel_tool_calls,
        variables=body.template_variables(),
    )
    return TemplateAnswer(prompt=cast(str, await service.ask(Render(turn.prompt))))
