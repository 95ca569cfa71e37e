"""The page at / and its numbers: what the JSON says, what the script makes of it, and that nothing else may run."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from localspec.engine.events import LoadFailed, Loading, Prefilling, Queued
from localspec.engine.questions import AnswerValue, EngineUsage, Question, SlotUsage
from localspec.engine.requests import GenerateRequest, Mode, RawPrompt
from localspec.errors import ModelFileError
from localspec.server.security import protected
from localspec.server.service import RequestInfo
from localspec.server.settings import ServerSettings
from localspec.server.status import Status
from localspec.server.status_page import content_security_policy, page
from tests.server.http_client import HttpClient
from tests.server.observed_app import GREEDY, Observed, observed
from tests.server.scripted_engine import ScriptedEngine, begun, finished, step


def usage(_: Question) -> AnswerValue:
    return EngineUsage((SlotUsage(512, None),), 0, 2048)


async def status_of(it: Observed) -> dict[str, Any]:
    exchange = await it.client.get("/status.json")
    assert exchange.status == 200
    assert exchange.headers["cache-control"] == "no-store"
    return dict(exchange.json)


# --- the numbers ------------------------------------------------------------------------------------------------------


async def test_numbers_after_a_reply() -> None:
    async with observed(ScriptedEngine(answers=usage)) as it:
        await it.reply([*begun(), step("a", "b", "c"), step("d"), finished()])
        shown = await status_of(it)

    assert shown["state"] == "ready"
    assert shown["pair"]["draft"] == "SmolLM2-135M-Instruct Q4_1"
    assert shown["acceptance_rate"] == 0.2
    assert shown["history"]["interval_s"] == 10
    assert {len(shown["history"][name]) for name in ("n_tokens", "n_drafted", "n_accepted")} == {90}
    assert sum(shown["history"]["n_tokens"]) == 4
    assert shown["steps"] == {"draft_model": 2, "copied": 0, "none": 0}
    assert shown["cache"] == {"n_used": 512, "n_most": 2048}
    assert shown["slots"] == []
    assert (shown["n_slots"], shown["n_waiting"], shown["n_queue"]) == (2, 0, 2)
    assert shown["totals"]["n_requests"] == 1
    assert shown["totals"]["n_cached_tokens"] == 30
    (cohort,) = shown["cohorts"]
    assert (cohort["endpoint"], cohort["temperature"], cohort["mode"]) == ("/v1/completions", "0", "auto")
    assert (cohort["n_drafted"], cohort["n_accepted"], cohort["is_off"]) == (10, 2, False)


async def test_slots_and_queue_while_requests_run() -> None:
    async with observed() as it:
        requests = [GenerateRequest(RawPrompt("a"), GREEDY) for _ in range(3)]
        replies = [it.service.generate(each, RequestInfo.of("/infill", each)) for each in requests]
        it.engine.play([Queued("", 1, Mode.AUTO), Prefilling("", 8, 42, 4)], request=0)
        it.engine.play([*begun(), step("secret", "text")], request=1)
        await it.until(lambda: it.observation.totals.n_tokens == 2)
        exchange = await it.client.get("/status.json")
        for reply in replies:
            await reply.aclose()

    reading, writing = exchange.json["slots"]
    assert (reading["phase"], reading["n_read"], reading["n_prompt"]) == ("reading", 8, 42)
    assert (writing["phase"], writing["n_read"], writing["n_prompt"], writing["n_tokens"]) == ("writing", 42, 42, 10)
    assert writing["endpoint"] == "/infill"
    assert exchange.json["n_waiting"] == 1
    assert b"secret" not in exchange.body


async def test_before_and_after_a_load_that_fails_without_a_path() -> None:
    engine = ScriptedEngine(load_events=())
    async with observed(engine, starts=False) as it:
        shown = await status_of(it)
        assert (shown["state"], shown["pair"], shown["model"]) == ("loading", None, None)

        it.service._note_load(Loading("Loading the target", 0.5))
        shown = await status_of(it)
        assert (shown["note"], shown["progress"]) == ("Loading the target", 0.5)

        it.service._note_load(LoadFailed(ModelFileError("/secret/folder/model.gguf is no model")))
        exchange = await it.client.get("/status.json")
        assert exchange.json["state"] == "failed"
        assert exchange.json["note"]
        assert b"secret" not in exchange.body


# --- the page ---------------------------------------------------------------------------------------------------------


class Tags(HTMLParser):
    """All tags of the page with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


async def test_the_page_may_run_its_own_script_and_nothing_else() -> None:
    async with observed() as it:
        exchange = await it.client.get("/")

    assert exchange.status == 200
    assert exchange.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.strip().split(" ", 1) for part in exchange.headers["content-security-policy"].split(";"))
    html = exchange.body.decode()
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        assert policy[directive] == f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"


