from pathlib import Path

import pytest

from localspec.models.advice import PairWarning, warnings_for
from localspec.models.gguf import read_header
from localspec.models.header import GgufHeader
from tests.models.gguf_bytes import gguf, name, number, tensor, write
from tests.models.vocabularies import VOCABULARIES
from tests.tiny_models import write_tiny_model

CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
TURNS = "{% for m in messages %}<start_of_turn>{{ m.role }}\n{{ m.content }}<end_of_turn>{% endfor %}"


def a_model(
    folder: Path,
    title: str | None = "Small 2 7B Instruct",
    template: str | None = CHATML,
    *,
    n_weights: int = 1_000,
    n_ctx: int = 4_096,
    experts: tuple[int, int] | None = None,
    file_type: int = 0,
) -> GgufHeader:
    entries = [name("general.architecture", "llama"), number("llama.context_length", n_ctx)]
    entries += [] if title is None else [name("general.name", title)]
    entries += [] if template is None else [name("tokenizer.chat_template", template)]
    if experts:
        entries += [number("llama.expert_count", experts[0]), number("llama.expert_used_count", experts[1])]
    entries.append(number("general.file_type", file_type))
    raw = gguf(entries, [tensor("x", (n_weights,))], b"\0" * 4 * n_weights)
    return read_header(write(folder / f"{len(list(folder.iterdir()))}.gguf", raw))


def rules(target: GgufHeader, draft: GgufHeader, n_ctx: int | None = None) -> dict[str, PairWarning]:
    found = {warning.rule: warning for warning in warnings_for(target, draft, n_ctx)}
    assert all(each.text and each.target_value and each.draft_value for each in found.values())
    return found


def test_a_good_pair_has_none(tmp_path: Path) -> None:
    target = a_model(tmp_path, n_weights=100_000)
    assert warnings_for(target, a_model(tmp_path, "Small 2 0.5B Instruct")) == ()
    assert warnings_for(target, a_model(tmp_path, "Small 2 0.5B Draft", None)) == ()


@pytest.mark.parametrize(
    ("ours", "theirs", "warns"),
    [
        (("Small 2 7B Instruct", CHATML), ("Small 2 1B", None), True),
        (("Small 2 7B Instruct", CHATML), ("Small 2 1B Base", CHATML), True),
        (("Small 2 7B", CHATML), ("Small 2 1B Base", CHATML), True),
        (("Small 2 7B", CHATML), ("Small 2 1B", CHATML), False),
        (("Small 2 7B it", None), ("Small 2 1B it", None), False),
        (("Small 2 7B Base", CHATML), ("Small 2 1B Base", None), False),
    ],
)
def test_a_base_draft_under_a_tuned_target(
    tmp_path: Path, ours: tuple[str, str | None], theirs: tuple[str, str | None], warns: bool
) -> None:
    found = rules(a_model(tmp_path, *ours, n_weights=100_000), a_model(tmp_path, *theirs))
    assert (found.get("tuning") is not None) == warns


def test_other_chat_templates(tmp_path: Path) -> None:
    target = a_model(tmp_path, n_weights=100_000)
    other = rules(target, a_model(tmp_path, template=TURNS))["chat template"]
    assert (other.target_value, other.draft_value) == (
        "<|im_end|>, <|im_start|>",
        "<end_of_turn>, <start_of_turn>",
    )
    worded = rules(target, a_model(tmp_path, template=CHATML + "{# as before #}"))["chat template"]
    assert "seldom matters" in worded.text
    assert worded.target_value != worded.draft_value
    assert rules(target, a_model(tmp_path, template=CHATML + "\n\n")) == {}


@pytest.mark.parametrize(
    ("ours", "theirs", "warns"),
    [
        ("DeepSeek R1 Distill Qwen 7B", "Qwen2.5 0.5B Instruct", True),
        ("Qwen2.5 Coder 7B Instruct", "Qwen2.5 0.5B Instruct", True),
        ("Meta Llama 3.1 8B Instruct", "Llama 3.2 1B Instruct", False),
        ("Qwen3.6 27B", "Qwen3.5 0.8B", False),
        (None, "Qwen3.5 0.8B", False),
    ],
)
def test_other_families(tmp_path: Path, ours: str | None, theirs: str, warns: bool) -> None:
    found = rules(a_model(tmp_path, ours, n_weights=100_000), a_model(tmp_path, theirs))
    assert (found.get("family") is not None) == warns


def test_a_draft_that_is_not_much_smaller(tmp_path: Path) -> None:
    target = a_model(tmp_path, n_weights=30_000)
    assert "size" not in rules(target, a_model(tmp_path, n_weights=9_000))
    text = rules(target, a_model(tmp_path, n_weights=15_000))["size"].text
    assert "50%" in text
    assert "pays only" in text
    assert "cannot pay" in rules(target, a_model(tmp_path, n_weights=30_000))["size"].text


def test_experts_of_the_target(tmp_path: Path) -> None:
    warning = rules(a_model(tmp_path, n_weights=100_000, experts=(128, 8)), a_model(tmp_path))["experts"]
    assert (warning.target_value, warning.draft_value) == ("8 of 128 experts", "none")


def test_a_draft_context_that_is_too_short(tmp_path: Path) -> None:
    target, draft = a_model(tmp_path, n_weights=100_000, n_ctx=8_192), a_model(tmp_path, n_ctx=4_096)
    assert rules(target, draft)["context"].draft_value == "4,096"
    assert "context" not in rules(target, draft, n_ctx=4_096)
    assert rules(target, draft, n_ctx=4_097)["context"].target_value == "4,097"
    assert "context" not in rules(draft, target)


@pytest.mark.parametrize(("ours", "theirs", "who"), [(15, 10, "the draft"), (10, 15, "the target"), (10, 19, "and")])
def test_fewer_than_four_bits(tmp_path: Path, ours: int, theirs: int, who: str) -> None:
    target, draft = a_model(tmp_path, n_weights=100_000, file_type=ours), a_model(tmp_path, file_type=theirs)
    assert who in rules(target, draft)["quantization"].text
    assert "quantization" not in rules(a_model(tmp_path, file_type=2), a_model(tmp_path, file_type=30))


def test_warnings_come_in_the_order_of_the_rules(tmp_path: Path) -> None:
    target = a_model(tmp_path, n_weights=1_000, n_ctx=8_192, experts=(8, 2))
    draft = a_model(tmp_path, "Other 1B Base", TURNS, file_type=10)
    found = [warning.rule for warning in warnings_for(target, draft)]
    assert found == ["tuning", "chat template", "family", "size", "experts", "context", "quantization"]


def test_vocabularies_alone_and_written_models_give_no_error(tmp_path: Path) -> None:
    tiny = read_header(write_tiny_model(tmp_path / "tiny.gguf"))
    assert set(rules(tiny, tiny)) == {"size"}
    for path in VOCABULARIES.values():
        warnings_for(tiny, read_header(path))
        warnings_for(read_header(path), tiny)
