"""Control tokens have no text in a reply, but those that the request names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from localspec.engine.loader import LoadedPair
from localspec.engine.requests import Mode, SamplingParams
from tests.engine.conftest import InProcessEngine, raw, text_of, tokens_of
from tests.tiny_models import EOS, write_tiny_model

pytestmark = pytest.mark.native

MARK, OTHER = "[TOOL_CALLS]", "<|other|>"
MARK_ID, OTHER_ID = 259, 260
# Both control tokens, then "x", and so on.
IN_TURNS = SamplingParams(
    temperature=0.0,
    grammar=f'root ::= ( "{MARK}" "{OTHER}" "x" )+',
    logit_bias=((MARK_ID, 100.0), (OTHER_ID, 100.0), (257, -100.0)),
)


@pytest.fixture(scope="module")
def engine(load: Callable[..., LoadedPair], tmp_path_factory: pytest.TempPathFactory) -> InProcessEngine:
    folder = tmp_path_factory.mktemp("controls")
    target = write_tiny_model(folder / "target.gguf", controls=(MARK, OTHER))
    return InProcessEngine(load(target, write_tiny_model(folder / "draft.gguf", controls=(MARK, OTHER), noise=0.15)))


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(
    ("shown", "text"),
    [
        ((), "xx"),
        ((MARK,), f"{MARK}x{MARK}x"),
        ((OTHER, "", MARK), f"{MARK}{OTHER}x{MARK}{OTHER}x"),
        ((EOS,), "xx"),
        ((f"{MARK}x", "[ARGS]"), "xx"),  # two tokens, and six
        (("x",), "xx"),
    ],
    ids=str,
)
def test_named_control_tokens_have_their_text(engine: InProcessEngine, mode: Mode, shown: tuple[str, ...], text: str):
    events = engine.run(raw(mode=mode, max_tokens=6, sampling=IN_TURNS, shown_tokens=shown))
    assert tokens_of(events) == [MARK_ID, OTHER_ID, ord("x")] * 2
    assert text_of(events) == text


def test_the_next_request_does_not_show_them(engine: InProcessEngine):
    shown = engine.run(raw(max_tokens=3, sampling=IN_TURNS, shown_tokens=(MARK,)))
    hidden = engine.run(raw(max_tokens=3, sampling=IN_TURNS))
    assert (text_of(shown), text_of(hidden)) == (f"{MARK}x", "x")


def test_a_stop_text_that_is_shown_stops(engine: InProcessEngine):
    events = engine.run(raw(max_tokens=6, sampling=IN_TURNS, shown_tokens=(MARK,), stop=(f"x{MARK}",)))
    assert text_of(events) == MARK
