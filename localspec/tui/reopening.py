"""Where Markdown may be cut, and what must then be opened again so that the parser reads on as if it had not been."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from localspec.tui.markdown_text import parse_markdown

# Characters. What is opened again must leave room for more.
_MAX_OPENING: Final = 800

_CONTAINERS: Final = ("list_item_open", "blockquote_open")
_LIST_ENDS: Final = ("list_item_close", "bullet_list_close", "ordered_list_close")
# What opens the quotes and list items of a line.
_MARKERS: Final = re.compile(r"(?:[ \t]*(?:>|(?:[*+-]|\d{1,9}[.)])(?=\s|$)))*[ \t]*")


class Opening(NamedTuple):
    """Lines to begin with, of which the first `n_hidden` are not shown. `n_code`: lines of an open code block above."""

    lines: list[str]
    n_hidden: int
    n_code: int = 0


def opening_of_last(lines: Sequence[str]) -> Opening | None:
    """What the last line needs before it if the others are cut off; None if a cut there would show.

    A cut is possible before a block, an item of a list, a row of a table (its header is shown again) and in a fence.
    """
    last = len(lines) - 1
    tokens = parse_markdown("\n".join(lines))
    starts = [(token, token.map[0]) for token in tokens if token.map]
    around = [(token, start) for token, start in starts if start <= last < (token.map or (0, 0))[1]]
    if not around:
        return None
    token, start = next((each for each in around if each[1] == last), around[-1])
    # What is opened again, by the number of the line for which it stands.
    kept = {at: _stand_in(lines[at]) for each, at in around if at < last and each.type in _CONTAINERS}
    n_shown = n_code = 0
    if token.type == "fence" and start < last - 1:
        kept[start] = lines[start]
        n_code = last - start
    elif token.type in ("tbody_open", "tr_open"):
        table = max(at for each, at in around if each.type == "table_open")
        kept = (kept or {-1: "x"}) | {table: lines[table], table + 1: lines[table + 1]}
        n_shown = 2
    elif start < last:
        return None
    elif token.type == "list_item_open":  # after another: the first one begins with its list
        sibling = max(at for each, at in starts if each.type == token.type and each.level == token.level and at < last)
        above = next(each for each in reversed(tokens[: tokens.index(token)]) if each.type not in _LIST_ENDS)
        # Below all but a paragraph there is a gap even in a tight list: a heading stands for it.
        text = "x" if above.type in ("paragraph_close", "list_item_open") else "# x"
        kept[sibling] = _stand_in(lines[sibling], text)
    elif not kept:  # the gap between two blocks
        kept = {-1: "x", last - 1: ""}
    elif not is_blank(lines[last - 1]):  # a blank line of ours would make the list loose
        return None
    # Blank lines decide whether the list is loose.
    edges = [*kept, last] if start == last else kept
    kept |= {at - 1: lines[at - 1] for at in edges if at > 0 and is_blank(lines[at - 1])}
    opened = [kept[at] for at in sorted(kept)]
    return Opening(opened, len(opened) - n_shown, n_code) if sum(map(len, opened)) <= _MAX_OPENING else None


def is_blank(line: str) -> bool:
    """Nothing but the signs of a quote."""
    return not line.strip("> \t")


def _stand_in(line: str, text: str = "x") -> str:
    """A line that opens what `line` opens, with another text. Only a list from 1 may follow text directly."""
    match = _MARKERS.match(line)
    markers = re.sub(r"\d+", lambda number: "1".zfill(len(number[0])), match[0] if match else "")
    return f"{markers}{text}" if markers.endswith((" ", "\t")) else f"{markers} {text}"
