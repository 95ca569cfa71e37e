"""How often a request is tried again, and how long to wait in between."""

from __future__ import annotations

import threading
from typing import Final

from localspec.errors import DownloadCancelledError, HubUnreachableError

__all__ = ["Patience", "cancelled"]

FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 16.0


def cancelled() -> DownloadCancelledError:
    """What a wait or a transfer raises that was stopped on request."""
    return DownloadCancelledError("The download was stopped.", hint="Ask for it again: it goes on from where it was.")


class Patience:
    """Waits after each failure, twice as long each time, until `n_failures` came in a row.

    The Hub may ask for a longer wait; more than `longest_asked_s` is not granted, and the failure stands.
    """

    def __init__(self, n_failures: int, longest_asked_s: float, cancel: threading.Event | None = None) -> None:
        self._n_failures = n_failures
        self._longest_asked_s = longest_asked_s
        self._cancel = cancel or threading.Event()
        self._n_in_a_row = 0

    def renew(self) -> None:
        """Something worked."""
        self._n_in_a_row = 0

    def wait(self, failure: HubUnreachableError) -> None:
        """Wait until the next attempt.

        Raises:
            HubUnreachableError: the failure itself, when there is to be no other attempt.
            DownloadCancelledError: cancelled meanwhile.
        """
        self._n_in_a_row += 1
        asked_s = failure.retry_after_s or 0.0
        if self._n_in_a_row > self._n_failures or asked_s > self._longest_asked_s:
            raise failure
        wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** (self._n_in_a_row - 1))
        if self._cancel.wait(max(wait_s, asked_s)):
            raise cancelled()
