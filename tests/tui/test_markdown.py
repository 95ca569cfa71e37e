"""How a reply looks: every sign of it is shown, laid out in the width that there is, and none of it does anything."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from localspec.tui.code_blocks import CodeBlock, code_blocks
from localspec.tui.markdown_table import shared_widths
from localspec.tui.markdown_text import markdown_lines


def plain(source: str, width: int = 40) -> list[str]:
    return [line.plain.rstrip() for line in markdown_lines(source, width)]


def styles(source: str) -> dict[str, str]:
    """Each styled piece of the first line, and its style."""
    line = markdown_lines(source, 60)[0]
    return {line.plain[span.start : span.end]: str(span.style) for span in line.spans}


def test_blocks_are_a_blank_line_apart() -> None:
    source = "# Title\nText\n- item\n\n> quote\n\n---\n\nend"
    assert plain(source, 12) == ["Title", "", "Text", "", "• item", "", "▎ quote", "", "─" * 12, "", "end"]


def test_a_single_newline_stays_one() -> None:
    assert plain("Roses are red\nviolets are blue  \nand so on") == [
        "Roses are red",
        "violets are blue",
        "and so on",
    ]


def test_emphasis_code_and_strikes_are_styled() -> None:
    assert styles("a **b** *c* ~~d~~ `e`") == {
        "b": "bold",
        "c": "italic",
        "d": "strike",
        "e": "$text-accent on $surface",
    }


def test_text_wraps_behind_its_bullet() -> None:
    assert plain("- one two three\n  - four five six seven\n10. ten eleven twelve", 14) == [
        "• one two",
        "  three",
        "  ◦ four five",
        "    six seven",
        "",
        "10. ten eleven",
        "    twelve",
    ]


def test_a_loose_list_has_gaps_and_a_tight_one_has_none() -> None:
    assert plain("1. a\n2. b") == ["1. a", "2. b"]
    assert plain("1. a\n\n   more\n\n2. b") == ["1. a", "", "   more", "", "2. b"]


def test_an_item_without_text_shows_its_bullet() -> None:
    assert plain("- \n- b") == ["•", "• b"]


def test_a_quote_keeps_its_bar_over_gaps() -> None:
    assert plain("> a\n>\n> - b\n>   c") == ["▎ a", "▎", "▎ • b", "▎   c"]


def test_code_keeps_its_lines_and_names_its_language() -> None:
    lines = markdown_lines("```python title=x\nif a:\n\tb\n\n```", 12)
    assert [line.plain for line in lines] == [" python     ", " if a:      ", "     b      ", "            "]
    assert {str(span.style) for span in lines[1].spans} == {"on $surface", "$accent bold"}


def test_long_code_is_folded_not_cut() -> None:
    assert plain("```\nabcdefghijklmnop\n```", 12) == [" abcdefghij", " klmnop"]


def test_unfinished_code_is_code() -> None:
    assert plain("text\n```py\nx = 1") == ["text", "", " py", " x = 1"]


def test_a_table_gives_narrow_columns_what_they_need_and_wraps_the_wide() -> None:
    assert plain("| n | text |\n|--:|---|\n| 1 | one two three |\n| 20 | x |", 16) == [
        "  n │ text",
        "────┼───────────",
        "  1 │ one two",
        "    │ three",
        " 20 │ x",
    ]


def test_a_table_that_does_not_fit_beside_itself_is_stacked() -> None:
    assert plain("| a | b | c |\n|---|---|---|\n| d | e | f |", 12) == ["a", "b", "c", "d", "e", "f"]


def test_columns_share_the_room() -> None:
    assert shared_widths([3, 5, 30], 40) == [3, 5, 30]
    assert shared_widths([30, 3, 30], 23) == [10, 3, 10]
    assert sum(shared_widths([50, 7, 20, 3], 40)) == 40


def test_a_link_shows_where_it_leads_and_leads_nowhere() -> None:
    (line,) = markdown_lines("[the docs](https://evil.example/docs)", 60)
    assert line.plain == "the docs (https://evil.example/docs)"
    assert all("@click" not in str(span.style) for span in line.spans)
    assert plain("<https://a.example>") == ["https://a.example"]


def test_an_image_is_named() -> None:
    assert plain("![cat](http://a.example/c.png)", 60) == ["[image: cat] (http://a.example/c.png)"]


def test_html_and_markup_are_text() -> None:
    source = "<think>so</think> [red]no[/red] [@click=app.quit]x[/] <b>b</b>"
    assert plain(source, 80) == [source]


def test_control_characters_from_entities_are_neutralised() -> None:
    # U+202E arrives as an ASCII entity and becomes a character in the parser; &#27; and its like become U+FFFD there.
    assert plain("a&#x202e;b &#27;[0m `&#x202e;` [x](http://e/&#x202e;)", 80)[0].startswith("a�b �[0m &#x202e; x (")


def test_nested_deeper_than_a_screen_is_wide_nothing_is_lost() -> None:
    source = "> " * 40 + "deep"
    assert "deep" in plain(source, 60)[-1]
    lines = plain("\n".join("  " * depth + f"- level{depth}" for depth in range(30)), 30)
    assert all(any(f"level{depth}" in line for line in lines) for depth in range(30))


@pytest.mark.parametrize("width", [1, 2, 5, 20, 200])
def test_a_line_is_never_wider_than_its_window(width: int) -> None:
    source = "# T\n- a\n  1. 世界世界世界\n> q `c`\n\n```py\n世界 = 1\n```\n\n| 世 | b |\n|---|---|\n| 1 | 2 |\n\n---\n"
    limit = max(width, 12)  # narrower than any terminal: the text keeps a few cells
    assert max(line.cell_length for line in markdown_lines(source, width)) <= limit


MARKDOWN = st.text(alphabet=st.sampled_from(list("ab \n\t#>*-_`~|[]()!<>1.:\\&;\x1b世")), max_size=200)


@settings(max_examples=300, deadline=None)
@given(MARKDOWN, st.integers(12, 60))
@example("- - - - - - - - - - - - - - - - - - - - a", 20)
@example("| a |\n|---|\n| b | c | d |\n", 20)
@example("~~~`\n", 20)
def test_no_text_breaks_the_layout(source: str, width: int) -> None:
    lines = markdown_lines(source, width)
    assert all(line.cell_length <= width for line in lines)
    assert all("\x1b" not in line.plain and "\n" not in line.plain for line in lines)


def test_code_blocks_are_found_as_they_are_copied() -> None:
    source = "a\n```python x\ndef f():\n\treturn 1\n```\n- b\n  ~~~\n  nested\n  ~~~\n```\n```\n"
    assert code_blocks(source) == [CodeBlock("python", "def f():\n\treturn 1"), CodeBlock("", "nested")]
    assert code_blocks("no code, only `inline`") == []
