"""GET /v1/models."""

from __future__ import annotations

from localspec.engine.requests import Mode
from localspec.server.app import create_app
from localspec.server.service import EngineService
from localspec.server.settings import ServerSettings
from tests.server.http_client import HttpClient
from tests.server.scripted_engine import FACTS, LOADED


async def test_the_model_and_what_editors_size_their_prompts_by(client: HttpClient) -> None:
    for path in ("/v1/models", "/models"):
        listed = (await client.get(path)).json
        assert listed["object"] == "list"
        (card,) = listed["data"]
        assert (card["id"], card["object"]) == (LOADED.target_name, "model")
        assert card["meta"] == {
            "n_ctx": LOADED.n_ctx,
            "n_ctx_train": FACTS.n_ctx_train,
            "n_vocab": LOADED.n_vocab,
            "n_embd": FACTS.n_embd,
            "n_params": FACTS.n_parameters,
            "size": FACTS.weights_bytes,
        }
        assert card["speculation"]["draft_model"] == LOADED.draft_name
        assert card["speculation"]["mode"] == "auto"
        assert listed["models"][0]["model"] == LOADED.target_name


async def test_by_id(service: EngineService) -> None:
    client = HttpClient(create_app(service, ServerSettings(model_alias="some/model", mode=Mode.LOOKUP)))
    card = (await client.get("/v1/models/some/model")).json
    assert card["id"] == "some/model"
    assert card["speculation"]["mode"] == "lookup"
    assert (await client.get("/v1/models/other")).status == 404


async def test_no_path_of_this_machine_is_told(client: HttpClient) -> None:
    for path in ("/v1/models", "/props", "/status.json", "/metrics", "/health"):
        answer = await client.get(path)
        assert answer.status == 200
        assert b"/secret" not in answer.body, path
