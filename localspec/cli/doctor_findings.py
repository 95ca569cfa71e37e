"""What `localspec doctor` finds: lines of one kind, whatever was looked at, and whatever went wrong while looking."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from localspec.errors import LocalspecError
from localspec.printable import one_line

logger = logging.getLogger(__name__)


class State(StrEnum):
    """How bad it is. A problem keeps something from working; a warning makes it slow, or may become a problem."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was looked at, how it is, what was found, and what to do about it (empty where nothing is)."""

    name: str
    state: State
    value: str
    advice: str = ""


Check = Callable[[], Iterable[Finding]]


def ok(name: str, value: str, advice: str = "") -> Finding:
    """All is well."""
    return Finding(name, State.OK, value, advice)


def warning(name: str, value: str, advice: str) -> Finding:
    """It works, and could be better."""
    return Finding(name, State.WARNING, value, advice)


def problem(name: str, value: str, advice: str) -> Finding:
    """Something does not work."""
    return Finding(name, State.PROBLEM, value, advice)


def run_check(name: str, check: Check) -> list[Finding]:
    """What a check finds, on single lines. That it fails is a finding too, after what it found before."""
    found: list[Finding] = []
    try:
        found.extend(check())
    except LocalspecError as error:
        found.append(problem(name, error.message, error.hint))
    except Exception as error:
        logger.debug("The check of %s failed", name, exc_info=True)
        found.append(
            warning(
                name,
                f"it could not be looked at: {type(error).__name__}: {error}",
                "This is a bug of localspec; with -vv before the command it says more.",
            )
        )
    return [Finding(each.name, each.state, one_line(each.value), one_line(each.advice)) for each in found]
