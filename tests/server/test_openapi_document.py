"""Requests made of the endpoint's own OpenAPI document, sent over a socket: whatever it allows, nothing breaks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from tests.server.conftest import Served

pytestmark = [pytest.mark.native, pytest.mark.slow]


def test_no_request_by_the_document_makes_the_endpoint_fail(serve: Callable[..., Served]) -> None:
    served = serve(n_ctx=512, request_timeout_s=20, max_tokens=8)
    document = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    statuses: Counter[int] = Counter()
    for found in document.get_all_operations():
        operation = found.ok()

        @given(case=operation.as_strategy())
        @settings(
            max_examples=30,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def send(case: schemathesis.Case) -> None:
            answer = case.call()
            statuses[answer.status_code] += 1
            assert answer.status_code < 500
            assert str(served.pair.target.path.parent) not in answer.text

        send()
    assert statuses[200] > 50
    assert statuses[400] > 50
    assert served.service is not None
    assert not served.service.open_requests
