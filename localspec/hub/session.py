"""Requests to the Hub through huggingface_hub's HTTP session, bounded in time and size, with errors that help.

Its API client and `hf_hub_download` are not used. They ask which program runs them (a request of their own to the
default Hub, whatever the endpoint), know no limit to an answer, sleep on 429 as long as they are told, and search
without any timeout; all of it deaf to a cancellation.
"""

from __future__ import annotations

import functools
import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

from huggingface_hub import get_session, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

from localspec.errors import HubError, HubUnreachableError, OfflineError, UsageError
from localspec.hub import settings
from localspec.hub.patience import Patience
from localspec.hub.refusals import Subject, refusal
from localspec.printable import one_line

__all__ = ["Content", "Session", "in_time"]

CONNECT_TIMEOUT_S: Final = 10.0
SILENCE_TIMEOUT_S: Final = 20.0  # between two pieces of an answer
MAX_JSON_BYTES: Final = 8 * 1024 * 1024  # 20 thousand files with their hashes
_MAX_REFUSAL_BYTES: Final = 64 * 1024
_MAX_REDIRECTS: Final = 5
_ANSWER_TIME_S: Final = 60.0
_REFUSAL_TIME_S: Final = 10.0
_N_FAILURES: Final = 2  # of a question that somebody waits for
_LONGEST_ASKED_S: Final = 10.0

# The base of all errors of the HTTP library under huggingface_hub, which was httpx and is httpx2.
_HTTP_ERROR: Final[type[Exception]] = HfHubHTTPError.__bases__[0]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Content:
    """A part of a file: `pieces` of it, as they arrive, from byte `offset` on."""

    offset: int
    pieces: Iterator[bytes]


class Session:
    """Asks one Hub in the name of one user. Threads may share it.

    `offline`: every request is an OfflineError.
    """

    def __init__(self, endpoint: str, token: str | None, *, offline: bool) -> None:
        self.endpoint = endpoint
        self._given_token = token
        self._offline = offline

    def json(self, path: str, params: Mapping[str, str | Sequence[str]], repo: str = "") -> Any:
        """The answer to a question to the API.

        Raises:
            HubError: as the status says; the answer is too long or no JSON.
        """
        patience = Patience(_N_FAILURES, _LONGEST_ASKED_S)
        while True:
            try:
                return self._json(path, params, repo)
            except HubUnreachableError as error:
                _log.info("%s: %s", path, error)
                patience.wait(error)

    def _json(self, path: str, params: Mapping[str, str | Sequence[str]], repo: str) -> Any:
        body = bytearray()
        with self._get(self.endpoint + path, dict(params), {}, repo, "") as response:
            for piece in in_time(response.iter_bytes(), _ANSWER_TIME_S):
                body += piece
                if len(body) > MAX_JSON_BYTES:
                    raise HubError(
                        f"The Hub's answer is longer than {MAX_JSON_BYTES >> 20} MiB.", hint="Check HF_ENDPOINT."
                    )
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            what = "a web page" if body.lstrip()[:1] == b"<" else "no JSON"
            raise HubError(
                f"{settings.without_password(self.endpoint)} answers with {what}.",
                hint="Check HF_ENDPOINT, and whether the network wants you to log in first.",
            ) from error

    @contextmanager
    def content(self, repo: str, revision: str, file: str, first: int, end: int) -> Iterator[Content]:
        """Bytes `first` to `end` (not included) of a file; from its start where the server cannot begin elsewhere.

        The pieces may go on beyond `end` then, too. Leaving the context ends the transfer.

        Raises:
            HubError: as the status says; the server sends another part than it was asked for.
        """
        url = hf_hub_url(repo, file, revision=revision, endpoint=self.endpoint)
        # Every request goes to the Hub first, which redirects to storage with a signature that expires after a while.
        with self._get(url, {}, {"range": f"bytes={first}-{end - 1}"}, repo, file) as response:
            encoding = response.headers.get("content-encoding", "identity")
            if encoding != "identity":
                raise HubError(f"The Hub sends {file} in the encoding {one_line(encoding[:40])}, unasked.")
            offset = 0
            if response.status_code == 206:
                said = response.headers.get("content-range", "")
                if not said.startswith(f"bytes {first}-"):
                    raise HubError(f"The Hub was asked for byte {first} of {file} and sends {one_line(said[:60])!r}.")
                offset = first
            yield Content(offset, response.iter_raw())

    @contextmanager
    def _get(self, url: str, params: dict[str, Any], headers: dict[str, str], repo: str, file: str) -> Iterator[Any]:
        """An answer of success whose body is still to be read."""
        if self._offline:
            raise _offline(repo)
        token = self._token
        subject = Subject(self.endpoint, repo, file, has_token=token is not None)
        headers = {"user-agent": _user_agent(), "accept-encoding": "identity", **headers}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"  # the next request lacks it where a redirect leaves the Hub
        client = get_session()
        timeout = (CONNECT_TIMEOUT_S, SILENCE_TIMEOUT_S, SILENCE_TIMEOUT_S, CONNECT_TIMEOUT_S)
        request = client.build_request("GET", url, params=params or None, headers=headers, timeout=timeout)
        try:
            for _ in range(_MAX_REDIRECTS + 1):
                # Redirects are followed here, since the session reads their bodies to the end, however long.
                response = client.send(request, stream=True, follow_redirects=False)
                try:
                    if response.next_request is None:
                        if response.status_code not in {200, 206}:
                            raise refusal(response, _start_of(response), subject)
                        yield response
                        return
                    _start_of(response)  # a connection that was read to its end can be used again
                finally:
                    response.close()
                request = response.next_request
            raise HubError(f"{subject.host} redirects again and again.", hint="Check HF_ENDPOINT.")
        except OfflineModeIsEnabled as error:
            raise _offline(repo) from error
        except _HTTP_ERROR as error:
            raise _unreachable(error, subject) from error

    @functools.cached_property
    def _token(self) -> str | None:
        try:
            return settings.token(self._given_token)
        except UsageError:
            raise
        except Exception as error:  # whatever a service says that tokens are renewed with
            raise HubError(
                f"The token for the Hub cannot be had: {one_line(str(error))[:200]}.",
                hint="Log in again with `hf auth login`, or set HF_TOKEN.",
            ) from error


