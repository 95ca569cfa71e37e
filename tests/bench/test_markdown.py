"""Tables in Markdown: lined up for those who read the file as it is, and safe for those who render it."""

from __future__ import annotations

from localspec.bench.markdown import escaped, markdown_table


def test_a_table_lines_up():
    assert markdown_table(["a", "long"], [["xyz", "1"], ["b", "12345"]]).splitlines() == [
        "| a   |  long |",
        "| --- | ----: |",
        "| xyz |     1 |",
        "| b   | 12345 |",
    ]


def test_a_table_without_rows_is_its_header():
    assert markdown_table(["a"], []) == "| a   |\n| --- |"


def test_nothing_ends_a_cell_or_begins_markup():
    assert escaped("a|b`c*d_e[f]<g>\\h\n  i\x1b") == r"a\|b\`c\*d\_e\[f]\<g>\\h i␛"
    assert markdown_table(["a"], [["x|y"]]).splitlines()[2] == r"| x\|y |"
