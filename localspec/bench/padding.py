"""Prompts of a given length: what a token costs depends on how much text lies before it.

The filling is made up from word lists and a fixed seed. It repeats words and patterns, as real text does, but no
sentence: prompt lookup must not find in it what no document would hold.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Final

from localspec.bench.streaming import StreamingEngine, events_of
from localspec.bench.workloads import Workload
from localspec.engine.events import Prefilling
from localspec.engine.requests import GenerateRequest, Mode
from localspec.errors import ContextFullError, EngineError, UsageError

_PEOPLE: Final = ("Abara", "Brandt", "Castellano", "Duval", "Eriksen", "Fontaine", "Grady", "Hoshino", "Ibrahim")
_VERBS: Final = ("counted", "delivered", "inspected", "moved", "ordered", "repaired", "returned", "sorted", "weighed")
_GOODS: Final = ("bearings", "candles", "copper", "ledgers", "lenses", "linen", "oats", "pumps", "seedlings", "valves")
_PLACES: Final = ("archive", "bakery", "bridge", "canal", "dairy", "foundry", "harbour", "library", "mill", "nursery")
_SEASONS: Final = ("In the spring of", "In the summer of", "In the autumn of", "In the winter of")
_REMARKS: Final = (
    "nobody objected",
    "two were found damaged",
    "the bill is still open",
    "it rained all day",
    "the gate had been left unlocked",
    "a second delivery was promised",
    "the scale showed less than the papers",
    "it took longer than planned",
)

_SEED: Final = 20_240_229
_TOLERANCE: Final = 8  # tokens


def filling(n_words: int) -> str:
    """The first `n_words` words of the made-up record; the same at every call."""
    words: list[str] = []
    for sentence in _sentences():
        if len(words) >= n_words:
            break
        words += sentence.split()
    return " ".join(words[:n_words])


def _sentences() -> Iterator[str]:
    rng = random.Random(_SEED)
    while True:
        yield (
            f"{rng.choice(_SEASONS)} {rng.randint(1850, 1990)} {rng.choice(_PEOPLE)} "
            f"{rng.choice(_VERBS)} {rng.randint(2, 980)} {rng.choice(_GOODS)} at the {rng.choice(_PLACES)}; "
            f"{rng.choice(_REMARKS)}."
        )


def padded(workload: Workload, n_words: int) -> Workload:
    """The workload behind `n_words` words that have nothing to do with it."""
    if not n_words:
        return workload
    prompt = f"A record to keep for later; the task comes after it.\n\n{filling(n_words)}\n\n{workload.prompt}"
    return replace(workload, prompt=prompt)


def count_prompt_tokens(engine: StreamingEngine, workload: Workload) -> int:
    """Tokens of the workload's prompt. The request is cancelled as soon as the engine has counted them.

    Raises:
        LocalspecError: the prompt cannot be used.
    """
    request = GenerateRequest(workload.chat, mode=Mode.PLAIN, max_tokens=1)
    try:
        with closing(events_of(engine, request)) as events:
            for event in events:
                if isinstance(event, Prefilling):
                    return event.n_total
    except ContextFullError as error:
        return error.n_tokens
    raise EngineError(f"The engine did not say how long the prompt of {workload} is.")


def fill_context(workload: Workload, n_context: int, count_tokens: Callable[[Workload], int]) -> Workload:
    """The workload, padded so that its prompt and a reply of its `max_tokens` fill `n_context` tokens (to 8, or less).

    Prompt and reply together: a model that was trained for 8192 tokens is measured at 8192, not beyond. `count_tokens`
    says how many tokens a workload's prompt has.

    Raises:
        UsageError: it is longer than that without any padding.
    """
    n_prompt = n_context - workload.max_tokens

    def count(n_words: int) -> int:
        return count_tokens(padded(workload, n_words))

    if (n_least := count(0)) > n_prompt:
        raise UsageError(
            f"{workload} does not fit a context of {n_context}: its prompt has {n_least} tokens and its reply may have "
            f"{workload.max_tokens}.",
            hint="Give a longer --context, or shorter replies with --max-tokens.",
        )
    return padded(workload, _most_words(count, n_least, n_prompt))


def _most_words(count: Callable[[int], int], n_least: int, n_wanted: int) -> int:
    """How many words bring `count` up to `n_wanted`, or at most `_TOLERANCE` below it.

    `count` grows with the words, and is `n_least` for none of them. Interpolates between too few and too many, since
    counting reads the whole text each time and words have about as many tokens everywhere.
    """
    fewest, n_fewest = 0, n_least
    most = n_wanted  # a word has a token at least
    n_most = count(most)
    while n_wanted - n_fewest > _TOLERANCE and most - fewest > 1:
        share = (n_wanted - n_fewest) / max(1, n_most - n_fewest)
        middle = min(max(fewest + int(share * (most - fewest)), fewest + 1), most - 1)
        n_middle = count(middle)
        if n_middle <= n_wanted:
            fewest, n_fewest = middle, n_middle
        else:
            most, n_most = middle, n_middle
    return fewest
