"""What stands above an empty chat."""

from __future__ import annotations

from typing import Final

from textual.content import Content
from textual.widget import Widget

from localspec.engine.events import Loaded
from localspec.printable import printable
from localspec.tui import figures

_INVITATION: Final = " chooses models for this machine; or just type."


class Welcome(Widget):
    """The product, the models that answer, and how to begin."""

    def __init__(self, pair_name: str, notice: str, *, invites: bool = False, server: str = "") -> None:
        """`pair_name` "": there is none yet. `invites`: nobody has chosen one, so say how. `server`: whose models."""
        super().__init__()
        self._invites = invites
        self._pair_name = printable(pair_name)
        self._notice = printable(notice)
        self._server = printable(server)
        self._loaded: Loaded | None = None

    def show_loaded(self, loaded: Loaded) -> None:
        """The models are known."""
        self._loaded = loaded
        self.refresh(layout=True)

    def show_choice(self, pair_name: str) -> None:
        """Another pair was chosen: what was said of the one before is over."""
        self._pair_name = printable(pair_name)
        self._invites = False
        self._notice = ""
        self._loaded = None
        self.refresh(layout=True)

    def render(self) -> Content:
        """The text."""
        lines = [
            Content.assemble(
                ("localspec", "$accent bold"),
                ("  a draft model writes ahead, the target has the last word", "dim"),
            ),
            Content(""),
            *self._models(),
        ]
        if self._notice:
            lines += [Content(""), Content(self._notice)]
        if self._invites:
            lines += [Content(""), Content.assemble(("F2", "$accent bold"), _INVITATION)]
        lines += [
            Content(""),
            Content.styled("Enter sends, Ctrl+J starts a new line, F1 shows all keys.", "dim"),
        ]
        return Content("\n").join(lines)

    def _models(self) -> list[Content]:
        loaded = self._loaded
        if self._server:
            return [_fact("server", self._server), *(_facts_of_server(loaded) if loaded is not None else [])]
        if loaded is None and not self._pair_name:
            return [Content("No models are loaded yet. F2 chooses them.")]
        if loaded is None:
            return [_fact("pair", self._pair_name)]
        where = "GPU" if loaded.gpu_offload else "CPU"
        return [
            _fact("target", printable(loaded.target_name)),
            _fact(
                "draft",
                printable(loaded.draft_name) if loaded.draft_name else "none: drafts come from prompt lookup only",
            ),
            _fact("context", f"{loaded.n_ctx:,} tokens"),
            _fact("weights", f"{figures.size(loaded.weights_bytes)} on the {where}"),
        ]


def _facts_of_server(loaded: Loaded) -> list[Content]:
    """What it tells; the draft model only localspec's own."""
    facts = [_fact("model", printable(loaded.target_name))]
    if loaded.draft_name:
        facts.append(_fact("draft", printable(loaded.draft_name)))
    if loaded.n_ctx:
        facts.append(_fact("context", f"{loaded.n_ctx:,} tokens"))
    return facts


def _fact(name: str, value: str) -> Content:
    return Content.assemble((f"{name:<9}", "dim"), value)
