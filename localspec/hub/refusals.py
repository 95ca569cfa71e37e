"""What an answer of the Hub other than success means for the user, and what to do about it."""

from __future__ import annotations

import contextlib
import email.utils
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from huggingface_hub import hf_raise_for_status
from huggingface_hub.errors import (
    DisabledRepoError,
    GatedRepoError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import parse_ratelimit_headers  # type: ignore[attr-defined]  # exported when asked for

from localspec.errors import HubAccessError, HubError, HubUnreachableError, NotOnHubError
from localspec.hub.settings import without_password
from localspec.printable import one_line

__all__ = ["Subject", "refusal"]

_LOG_IN: Final = "log in with `hf auth login`, or set HF_TOKEN"
_BUSY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_MAX_MESSAGE: Final = 200


@dataclass(frozen=True, slots=True)
class Subject:
    """What was asked for, and by whom. `repo` or `file` "": the question was not about one."""

    endpoint: str
    repo: str
    file: str
    has_token: bool

    @property
    def host(self) -> str:
        """The Hub's name in messages: without what may stand before an @."""
        return urlsplit(self.endpoint).netloc.rpartition("@")[2]


def refusal(response: Any, body: bytes, subject: Subject) -> HubError:
    """The error for an answer that is no success; `body` is what was read of it, a bounded part.

    What the status and the Hub's own headers mean is for huggingface_hub to say; what that means here, for us.
    """
    status, headers = response.status_code, response.headers
    said = _said(headers, body)
    # The rest of it huggingface_hub would trust to have a certain form.
    kept = {name: headers[name] for name in ("x-error-code", "x-error-message") if name in headers}
    bare = type(response)(status, headers=kept, content=b"", request=response.request)
    try:
        hf_raise_for_status(bare)
    except HfHubHTTPError as error:
        return _about_access(error, status, said, subject) or _about_service(status, said, headers, subject)
    return HubError(f"{subject.host} answers with status {status}, which nobody asked for.", hint="Check HF_ENDPOINT.")


def _said(headers: Mapping[str, str], body: bytes) -> str:
    """The reason that the Hub gives, in one short line, or ""."""
    text: object = headers.get("x-error-message")
    if not text:
        with contextlib.suppress(ValueError, RecursionError, AttributeError):
            text = json.loads(body).get("error")
    return one_line(text)[:_MAX_MESSAGE] if isinstance(text, str) else ""


def _about_access(error: HfHubHTTPError, status: int, said: str, subject: Subject) -> HubError | None:
    repo = subject.repo or subject.host
    found: HubError | None = None
    if isinstance(error, GatedRepoError):
        then = "with the account that your token belongs to" if subject.has_token else f"then {_LOG_IN}"
        found = HubAccessError(
            f"{repo} is gated: its owner wants a licence to be accepted first.",
            hint=f"Accept it at {without_password(subject.endpoint)}/{repo}, {then}.",
        )
    elif isinstance(error, DisabledRepoError):
        found = NotOnHubError(f"{repo} was disabled by the Hub.", hint="Choose another repository.")
    elif status == 401 and subject.has_token and not isinstance(error, RepositoryNotFoundError):
        found = HubAccessError(
            f"{subject.host} does not accept your token.", hint=f"It may have expired: {_LOG_IN} again."
        )
    elif isinstance(error, RemoteEntryNotFoundError) or (status == 404 and subject.file):
        found = NotOnHubError(
            f"{repo} has no file {subject.file}.", hint=f"See what there is: localspec pull --list {repo}"
        )
    elif isinstance(error, RepositoryNotFoundError | RevisionNotFoundError) or status in {401, 404}:
        otherwise = "check that your token may see it" if subject.has_token else _LOG_IN
        found = NotOnHubError(
            f"{repo} is not on {subject.host}, or it is private.", hint=f"Check its name; if it is right, {otherwise}."
        )
    elif status == 403:
        found = HubAccessError(
            f"{subject.host} denies access to {repo}{f': {said}' if said else ''}.",
            hint="Check what your token may do." if subject.has_token else f"{_LOG_IN[0].upper()}{_LOG_IN[1:]}.",
        )
    return found


def _about_service(status: int, said: str, headers: Mapping[str, str], subject: Subject) -> HubError:
    if status == 429:
        wait_s = _wait_s(headers)
        when = f" It asks to wait {wait_s:.0f} s." if wait_s else ""
        hint = "Try again later." if subject.has_token else f"Who is known may ask more often: {_LOG_IN}."
        return HubUnreachableError(f"{subject.host} was asked too often (429).{when}", hint=hint, retry_after_s=wait_s)
    if status in _BUSY:
        return HubUnreachableError(
            f"{subject.host} has a problem of its own ({status}{f': {said}' if said else ''}).",
            hint="Try again later.",
            retry_after_s=_wait_s(headers),
        )
    return HubError(
        f"{subject.host} refuses the request ({status}{f': {said}' if said else ''}).", hint="Check HF_ENDPOINT."
    )


def _wait_s(headers: Mapping[str, str]) -> float | None:
    """How long the Hub asks to be left alone: by `RateLimit`, or by `Retry-After` in seconds or as a date."""
    with contextlib.suppress(ValueError, OverflowError):  # thousands of digits
        limit = parse_ratelimit_headers(headers)
        if limit is not None and limit.remaining == 0:
            return float(limit.reset_in_seconds)
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
