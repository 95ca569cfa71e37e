"""What requests may ask for beside a chat: token prompts, gaps to fill, log-probabilities, lines, no end, no token."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from localspec.engine.events import Failed, Finished, FinishReason, StepDecoded, TextSpan
from localspec.engine.infill import infill_tokens
from localspec.engine.line_limits import LineWatch
from localspec.engine.loader import LoadedPair
from localspec.engine.requests import (
    ExtraFile,
    GenerateRequest,
    InfillPrompt,
    LineLimits,
    MixedPrompt,
    Mode,
    RawPrompt,
    SamplingParams,
)
from localspec.errors import UnsupportedModelError, UsageError
from localspec.llama.fill_in import FillInTokens
from localspec.llama.logprobs import log_probabilities
from localspec.speculative.rejection import Origin
from tests.engine.conftest import InProcessEngine, end_of, raw, text_of, tokens_of
from tests.native_fixtures import TinyModels
from tests.tiny_models import write_tiny_model

pytestmark = pytest.mark.native

GREEDY = SamplingParams(temperature=0.0)
MARKS = FillInTokens(prefix=1000, suffix=1001, middle=1002, repository=1003, file=1004)


def test_tokens_and_texts_make_the_same_prompt(engine: InProcessEngine):
    model = engine.pair.target.model
    tokens = model.tokenize("The quick brown fox", add_special=True, parse_special=True)
    request = {"sampling": GREEDY, "max_tokens": 10}
    expected = tokens_of(engine.run(GenerateRequest(RawPrompt("The quick brown fox"), **request)))
    for parts in (tuple(tokens), ("The quick", *tokens[9:]), (*tokens[:3], " quick brown fox")):
        assert tokens_of(engine.run(GenerateRequest(MixedPrompt(parts), **request))) == expected


def test_a_token_that_does_not_exist_is_named(engine: InProcessEngine):
    for token in (-1, 100_000):
        end = end_of(engine.run(GenerateRequest(MixedPrompt((token,)))))
        assert isinstance(end, Failed)
        assert isinstance(end.error, UsageError)
        assert str(token) in str(end.error)


def test_special_tokens_count_only_where_they_are_meant(engine: InProcessEngine):
    encode = engine.pair.encoder.encode
    assert len(encode(RawPrompt("<|end|>", parse_special=True))) == 1
    assert len(encode(RawPrompt("<|end|>"))) > 1


class TestNoToken:
    @pytest.mark.parametrize("mode", list(Mode))
    @pytest.mark.parametrize("prompt", ["a", "word " * 150])
    def test_the_prompt_is_read(
        self, load: Callable[..., LoadedPair], tiny_models: TinyModels, mode: Mode, prompt: str
    ):
        engine = InProcessEngine(load(tiny_models.target, tiny_models.draft, n_ctx=1024))
        end = end_of(engine.run(raw(prompt, mode=mode, max_tokens=0)))
        assert isinstance(end, Finished)
        assert end.reason is FinishReason.LENGTH
        assert end.metrics.n_tokens == 0
        after = end_of(engine.run(raw(prompt, mode=mode, max_tokens=1)))
        assert isinstance(after, Finished)
        assert after.metrics.n_cached_tokens == after.metrics.n_prompt_tokens - 1


class TestLogprobs:
    @pytest.mark.parametrize("mode", list(Mode))
    def test_they_are_the_targets_own(self, load: Callable[..., LoadedPair], tiny_models: TinyModels, mode: Mode):
        """Whatever the sampling, and whoever drafted: those of a plain pass over the same text."""
        pair = load(tiny_models.target, tiny_models.draft)
        engine = InProcessEngine(pair)
        sampling = SamplingParams(temperature=1.3, top_k=5, seed=4, presence_penalty=0.5)
        events = engine.run(raw("Once upon", mode=mode, sampling=sampling, max_tokens=30, n_logprobs=3))
        told = [each for event in events if isinstance(event, StepDecoded) for each in event.logprobs]
        tokens = [token for token in tokens_of(events) if token not in pair.target.model.end_of_generation]
        assert [each.chosen.token for each in told] == tokens
        assert b"".join(each.chosen.piece for each in told).decode("utf-8", "replace") == text_of(events)
        model, context = pair.target.model, pair.target.context
        prompt = model.tokenize("Once upon", add_special=True, parse_special=False)
        context.clear_all()
        context.add([*prompt, *tokens], position=0, n_outputs=min(len(tokens) + 1, 33))
        context.decode()
        for i, each in enumerate(told[-20:], start=max(0, len(told) - 20)):
            logits = context.logits(len(prompt) - 1 + i).astype(np.float64)
            expected = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
            assert each.chosen.logprob == pytest.approx(expected[tokens[i]], abs=1e-3)
            assert [chance.logprob for chance in each.likeliest] == pytest.approx(np.sort(expected)[::-1][:3], abs=1e-3)

    def test_none_unless_asked_for(self, engine: InProcessEngine):
        assert all(not event.logprobs for event in engine.run(raw()) if isinstance(event, StepDecoded))

    def test_zero_tells_the_token_alone(self, engine: InProcessEngine):
        (event,) = [e for e in engine.run(raw(max_tokens=1, n_logprobs=0)) if isinstance(e, StepDecoded)]
        assert [len(each.likeliest) for each in event.logprobs] == [0]

    def test_of_a_row_with_impossible_tokens(self):
        row = np.array([1.0, -np.inf, 3.0, 3.0], np.float32)
        ids, values = log_probabilities(row, 1, 4)
        assert ids == [1, 2, 3, 0, 1]
        assert values[0] == values[-1] == -math.inf
        assert sum(math.exp(value) for value in values[1:]) == pytest.approx(1.0)


def test_a_reply_that_cannot_end_goes_on_to_its_length(tmp_path: Path, load: Callable[..., LoadedPair]):
    """A model that ends nearly every reply at once."""
    path = write_tiny_model(tmp_path / "brief.gguf", eot=ord("e"), scale=1.0)
    engine = InProcessEngine(load(path, n_ctx=512))
    sampling = SamplingParams(temperature=2.0, seed=1, top_k=0, top_p=1.0, min_p=0.0)
    end = end_of(engine.run(raw(mode=Mode.PLAIN, sampling=sampling, max_tokens=300, ignores_end=True)))
    assert isinstance(end, Finished)
    assert (end.reason, end.metrics.n_tokens) == (FinishReason.LENGTH, 300)


def test_the_stop_string_that_ended_a_reply_is_told(engine: InProcessEngine):
    text = text_of(engine.run(raw(sampling=GREEDY, max_tokens=30)))
    end = end_of(engine.run(raw(sampling=GREEDY, max_tokens=30, stop=("never", text[5:8]))))
    assert isinstance(end, Finished)
    assert end.stop == text[5:8]


class TestLines:
    def ended(self, text: str, limits: LineLimits, *, size: int) -> tuple[str, bool]:
        watch = LineWatch(limits, now=lambda: 0.0)
        spans = [TextSpan(text[i : i + size], Origin.TARGET) for i in range(0, len(text), size)]
        released = watch.push(spans[:1])
        for span in spans[1:]:
            released += watch.push([span])
        is_over = watch.is_over
        return "".join(span.text for span in [*released, *watch.flush()]), is_over

    @pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
    @pytest.mark.parametrize(
        ("text", "min_indent", "kept"),
        [
            ("a\n    b\n  c\nd", 2, "a\n    b\n  c"),
            ("a\n\n\n    b\n\nc", 4, "a\n\n\n    b\n"),  # blank lines belong to no indent
            ("a\n\tb\n   c", 4, "a\n\tb"),  # a tab is four columns
            ("a\nb", 0, "a\nb"),
            ("a\n    ", 4, "a\n    "),
            ("a\n", 4, "a\n"),
            ("\n    b\nc", 1, "\n    b"),
        ],
    )
    def test_a_line_with_less_indent_ends_it(self, text: str, min_indent: int, kept: str, size: int):
        found, is_over = self.ended(text, LineLimits(min_indent=min_indent), size=size)
        assert (found, is_over) == (kept, kept != text)

    def test_time_ends_it_once_there_is_a_line(self):
        clock = iter(range(100))
        watch = LineWatch(LineLimits(time_s=3.0), now=lambda: float(next(clock)))
        for text in ("a", "b", "c", "d"):
            watch.push([TextSpan(text, Origin.TARGET)])
        assert not watch.is_over  # still the first line
        watch.push([TextSpan("\ne", Origin.TARGET)])
        watch.push([TextSpan("f", Origin.TARGET)])
        watch.push([TextSpan("g", Origin.TARGET)])
        watch.push([TextSpan("h", Origin.TARGET)])
        assert watch.is_over

    def test_in_a_reply(self, engine: InProcessEngine):
        grammar = 'root ::= "a\\n  b\\nc" [a-z]+'
        sampling = SamplingParams(grammar=grammar, seed=1)
        events = engine.run(raw(sampling=sampling, max_tokens=60, line_limits=LineLimits(min_indent=1)))
        assert text_of(events) == "a\n  b"
        assert isinstance(end_of(events), Finished)


class TestInfill:
    def tokens(self, prompt: InfillPrompt, *, n_ctx: int = 1000, marks: FillInTokens = MARKS) -> list[int]:
        return infill_tokens(prompt, marks, lambda text: list(text.encode()), bos=None, n_ctx=n_ctx, n_reply=10)

    def test_the_gap_lies_between_its_marks(self):
        assert self.tokens(InfillPrompt("ab", "yz", prompt="c")) == [1000, *b"abc", 1001, *b"yz", 1002]

    def test_other_files_come_first_the_most_important_last(self):
        tokens = self.tokens(InfillPrompt("a", "z", extra=(ExtraFile("x.py", "X"), ExtraFile("y.py", "Y"))))
        text = [chr(token) if token < 1000 else f"<{token}>" for token in tokens]
        assert "".join(text) == "<1003>project\n<1004>x.py\nX<1004>y.py\nY<1004>file\n<1000>a<1001>z<1002>"

    def test_where_the_model_has_no_mark_for_files(self):
        marks = FillInTokens(1000, 1001, 1002, repository=None, file=None)
        tokens = self.tokens(InfillPrompt("a", "z", extra=(ExtraFile("x.py", "X"),)), marks=marks)
        assert bytes(token for token in tokens if token < 1000) == b"\n\n--- snippet ---\n\nXaz"

    @pytest.mark.parametrize("n_ctx", [20, 50, 100, 300, 1000])
    @pytest.mark.parametrize(
        ("n_prefix", "n_suffix", "n_extra"), [(500, 500, 500), (10, 500, 5), (500, 3, 0), (1, 1, 900)]
    )
    def test_what_does_not_fit_is_left_out(self, n_ctx: int, n_prefix: int, n_suffix: int, n_extra: int):
        prompt = InfillPrompt("P" * n_prefix, "S" * n_suffix, extra=(ExtraFile("f", "x" * n_extra),))
        tokens = self.tokens(prompt, n_ctx=n_ctx)
        assert len(tokens) < n_ctx
        kept_prefix, kept_suffix = tokens.count(ord("P")), tokens.count(ord("S"))
        if kept_prefix < n_prefix and kept_suffix < n_suffix:
            assert kept_prefix >= 2 * kept_suffix
        if len(tokens) < n_ctx - 20:
            assert (kept_prefix, kept_suffix) == (n_prefix, n_suffix)

    def test_through_a_model_that_fills_in(self, tmp_path: Path, load: Callable[..., LoadedPair]):
        path = write_tiny_model(tmp_path / "coder.gguf", extra_tokens=3)
        pair = load(_with_marks(path, tmp_path / "marked.gguf"), n_ctx=256)
        assert pair.describe().about.fills_in
        engine = InProcessEngine(pair)
        prompt = InfillPrompt("def f(x):\n", "\nreturn y", prompt="  y = ")
        end = end_of(engine.run(GenerateRequest(prompt, sampling=GREEDY, max_tokens=8)))
        assert isinstance(end, Finished)
        assert end.metrics.n_prompt_tokens == len("def f(x):\n  y = \nreturn y") + 3

    def test_a_model_that_does_not_says_so(self, engine: InProcessEngine):
        end = end_of(engine.run(GenerateRequest(InfillPrompt("a", "b"))))
        assert isinstance(end, Failed)
        assert isinstance(end.error, UnsupportedModelError)
        assert not engine.pair.describe().about.fills_in


def _with_marks(source: Path, target: Path) -> Path:
    """A copy whose last three tokens are the marks around a gap."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    n_vocab = 0
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        sub_type = field.types[-1] if kind is gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=sub_type)
        if field.name == "tokenizer.ggml.tokens":
            n_vocab = len(field.contents())
    for i, name in enumerate(("prefix", "suffix", "middle")):
        writer.add_uint32(f"tokenizer.ggml.fim_{name[:3]}_token_id", n_vocab - 3 + i)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target
