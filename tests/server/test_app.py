"""The application as a whole: its paths and its OpenAPI document."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.http_client import HttpClient


async def document(client: HttpClient) -> dict[str, Any]:
    answer = await client.get("/openapi.json")
    assert answer.status == 200
    told: dict[str, Any] = answer.json
    return told


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/embeddings",
        "/v1/models",
        "/infill",
        "/completion",
        "/tokenize",
        "/detokenize",
        "/apply-template",
        "/props",
        "/health",
        "/slots",
        "/metrics",
    ],
)
async def test_every_endpoint_is_documented(client: HttpClient, path: str) -> None:
    assert path in (await document(client))["paths"]


async def test_operations_have_ids_of_their_own(client: HttpClient) -> None:
    operations = [each for path in (await document(client))["paths"].values() for each in path.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids)


async def test_the_documents_page(client: HttpClient) -> None:
    assert (await client.get("/docs")).status == 200
