"""Whether the Hub can be reached at all: one short question, for `localspec doctor`."""

from __future__ import annotations

import queue
import threading
from typing import Final

from localspec.errors import UsageError
from localspec.hub import settings
from localspec.printable import one_line

__all__ = ["reachable"]

_MOST_SHOWN: Final = 200


def reachable(endpoint: str | None, timeout_s: float) -> str | None:
    """Why the Hub at `endpoint` (None: that of the environment) does not answer; None: it does.

    Any answer counts but that of a server or proxy in trouble. Returns after `timeout_s` also where looking up the name
    of the host takes longer: no library can cut that short.
    """
    try:
        settings.endpoint()  # huggingface_hub cannot be imported where that of the environment is no address
        address = settings.endpoint(endpoint)
    except UsageError as error:
        return error.message
    answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=lambda: answers.put(_ask(address, timeout_s)), daemon=True).start()
    try:
        return answers.get(timeout=timeout_s)
    except queue.Empty:
        return f"no answer within {timeout_s:g} s"


def _ask(address: str, timeout_s: float) -> str | None:
    from huggingface_hub import get_session
    from huggingface_hub.errors import OfflineModeIsEnabled

    try:
        client = get_session()
        request = client.build_request("HEAD", address, timeout=timeout_s)
        response = client.send(request, stream=True, follow_redirects=False)
        response.close()
    except OfflineModeIsEnabled:
        return "offline mode is on (HF_HUB_OFFLINE)"
    except Exception as error:  # of the HTTP library, of TLS, of the system's proxy settings ...
        return one_line(str(error))[:_MOST_SHOWN] or type(error).__name__
    status = int(response.status_code)
    if status == 407:
        return "the proxy wants a name and password"
    return f"it answers with status {status}" if status >= 500 else None
