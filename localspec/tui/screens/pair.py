"""Choosing a pair: a target, a draft for it, and downloads that go on when one leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Static

from localspec.engine.requests import PairSpec
from localspec.errors import LocalspecError
from localspec.pairing.chosen import ChosenPair, Target
from localspec.pairing.drafts import Place
from localspec.pairing.fit import Fit
from localspec.pairing.service import Listing, Quantization
from localspec.pairing.targets import TargetEntry
from localspec.printable import one_line
from localspec.tui.background import Answered, Background, Question
from localspec.tui.messages import PairChosen
from localspec.tui.pair_details import DraftDetails, EntryDetails
from localspec.tui.pairs import Pairs
from localspec.tui.screens.help import HelpDialog
from localspec.tui.screens.quantization import QuantizationDialog
from localspec.tui.screens.save_pair import SavePairDialog
from localspec.tui.widgets.downloads import DownloadRows
from localspec.tui.widgets.draft_list import DraftList
from localspec.tui.widgets.selection_panel import SelectionPanel
from localspec.tui.widgets.target_list import TargetList

if TYPE_CHECKING:
    from localspec.hub.remote_model import RemoteModel

T = TypeVar("T")


class PairScreen(Screen[None]):
    """Two steps: the targets, then the drafts for one of them. It stays as it is while the chat is on the screen.

    `loaded` says which pair is loaded now. Where nobody has chosen one yet (`is_first_run`), what to begin with is
    highlighted.
    """

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012 - declared like this by Screen
    VERTICAL_BREAKPOINTS = [(0, "-low"), (20, "-high")]  # noqa: RUF012

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("f2", "close", "Chat"),
        Binding("f3", "quantizations", "Quant"),
        Binding("f4", "search_drafts", "Search"),
        Binding("ctrl+s", "save", "Save"),
        Binding("f5", "look_again", "Reload"),
        Binding("f1", "help", "Help", show=False),
    ]

    def __init__(self, pairs: Pairs, loaded: Callable[[], PairSpec | None], *, is_first_run: bool = False) -> None:
        super().__init__()
        self._pairs = pairs
        self._loaded = loaded
        self._background = Background(self.post_message)
        self._targets = TargetList(begins_anew=is_first_run)
        self._drafts = DraftList()
        self._panel = SelectionPanel()
        self._notice = Static(classes="notice", markup=False)
        self._downloads = DownloadRows(pairs.downloads)
        self._target: Target | None = None
        self._confirmed: object = None  # what does not fit, and was chosen once

    def compose(self) -> ComposeResult:
        """One of the two lists, what is known of the choice, downloads, keys."""
        with Vertical(classes="choice"):
            yield self._targets
            yield self._drafts
            yield self._panel
        yield self._notice
        yield self._downloads
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """The first step."""
        self._show_step(drafts=False)
        self._list_targets()

    def look_again(self) -> None:
        """What is here, and what is loaded, may have changed since the screen was left."""
        self.say("")
        self._list_targets()
        if self._target is not None:
            paths = {row.reference: row.path for row in self._pairs.downloads.rows if row.path is not None}
            self._target = self._target.fetched(paths).beside(self._loaded())
            self._drafts.update(self._target)
            self._drafts.note_fetched(paths)
        if not any(row.is_under_way or row.can_resume for row in self._pairs.downloads.rows):
            for row in self._pairs.downloads.rows:
                self._pairs.downloads.forget(row.reference)

    @on(Answered)
    def hear(self, message: Answered) -> None:
        """A question was answered."""
        message.tell()

    def look_at_downloads(self) -> None:
        """They stand otherwise than before."""
        if self._downloads.is_mounted:
            self._downloads.look()

    def shows(self, pair: ChosenPair) -> bool:
        """Whether the screen is still where the pair was chosen."""
        reference = pair.target.model.reference
        return self._is_choosing_draft and self._target is not None and self._target.model.reference == reference

    # --- keys ---------------------------------------------------------------------------------------------------------

    def action_back(self) -> None:
        """One step back."""
        if self._is_choosing_draft:
            self._background.drop("drafts")
            self._show_step(drafts=False)
        else:
            self.action_close()

    def action_close(self) -> None:
        """Back to the chat; downloads go on."""
        self.dismiss()

    def action_help(self) -> None:
        """Show the keys."""
        self.app.push_screen(HelpDialog(of_pairs=True))

    def action_look_again(self) -> None:
        """Look at what there is again."""
        if self._is_choosing_draft and self._target is not None:
            self._find_drafts(self._target)
        else:
            self._list_targets()

    def action_search_drafts(self) -> None:
        """Look for relatives of the target on the Hub too."""
        if self._target is not None:
            self._find_drafts(self._target, search=True)

    def action_quantizations(self) -> None:
        """Show in which forms there is what is highlighted."""
        if self._is_choosing_draft:
            self._list_forms_of_draft()
        elif (entry := self._targets.highlighted) is not None and entry.has_quantizations:
            self._list_forms_of_target(entry)
        else:
            self.notify("What is not here yet comes in several quantizations: highlight a target further below.")

    def action_save(self) -> None:
        """Keep the pair under a name."""
        option = self._drafts.highlighted
        if self._target is None or (option is not None and option.is_refused):
            self.notify("This draft model cannot draft for the target: there is no pair to save.")
            return
        chosen = ChosenPair(self._target, option)

        def save(name: str, replace: bool) -> Path:
            return self._pairs.save(name, chosen, replace_existing=replace)

        def tell(done: str | None) -> None:
            if done:
                self.notify(done, markup=False)

        self.app.push_screen(SavePairDialog(one_line(chosen.target.model.name.removesuffix(".gguf")), save), tell)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's signature
        """Saving, and searching for drafts, belong to the second step."""
        return self._is_choosing_draft if action in {"save", "search_drafts"} else True

    def on_key(self, event: events.Key) -> None:
        """What is typed over the list goes into the field; the field itself lets nothing of that kind through."""
        field = self._targets.search
        if self._is_choosing_draft:
            return
        if event.is_printable and event.character:
            field.insert_text_at_cursor(event.character)
        elif event.key == "backspace" and field.value:
            field.action_delete_left()
        else:
            return
        event.stop()
        # Later: letters of the same burst are on their way here, and must not overtake each other.
        self.call_later(self.set_focus, field)

    # --- targets ------------------------------------------------------------------------------------------------------

    @on(TargetList.Highlighted)
    def look_at_entry(self, message: TargetList.Highlighted) -> None:
        """Say what is known of it."""
        if not self._is_choosing_draft:
            self._panel.show(EntryDetails(message.entry) if message.entry is not None else None)

    @on(TargetList.SearchAsked)
    def search(self, message: TargetList.SearchAsked) -> None:
        """Ask the Hub."""
        self._list_place(Place.HUB, lambda: self._pairs.search(message.text), message.text)

    @on(TargetList.Chosen)
    def choose_entry(self, message: TargetList.Chosen) -> None:
        """Read its header; of a repository, ask first for a quantization."""
        entry = message.entry
        if entry.place is Place.HUB:
            self._list_forms_of_target(entry)
        elif entry.fit is Fit.TOO_LARGE and self._confirmed != entry.text:
            self._confirmed = entry.text
            self.say("By its size it does not fit this machine. Enter again chooses it all the same.")
        else:
            self._choose_target(entry, None)

    def _list_targets(self) -> None:
        loaded = self._loaded()
        self._list_place(Place.HERE, lambda: self._pairs.local(loaded))
        self._list_place(Place.REGISTRY, self._pairs.registered)

    def _list_place(self, place: Place, work: Callable[[], Listing], text: str = "") -> None:
        self._targets.begin(place, text)
        self._background.ask(
            f"targets {place.value}",
            lambda _: work(),
            lambda listing: self._targets.fill(place, listing),
            lambda error: self._targets.fail(place, error),
        )

    def _list_forms_of_target(self, entry: TargetEntry) -> None:
        def take(form: Quantization | None) -> None:
            if form is not None:
                self._choose_target(entry, form.remote)

        def offer(forms: Sequence[Quantization]) -> None:
            self.app.push_screen(QuantizationDialog(entry.name, forms), take)

        self._ask(
            f"Asking the Hub for the quantizations of {entry.name}", lambda: self._pairs.quantizations(entry), offer
        )

    def _choose_target(self, entry: TargetEntry, remote: RemoteModel | None) -> None:
        loaded = self._loaded()

        def go_on(target: Target) -> None:
            self._target = target
            self._show_step(drafts=True)
            self._find_drafts(target)

        self._ask(f"Reading the header of {entry.name}", lambda: self._pairs.choose(entry, remote, loaded), go_on)

    # --- drafts -------------------------------------------------------------------------------------------------------

    @on(DraftList.Highlighted)
    def look_at_draft(self, message: DraftList.Highlighted) -> None:
        """Say what is known of it, and of the memory of both."""
        if self._is_choosing_draft and self._target is not None:
            self._panel.show(DraftDetails(self._target, message.option))

    @on(DraftList.Chosen)
    def choose_draft(self, message: DraftList.Chosen) -> None:
        """Load the pair, or fetch it first."""
        option, target = message.option, self._target
        if target is None:
            return
        if option is not None and option.is_refused:
            reason = option.verdict.reasons[0]
            self.say(f"✗ It cannot draft for this target: {reason.text}. {reason.hint}", is_problem=True)
            return
        chosen = ChosenPair(target, option)
        doubt = self._doubt_about(chosen)
        names = target.model.reference, option.model.reference if option is not None else ""
        if doubt and self._confirmed != names:
            self._confirmed = names
            self.say(f"{doubt} Enter again loads it all the same.")
            return
        self.say("")
        self.post_message(PairChosen(chosen))

    def _doubt_about(self, chosen: ChosenPair) -> str:
        option, made = chosen.draft, chosen.plan
        if option is None and self._drafts.is_looking and not self._drafts.was_moved:
            return "Drafts are still looked for; this is the target without one."
        if made is not None and not (option.fits if option is not None else made.fits):
            return "By its plan there is too little memory for it."
        return ""

    def _find_drafts(self, target: Target, *, search: bool = False) -> None:
        if search:
            self._drafts.say("Searching the Hub …")
        else:
            self._drafts.begin(target)

        def work(question: Question) -> Sequence[str]:
            return self._pairs.find_drafts(
                target,
                lambda option: question.tell(lambda: self._drafts.add(option)),
                lambda what: question.tell(lambda: self._drafts.say(f"Looking at {what} …")),
                search=search,
            )

        def failed(error: LocalspecError) -> None:
            self._drafts.finish([f"✗ {error.message}", *([error.hint] if error.hint else [])])

        self._background.ask("drafts", work, self._drafts.finish, failed)

    def _list_forms_of_draft(self) -> None:
        option, target = self._drafts.highlighted, self._target
        remote = option.model.remote if option is not None and not option.is_refused else None
        if option is None or target is None or remote is None or not option.model.n_download_bytes:
            self.notify("Only a draft model that is not here yet comes in several quantizations.")
            return

        def take(form: Quantization | None) -> None:
            if form is not None and form.draft is not None:
                self._drafts.replace(option, form.draft)

        def offer(forms: Sequence[Quantization]) -> None:
            self.app.push_screen(QuantizationDialog(remote.repo, forms), take)

        work = lambda: self._pairs.draft_quantizations(target, option)  # noqa: E731
        self._ask(f"Asking the Hub for the quantizations of {remote.repo}", work, offer)

    # --- the rest -----------------------------------------------------------------------------------------------------

    @property
    def _is_choosing_draft(self) -> bool:
        return self._drafts.display

    def _ask(self, doing: str, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """One question at a time: another choice makes this one outdated."""

        def answered(answer: T) -> None:
            self.say("")
            then(answer)

        def failed(error: LocalspecError) -> None:
            self.say(f"✗ {error.message} {error.hint}", is_problem=True)

        self.say(f"{doing} …")
        self._background.ask("choice", lambda _: work(), answered, failed)

    def say(self, text: str, *, is_problem: bool = False) -> None:
        """A line above the keys; "" takes it away."""
        self._notice.update(Content(one_line(text)))
        self._notice.set_class(is_problem, "-problem")
        self._notice.display = bool(text)

    def _show_step(self, *, drafts: bool) -> None:
        self._confirmed = None
        self.say("")
        self._targets.display, self._drafts.display = not drafts, drafts
        self.set_focus((self._drafts if drafts else self._targets).list)
        if not drafts:
            entry = self._targets.highlighted
            self._panel.show(EntryDetails(entry) if entry is not None else None)
        self.refresh_bindings()
