"""The law of replies through the engine is the target's own: chi-square against exact probabilities, fixed seeds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from localspec.engine.loader import LoadedPair
from localspec.engine.requests import Mode, SamplingParams
from localspec.llama.sampler import SamplerChain
from tests.engine.conftest import InProcessEngine, raw, tokens_of
from tests.native_fixtures import TinyModels

pytestmark = [pytest.mark.native, pytest.mark.slow]

N_TOKENS = 3
N_REPLIES = 1_500
PROMPT = "aXbXcX aXbXcX aX"  # repetition, so that lookup has something to propose

SAMPLINGS = {
    "truncated": SamplingParams(temperature=1.6, top_k=4, min_p=0.0),
    "penalties": SamplingParams(temperature=1.4, top_k=5, min_p=0.0, presence_penalty=0.7, repeat_penalty=1.2),
    "grammar": SamplingParams(temperature=2.0, min_p=0.0, top_p=1.0, grammar='root ::= [ab] ("x" | "y" "z") [a-c]'),
}


def exact_law(pair: LoadedPair, sampling: SamplingParams) -> dict[tuple[int, ...], float]:
    """Probability of every reply of N_TOKENS tokens, by walking the target's own distributions."""
    model, context = pair.target.model, pair.target.context
    prompt = model.tokenize(PROMPT, add_special=True, parse_special=False)
    law: dict[tuple[int, ...], float] = {}

    def walk(reply: tuple[int, ...], probability: float) -> None:
        if len(reply) == N_TOKENS or (reply and reply[-1] in model.end_of_generation):
            law[reply] = law.get(reply, 0.0) + probability
            return
        with SamplerChain(model, sampling, n_ctx=context.n_ctx, seed=0) as sampler:
            sampler.accept_prompt(prompt)
            for token in reply:
                sampler.accept(token)
            context.clear_all()
            context.add([*prompt, *reply], position=0, n_outputs=1)
            context.decode()
            distribution = sampler.distribution(context.logits(len(prompt) + len(reply) - 1))
        for token, p in zip(distribution.ids, distribution.probs, strict=True):
            walk((*reply, int(token)), probability * float(p))

    walk((), 1.0)
    context.clear_all()
    return law


def chi_square_deviations(counts: Counter[tuple[int, ...]], law: dict[tuple[int, ...], float], n: int) -> float:
    """How many standard deviations the chi-square statistic is above its mean; rare replies count as one cell."""
    assert set(counts) <= set(law), "a reply that the target cannot give"
    cells: list[tuple[float, float]] = []
    rare_seen = rare_expected = 0.0
    for reply, probability in law.items():
        if n * probability < 5:
            rare_seen, rare_expected = rare_seen + counts[reply], rare_expected + n * probability
        else:
            cells.append((counts[reply], n * probability))
    if rare_expected > 1:
        cells.append((rare_seen, rare_expected))
    statistic = sum((seen - expected) ** 2 / expected for seen, expected in cells)
    freedom = len(cells) - 1
    return (statistic - freedom) / math.sqrt(2 * freedom)


@pytest.mark.parametrize("name", SAMPLINGS)
@pytest.mark.parametrize("drafter", ["near", "stranger", "lookup", "plain"])
def test_replies_follow_the_targets_law(
    load: Callable[..., LoadedPair], tiny_models: TinyModels, name: str, drafter: str
):
    draft = tiny_models.stranger if drafter == "stranger" else tiny_models.draft
    pair = load(tiny_models.target, draft)
    mode = {"lookup": Mode.LOOKUP, "plain": Mode.PLAIN}.get(drafter, Mode.DRAFT)
    law = exact_law(pair, SAMPLINGS[name])
    assert sum(law.values()) == pytest.approx(1.0)
    engine = InProcessEngine(pair)
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(N_REPLIES):
        request = raw(
            PROMPT,
            mode=mode,
            sampling=replace(SAMPLINGS[name], seed=seed),
            max_tokens=N_TOKENS,
            num_speculative_tokens=2,
        )
        counts[tuple(tokens_of(engine.run(request)))] += 1
        engine.events.clear()
    assert chi_square_deviations(counts, law, N_REPLIES) < 4.0
