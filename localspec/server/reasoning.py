"""What of a reply is reasoning: the marks that a chat template uses around it, and whether a prompt already opens it.

Whether a model reasons is switched by the template's own variables (`enable_thinking`, `thinking`, `reasoning_effort`),
which requests set as `chat_template_kwargs`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# What else may separate the rendered prompt's last mark from the reply.
_SPACE: Final = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The texts that open and close reasoning at the start of a reply.

    `answer`: what some models put around the answer after it, or two empty texts. `in_channels`: the reply is a series
    of messages on channels, each with a header (harmony); opening and closing are those of the analysis channel.
    `markers`: which of the texts are control tokens, which are no text unless somebody asks for them.
    """

    opening: str
    closing: str
    answer: tuple[str, str] = ("", "")
    in_channels: bool = False
    markers: tuple[str, ...] = ()

    def starts_in(self, prompt_text: str) -> bool:
        """Whether a rendered prompt ends inside reasoning, so that the reply goes on with it."""
        return prompt_text.rstrip(_SPACE).endswith(self.opening)


_TAGS: Final = (
    Reasoning("<|START_THINKING|>", "<|END_THINKING|>", markers=("<|START_THINKING|>", "<|END_THINKING|>")),
    Reasoning("[THINK]", "[/THINK]", markers=("[THINK]", "[/THINK]")),
    Reasoning("<seed:think>", "</seed:think>", markers=("<seed:think>", "</seed:think>")),
    Reasoning("<think>", "</think>", markers=("<think>", "</think>")),
)
CHANNELS: Final = Reasoning(
    "<|channel|>analysis<|message|>",
    "<|end|>",
    in_channels=True,
    markers=("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>"),
)
_GRANITE_3_2: Final = Reasoning("Here is my thought process:", "Here is my response:")


def reasoning_of(chat_template: str | None) -> Reasoning | None:
    """How a model with this template marks its reasoning; None: the template knows of none."""
    template = chat_template or ""
    if "<|channel|>" in template and "<|message|>" in template:
        return CHANNELS
    if _GRANITE_3_2.opening in template and _GRANITE_3_2.closing in template:
        return _GRANITE_3_2
    for tags in _TAGS:
        if tags.opening in template or tags.closing in template:
            if "<response>" in template and "</response>" in template:
                return Reasoning(tags.opening, tags.closing, ("<response>", "</response>"), markers=tags.markers)
            return tags
    return None
