"""From a prompt to tokens: the model's chat template, then its tokenizer."""

from __future__ import annotations

from localspec.engine.chat_template import ChatTemplate
from localspec.engine.requests import ChatPrompt, RawPrompt
from localspec.llama.model import Model


class PromptEncoder:
    """Encodes prompts for one model. Its template is compiled when the first chat comes: raw prompts need none."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._source = model.chat_template
        self._template: ChatTemplate | None = None

    @property
    def has_chat_template(self) -> bool:
        """False: the file holds no template, and chats are written as ChatML, the most common form."""
        return self._source is not None

    def encode(self, prompt: ChatPrompt | RawPrompt) -> list[int]:
        """The prompt's tokens.

        Raises:
            ChatTemplateError: the template is not valid, or refuses the messages.
        """
        if isinstance(prompt, RawPrompt):
            return self._tokenize(prompt.text, parse_special=False)
        text = self._chat_template().render(prompt.messages)
        if self._model.adds_bos:
            # Most templates write the BOS token themselves; the tokenizer adds it a second time.
            text = text.removeprefix(self._text_of(self._model.bos))
        return self._tokenize(text, parse_special=True)

    def _tokenize(self, text: str, *, parse_special: bool) -> list[int]:
        tokens = self._model.tokenize(text, add_special=True, parse_special=parse_special)
        # Some tokenizers close every text with EOS; a prompt is to be continued.
        if self._model.adds_eos and tokens and tokens[-1] == self._model.eos:
            tokens.pop()
        return tokens

    def _chat_template(self) -> ChatTemplate:
        if self._template is None:
            bos, eos = self._text_of(self._model.bos), self._text_of(self._model.eos)
            if self._source is None:
                self._template = ChatTemplate.fallback(bos_token=bos, eos_token=eos)
            else:
                self._template = ChatTemplate(self._source, bos_token=bos, eos_token=eos)
        return self._template

    def _text_of(self, token: int) -> str:
        return self._model.token_bytes(token, special=True).decode("utf-8", "replace") if token >= 0 else ""
