"""The prompts that speeds are measured on, in the kinds that separate the sources of drafts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from localspec.engine.requests import ChatPrompt, Message
from localspec.errors import UsageError

STANDARD: Final = Path(__file__).with_name("standard.jsonl")
OWN_KIND: Final = "own"
DEFAULT_MAX_TOKENS: Final = 192

_JSON_LINES: Final = frozenset({".jsonl", ".ndjson", ".json"})
_MAX_FILE_BYTES: Final = 64 << 20
_HINT: Final = 'One object a line, such as {"kind": "code", "name": "lru", "prompt": "Write ...", "max_tokens": 192}.'

_Label = Annotated[str, Field(max_length=40)]


@dataclass(frozen=True, slots=True)
class Workload:
    """One prompt, and how long its reply may be. `kind` and `name` together are its own in a file."""

    prompt: Annotated[str, Field(min_length=1)]
    kind: Annotated[_Label, Field(min_length=1)] = OWN_KIND
    name: _Label = ""
    system: str | None = None
    max_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] = DEFAULT_MAX_TOKENS

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def chat(self) -> ChatPrompt:
        """The prompt as a chat's first turn."""
        system = () if self.system is None else (Message("system", self.system),)
        return ChatPrompt((*system, Message("user", self.prompt)))


_CHECKED: Final = TypeAdapter(Workload)


def read_workloads(file: Path = STANDARD) -> list[Workload]:
    """The workloads of a JSON Lines file with the fields of `Workload`; any other file is one prompt.

    Only `prompt` must be given; a prompt without a name is called after its line, or after the file.

    Raises:
        UsageError: the file cannot be read, a line is not such an object, or two have one name; the message names the
            line.
    """
    text = _read(file)
    if file.suffix.lower() not in _JSON_LINES:
        if not text.strip():
            raise UsageError(f"The workload file {file} is empty.", hint="It should hold a prompt.")
        return [Workload(text.strip(), name=file.stem[:40])]
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not lines:
        raise UsageError(f"The workload file {file} is empty.", hint=_HINT)
    workloads: dict[str, Workload] = {}
    for number, line in lines:
        workload = _parse(file, number, line)
        if str(workload) in workloads:
            raise UsageError(
                f"{file}, line {number}: there is a {workload} already.", hint="Give every prompt of a kind its name."
            )
        workloads[str(workload)] = workload
    return list(workloads.values())


def select_workloads(workloads: Sequence[Workload], kinds: Iterable[str], names: Iterable[str]) -> list[Workload]:
    """Those of the kinds and names that are given; none given means all.

    Raises:
        UsageError: there is no such kind or name, or nothing is both.
    """
    kinds, names = tuple(kinds), tuple(names)
    _refuse_unknown("kind", kinds, dict.fromkeys(each.kind for each in workloads))
    _refuse_unknown("name", names, dict.fromkeys(each.name for each in workloads))
    selected = [each for each in workloads if (not kinds or each.kind in kinds) and (not names or each.name in names)]
    if not selected:
        raise UsageError(
            f"No workload is of kind {' or '.join(kinds)} and named {' or '.join(names)}.",
            hint="Leave out the kind or the name.",
        )
    return selected


def _refuse_unknown(what: str, wanted: Iterable[str], known: Iterable[str]) -> None:
    known = tuple(known)
    for each in wanted:
        if each not in known:
            raise UsageError(f"No workload has the {what} {each}.", hint=f"There are: {', '.join(known)}.")


def _read(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            data = stream.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"The workload file {file} cannot be read: {error.strerror or error}.") from error
    if len(data) > _MAX_FILE_BYTES:
        raise UsageError(f"The workload file {file} is larger than {_MAX_FILE_BYTES >> 20} MiB.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"The workload file {file} is not UTF-8 text (byte {error.start}).") from error


def _parse(file: Path, number: int, line: str) -> Workload:
    try:
        workload = _CHECKED.validate_json(line)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = "".join(f"{key}: " for key in problem["loc"])
        raise UsageError(f"{file}, line {number}: {where}{problem['msg']}.", hint=_HINT) from error
    return workload if workload.name else replace(workload, name=f"line-{number}")