def in_time(pieces: Iterable[bytes], limit_s: float) -> Iterator[bytes]:
    """The pieces of an answer, which may not trickle in for ever.

    Raises:
        HubUnreachableError: `limit_s` are over.
    """
    end_s = time.monotonic() + limit_s
    for piece in pieces:
        yield piece
        if time.monotonic() > end_s:
            raise HubUnreachableError("The Hub answers too slowly.", hint="Try again later, or check the network.")


def _start_of(response: Any) -> bytes:
    body = bytearray()
    for piece in in_time(response.iter_bytes(), _REFUSAL_TIME_S):
        body += piece
        if len(body) >= _MAX_REFUSAL_BYTES:
            break
    return bytes(body[:_MAX_REFUSAL_BYTES])


def _offline(repo: str) -> OfflineError:
    return OfflineError(
        f"{repo or 'The Hub'} cannot be looked up in offline mode.",
        hint="Use what is in the cache, or take HF_HUB_OFFLINE out of the environment.",
    )


def _unreachable(error: Exception, subject: Subject) -> HubUnreachableError:
    kind, reason = type(error).__name__, one_line(str(error))[:200] or type(error).__name__
    if "Proxy" in kind:
        hint = "Check the proxy: the variables HTTPS_PROXY, HTTP_PROXY, NO_PROXY."
    elif "CERTIFICATE" in reason:
        hint = "The network may use certificates of its own: name them with SSL_CERT_FILE."
    elif "Timeout" in kind:
        reason, hint = "no answer in time", "Try again later, or check the network."
    else:
        hint = "Check the network, the proxy (HTTPS_PROXY) and HF_ENDPOINT. What is in the cache works without."
    return HubUnreachableError(f"{subject.host} cannot be reached: {reason}.", hint=hint)


@functools.cache
def _user_agent() -> str:
    return f"localspec/{version('localspec')}; hf_hub/{version('huggingface_hub')}"
