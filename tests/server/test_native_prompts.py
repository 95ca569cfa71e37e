"""The shapes of llama.cpp's `prompt` field, as its README lists them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from localspec.engine.requests import MixedPrompt, RawPrompt
from localspec.server.native_prompts import MAX_PROMPTS, NativePrompts, parse_prompts, parse_text_or_tokens


def text(value: str) -> RawPrompt:
    return RawPrompt(value, parse_special=True)


@pytest.mark.parametrize(
    ("value", "prompts"),
    [
        ("a b", [text("a b")]),
        ("", [text("")]),
        ([12, 34], [MixedPrompt((12, 34))]),
        ([12, "a", 34], [MixedPrompt((12, "a", 34))]),
        (["a", 34], [MixedPrompt(("a", 34))]),
        ({"prompt_string": "a"}, [text("a")]),
        (["a"], [text("a")]),
        (["a", "b"], [text("a"), text("b")]),
        (
            [[12, "a"], [34], "b", {"prompt_string": "c"}],
            [MixedPrompt((12, "a")), MixedPrompt((34,)), text("b"), text("c")],
        ),
        ([["a", "b"]], [MixedPrompt(("a", "b"))]),
    ],
)
def test_every_shape_of_the_readme_is_understood(value: object, prompts: list[object]) -> None:
    assert list(parse_prompts(value)) == prompts


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (7, "it should be text"),
        (None, "it should be text"),
        (True, "it should be text"),
        ([], "it is empty"),
        ([[]], "prompt 0 is empty"),
        (["a", []], "prompt 1 is empty"),
        ([1.5], "prompt 0 should be text"),
        ([True], "it has an element"),
        ([1, None], "it has an element"),
        ([1, [2]], "it has an element"),
        ([-1], "the token id -1"),
        ([2**31], "the token id 2147483648"),
        (["a", [1, {}]], "prompt 1 has an element"),
        ({"prompt": "a"}, "it is an object without a text prompt_string"),
        ({"prompt_string": 1}, "it is an object without a text prompt_string"),
        ([{"prompt_string": "a", "multimodal_data": ["x"]}], "prompt 0 has multimodal_data"),
        (["a"] * (MAX_PROMPTS + 1), f"at most {MAX_PROMPTS}"),
    ],
)
def test_what_has_none_of_the_shapes_is_refused_with_the_part(value: object, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        parse_prompts(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(["prompt_string", "x"]), inner),
    max_leaves=20,
)


@given(JSON)
def test_any_json_is_prompts_or_a_value_error(value: object) -> None:
    try:
        prompts = parse_prompts(value)
    except ValueError:
        return
    assert prompts
    assert all(isinstance(prompt, RawPrompt | MixedPrompt) for prompt in prompts)


def test_a_body_holds_the_prompts_and_names_the_field_that_is_wrong() -> None:
    class Body(BaseModel):
        prompt: NativePrompts

    assert Body(prompt=["a", "b"]).prompt == (text("a"), text("b"))
    with pytest.raises(ValidationError) as caught:
        Body(prompt=[])
    assert caught.value.errors()[0]["loc"] == ("prompt",)


def test_text_to_tokenize_may_be_an_empty_array() -> None:
    assert parse_text_or_tokens([]) == MixedPrompt(())
