"""From a prompt to tokens: the model's chat template, then its tokenizer."""

from __future__ import annotations

from localspec.engine.chat_template import ChatTemplate
from localspec.engine.infill import infill_tokens
from localspec.engine.requests import DEFAULT_N_CTX, ChatPrompt, InfillPrompt, MixedPrompt, Prompt, RawPrompt
from localspec.errors import UnsupportedModelError, UsageError
from localspec.llama.fill_in import fill_in_tokens
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

    def encode(self, prompt: Prompt, *, n_ctx: int = DEFAULT_N_CTX, n_reply: int | None = None) -> list[int]:
        """The prompt's tokens. The context and the tokens wanted of the reply bound what an infill prompt takes.

        Raises:
            ChatTemplateError: the template is not valid, or refuses the messages.
            UnsupportedModelError: the model does not fill in.
            UsageError: a token id does not exist.
        """
        match prompt:
            case ChatPrompt():
                text = self.render(prompt)
                if self._model.adds_bos:
                    # Most templates write the BOS token themselves; the tokenizer adds it a second time.
                    text = text.removeprefix(self._model.text_of(self._model.bos))
                return self._tokenize(text, parse_special=True)
            case RawPrompt():
                return self._tokenize(prompt.text, parse_special=prompt.parse_special)
            case MixedPrompt():
                return self._mixed(prompt)
            case InfillPrompt():
                return self._infill(prompt, n_ctx, n_reply)

    def render(self, prompt: ChatPrompt) -> str:
        """The text that the chat template makes of a chat.

        Raises:
            ChatTemplateError: the template is not valid, or refuses the messages.
        """
        variables = dict(prompt.variables)
        if prompt.tools:
            variables["tools"] = list(prompt.tools)
        return self._chat_template().render(prompt.messages, extra=variables)

    def _mixed(self, prompt: MixedPrompt) -> list[int]:
        tokens: list[int] = []
        for i, part in enumerate(prompt.parts):
            if isinstance(part, str):
                tokens += self._tokenize(part, add_special=i == 0, parse_special=True)
            elif 0 <= part < self._model.n_vocab:
                tokens.append(part)
            else:
                raise UsageError(
                    f"The prompt has token {part}; {self._model.name} has tokens 0 to {self._model.n_vocab - 1}.",
                    hint="Use token ids of this model.",
                )
        return tokens

    def _infill(self, prompt: InfillPrompt, n_ctx: int, n_reply: int | None) -> list[int]:
        marks = fill_in_tokens(self._model)
        if marks is None:
            raise UnsupportedModelError(
                f"{self._model.name} cannot fill in text: its vocabulary has no fill-in-the-middle tokens.",
                hint="Load a model that was trained for it, such as Qwen2.5-Coder.",
            )
        return infill_tokens(
            prompt,
            marks,
            lambda text: self._model.tokenize(text, add_special=False, parse_special=False),
            bos=self._model.bos if self._model.adds_bos else None,
            n_ctx=n_ctx,
            n_reply=n_reply,
        )

    def _tokenize(self, text: str, *, parse_special: bool, add_special: bool = True) -> list[int]:
        tokens = self._model.tokenize(text, add_special=add_special, parse_special=parse_special)
        # Some tokenizers close every text with EOS; a prompt is to be continued.
        if add_special and self._model.adds_eos and tokens and tokens[-1] == self._model.eos:
            tokens.pop()
        return tokens

    def _chat_template(self) -> ChatTemplate:
        if self._template is None:
            bos, eos = self._model.text_of(self._model.bos), self._model.text_of(self._model.eos)
            if self._source is None:
                self._template = ChatTemplate.fallback(bos_token=bos, eos_token=eos)
            else:
                self._template = ChatTemplate(self._source, bos_token=bos, eos_token=eos)
        return self._template
