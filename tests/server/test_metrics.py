"""/metrics as Prometheus reads it."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.validation import METRIC_NAME_RE

from localspec.engine.events import Queued
from localspec.engine.questions import AnswerValue, AskUsage, EngineUsage, Question, SlotUsage
from localspec.engine.requests import GenerateRequest, Mode, RawPrompt
from localspec.errors import BusyError
from localspec.server.service import RequestInfo
from tests.server.http_client import HttpClient
from tests.server.observed_app import GREEDY, observed
from tests.server.scripted_engine import LOADED, ScriptedEngine, begun, finished, step

USAGE = EngineUsage((SlotUsage(300, "r1"), SlotUsage(212, None)), 0, 2048)


def usage(question: Question) -> AnswerValue:
    assert question == AskUsage()
    return USAGE


async def scrape(client: HttpClient) -> tuple[dict[str, Metric], dict[tuple[str, tuple[str, ...]], float]]:
    """Families by name, and values by the name of their series and its label values, in the order of the labels."""
    exchange = await client.get("/metrics")
    assert exchange.status == 200
    assert exchange.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in text_string_to_metric_families(exchange.body.decode())}
    samples = [each for family in families.values() for each in family.samples]
    return families, {(each.name, tuple(each.labels.values())): each.value for each in samples}


async def test_a_reply_is_counted_under_the_names_that_other_servers_share() -> None:
    async with observed(ScriptedEngine(answers=usage)) as it:
        await it.reply([*begun(), step("a", "b", "c"), step("d"), finished()])
        _, values = await scrape(it.client)

    def value(name: str, *labels: str) -> float:
        return values[f"localspec:{name}", labels]

    assert value("spec_decode_num_drafts_total") == 2
    assert value("spec_decode_num_draft_tokens_total") == 10
    assert value("spec_decode_num_accepted_tokens_total") == 2
    assert [value("spec_decode_num_accepted_tokens_per_pos_total", str(i)) for i in range(5)] == [1, 1, 0, 0, 0]
    assert [value("spec_decode_num_draft_tokens_per_pos_total", str(i)) for i in range(5)] == [2] * 5
    assert value("prompt_tokens_total") == 12
    assert value("prompt_tokens_cached_total") == 30
    assert value("tokens_predicted_total") == 4
    assert value("requests_processing") == 0
    assert value("requests_deferred") == 0
    assert value("requests_total", "/v1/completions", "finished") == 1
    assert value("request_success_total", "stop") == 1
    assert value("cohort_accepted_tokens_total", "/v1/completions", "auto", "0") == 2
    assert value("cohort_acceptance_ratio", "/v1/completions", "auto", "0") == 0.2
    assert value("steps_total", "draft_model") == 2
    assert value("verify_seconds_total") == 0.1
    assert value("kv_cache_tokens") == 512
    assert value("kv_cache_usage_ratio") == 0.25
    assert value("time_to_first_token_seconds_count", "/v1/completions") == 1
    assert value("pair_info", LOADED.draft_name or "", LOADED.target_name, "0.1.0") == 1


async def test_names_are_plain_and_every_family_says_what_it_is() -> None:
    async with observed() as it:
        await it.reply([*begun(), step("a"), finished()])
        families, values = await scrape(it.client)

    assert len(families) > 30
    for name, family in families.items():
        assert METRIC_NAME_RE.match(name)
        assert name.startswith("localspec:")
        assert family.documentation.endswith("."), name
    assert not [name for name, _ in values if name.endswith("_created")]


async def test_requests_that_run_wait_and_are_refused() -> None:
    async with observed(n_parallel=1, n_queue=1) as it:
        requests = [GenerateRequest(RawPrompt("a"), GREEDY) for _ in range(3)]
        info = RequestInfo.of("/infill", requests[0])
        replies = [it.service.generate(each, info) for each in requests[:2]]
        it.engine.play(begun(), request=0)
        it.engine.play([Queued("", 1, Mode.AUTO)], request=1)
        await it.until(lambda: it.observation.n_running == 1)
        with pytest.raises(BusyError):
            it.service.generate(requests[2], info)
        _, values = await scrape(it.client)
        for reply in replies:
            await reply.aclose()

    assert values["localspec:requests_processing", ()] == 1
    assert values["localspec:requests_deferred", ()] == 1
    assert values["localspec:requests_total", ("/infill", "refused")] == 1


async def test_clients_cannot_make_series() -> None:
    async with observed() as it:
        await it.reply([*begun(), step("a"), finished()])
        _, before = await scrape(it.client)
        for number in range(40):
            await it.reply([*begun(), step("a"), finished()], f"/made/up/{number}")
            if number == 0:
                _, with_other = await scrape(it.client)
        _, after = await scrape(it.client)

    assert set(after) == set(with_other)
    assert len(with_other) > len(before)
    assert not [labels for _, labels in after if any("made" in label for label in labels)]


async def test_a_busy_engine_delays_no_scrape_and_gets_one_question() -> None:
    engine = ScriptedEngine()
    engine.ask = lambda question, listener: engine.questions.append(question)  # type: ignore[method-assign]
    async with observed(engine) as it:
        async with asyncio.timeout(5):
            scrapes = await asyncio.gather(*(scrape(it.client) for _ in range(8)))
            scrapes.append(await scrape(it.client))

    assert engine.questions == [AskUsage()]
    for families, _ in scrapes:
        assert "localspec:kv_cache_tokens" not in families
        assert "localspec:requests_processing" in families


async def test_a_scrape_does_not_start_an_engine_that_has_died() -> None:
    async with observed(ScriptedEngine(process_id=None)) as it:
        await scrape(it.client)

    assert it.engine.questions == []


async def test_metrics_are_there_before_the_models_are() -> None:
    async with observed(starts=False) as it:
        families, _ = await scrape(it.client)

    assert "localspec:requests" in families
    assert "localspec:pair_info" not in families


async def test_names_of_models_cannot_break_the_text() -> None:
    wild = replace(LOADED, target_name='a"b\\c\nd\ud800' + "x" * 5000, draft_name=None)
    async with observed(ScriptedEngine(load_events=(wild,))) as it:
        families, _ = await scrape(it.client)

    (sample,) = families["localspec:pair_info"].samples
    assert re.match(r'a"b\\c.d�x+$', sample.labels["target"])
    assert len(sample.labels["target"]) == 200
    assert sample.labels["draft"] == ""
