"""Answers to questions about a loaded model; see questions.py."""

from __future__ import annotations

import logging

from localspec.engine.loader import LoadedPair
from localspec.engine.questions import (
    Answer,
    AnswerEvent,
    AnswerValue,
    AskUsage,
    Detokenize,
    Embed,
    Embedding,
    Question,
    Refusal,
    Render,
    Tokenize,
)
from localspec.engine.requests import Prompt, RawPrompt
from localspec.engine.scheduler import Scheduler
from localspec.errors import EngineError, LocalspecError, UnsupportedModelError, UsageError
from localspec.llama.embedder import Embedder
from localspec.llama.model import Model

logger = logging.getLogger(__name__)


class Answers:
    """Answers for one loaded pair. Close it before the pair."""

    def __init__(self, pair: LoadedPair) -> None:
        self._target = pair.target
        self._encoder = pair.encoder
        self._embedder: Embedder | None = None  # has a cache of its own, which only an embedding is worth

    def close(self) -> None:
        """Free what answers needed."""
        if self._embedder is not None:
            self._embedder.close()

    def answer(self, question: Question, scheduler: Scheduler) -> AnswerEvent:
        """The answer, or why there is none; never raises."""
        try:
            return Answer(self._value(question, scheduler))
        except LocalspecError as error:
            return Refusal(error)
        except Exception as error:
            logger.exception("A question was not answered: %s", type(question).__name__)
            return Refusal(EngineError(f"The engine failed: {type(error).__name__}: {error}."))

    def _value(self, question: Question, scheduler: Scheduler) -> AnswerValue:
        model = self._target.model
        match question:
            case Tokenize(text, add_special, parse_special):
                return tuple(model.tokenize(text, add_special=add_special, parse_special=parse_special))
            case Detokenize(tokens):
                return _bytes_of(model, tokens)
            case Render(prompt):
                return self._encoder.render(prompt)
            case AskUsage():
                return scheduler.usage()
            case Embed():
                return self._embed(question)

    def _embed(self, question: Embed) -> tuple[Embedding, ...]:
        model, context = self._target.model, self._target.context
        if not model.embeds:
            raise UnsupportedModelError(
                f"{model.name} was not made for embeddings.", hint="Load a model for embeddings beside this one."
            )
        if self._embedder is None:
            self._embedder = Embedder(model, n_ctx=context.n_ctx, n_threads=context.n_threads)
        texts = [self._text_tokens(self._embedder, prompt) for prompt in question.prompts]
        return tuple(Embedding(tuple(self._embedder.embed(text).tolist()), len(text)) for text in texts)

    def _text_tokens(self, embedder: Embedder, prompt: Prompt) -> list[int]:
        # A prompt is to be continued, a text to embed is complete: it keeps the EOS that its tokenizer closes it with.
        if isinstance(prompt, RawPrompt):
            return embedder.tokenize(prompt.text, parse_special=prompt.parse_special)
        return self._encoder.encode(prompt)


def _bytes_of(model: Model, tokens: tuple[int, ...]) -> bytes:
    for token in tokens:
        if not 0 <= token < model.n_vocab:
            raise UsageError(
                f"There is no token {token}; {model.name} has tokens 0 to {model.n_vocab - 1}.",
                hint="Use token ids of this model.",
            )
    return b"".join(model.token_bytes(token, special=True) for token in tokens)
