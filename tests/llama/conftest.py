from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.llama.grammar_process import GrammarProcess
from tests.native_fixtures import TinyModels


@pytest.fixture(scope="module")
def grammar_process(tiny_models: TinyModels) -> Iterator[GrammarProcess]:
    """Where grammars may end the process."""
    with GrammarProcess(tiny_models.target) as process:
        yield process