async def test_with_a_key_the_browser_asks_for_it_and_then_has_page_and_numbers() -> None:
    async with observed() as it:
        client = HttpClient(protected(it.app, ServerSettings(api_keys=("sesame",))))
        asked = await client.get("/", headers={"accept": "text/html"})
        refused = await client.get("/status.json")
        given = {"authorization": "Basic " + base64.b64encode(b"anybody:sesame").decode()}
        statuses = [(await client.get(path, headers=given)).status for path in ("/", "/status.json", "/metrics")]

    assert (asked.status, refused.status) == (401, 401)
    assert asked.headers["www-authenticate"].startswith("Basic ")
    assert not refused.headers["www-authenticate"].startswith("Basic ")  # polling opens no dialogue
    assert statuses == [200, 200, 200]


def test_another_script_changes_the_policy() -> None:
    assert content_security_policy(page()) != content_security_policy(page().replace("2000", "2001"))


def test_the_page_needs_nothing_from_elsewhere_and_has_nothing_that_its_policy_forbids() -> None:
    for tag, attributes in Tags().tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
        for name in ("src", "href", "action"):
            assert attributes.get(name, "data:,") == "data:,", tag
    script = page().partition("<script>")[2]
    for risky in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("):
        assert risky not in script


def test_every_element_that_the_script_names_is_there_once() -> None:
    ids = [attributes["id"] for _, attributes in Tags().tags if "id" in attributes]
    script = page().partition("<script>")[2]

    assert len(ids) == len(set(ids))
    named = set(re.findall(r'(?:byId|put|fillTable)\("([a-z-]+)"', script))
    named |= {f"{name}-{part}" for name in ("acceptance", "speed") for part in ("chart", "from", "range")}
    named |= {f"steps-{name}" for name in ("draft_model", "copied", "none")}
    assert named <= set(ids)


# --- its script, without a browser ------------------------------------------------------------------------------------

node = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")


def run_script(expression: str, tmp_path: Path) -> Any:
    """The value of an expression in the page's script."""
    (script,) = re.findall(r"<script>(.*?)</script>", page(), re.DOTALL)
    file = tmp_path / "page.js"
    file.write_text(f"{script}\nconsole.log(JSON.stringify({expression}));\n", "utf-8")
    done = subprocess.run(["node", str(file)], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@node
def test_numbers_as_the_page_writes_them(tmp_path: Path) -> None:
    cases = {
        "[0, 9999, 12345, 99949, 123456, 1234567].map(count)": ["0", "9999", "12.3 k", "99.9 k", "123 k", "1.2 M"],
        "[null, 0, 0.555, 1].map(percent)": ["–", "0 %", "56 %", "100 %"],
        "[null, 0, 52.34, 99.96, 1234.5].map(speed)": ["–", "0.0", "52.3", "100", "1235"],
        "[0, 59.4, 65, 3661, 90000].map(span)": ["0 s", "59 s", "1:05 min", "1:01 h", "1 d 1 h"],
    }

    assert run_script(f"[{', '.join(cases)}]", tmp_path) == list(cases.values())


@node
async def test_the_page_draws_what_the_server_sends(tmp_path: Path) -> None:
    async with observed() as it:
        await it.reply([*begun(), step("a", "b", "c"), step("d"), finished()])
        shown = await status_of(it)
    history = shown["history"]
    history["n_tokens"] = [0] * 86 + [40, 0, 20, 4]
    history["n_drafted"] = [0] * 86 + [20, 0, 0, 10]
    history["n_accepted"] = [0] * 86 + [15, 0, 0, 2]
    sent = json.dumps(shown)

    accepted, rates, path, parts, sentence = run_script(
        f"((s) => [acceptances(s.history), speeds(s.history), linePath([0.5, null, 1, 0, null, 2], 100, 10, 1),"
        f" parts([1, 0, 3]), sentence(s.totals)])({sent})",
        tmp_path,
    )

    assert accepted == [None] * 86 + [0.75, None, None, 0.2]
    assert rates == [None] * 86 + [4, None, 2]  # the last interval goes on
    assert path == "M0.0 5.0h.01M40.0 0.0h.01L60.0 10.0M100.0 0.0h.01"
    assert parts == [{"begin": 0, "width": 25}, {"begin": 25, "width": 0}, {"begin": 25, "width": 75}]
    assert sentence == (
        "1 request, 0 failed and 0 refused; 12 prompt tokens read, 30 found in the cache; "
        "4 tokens generated, 2 of 10 drafted tokens accepted."
    )


def test_the_script_reads_fields_that_the_server_sends() -> None:
    script = page().partition("<script>")[2]
    read = set(re.findall(r"\bstatus\.(\w+)", script.partition("function show(")[2].partition("function note(")[0]))

    assert read <= set(Status.model_fields)
    assert {"tokens_per_second", "acceptance_rate", "history", "slots", "cohorts"} <= read
