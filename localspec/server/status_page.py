"""The page at /, and the numbers that it polls.

It is one file without anything from elsewhere, and its Content-Security-Policy allows just its own script and style by
their hashes. With an API key set, the browser asks for it (see `security`): neither page nor script ever has it.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from importlib import resources

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse

from localspec.server.state import Observed, Settings
from localspec.server.status import Status, status

__all__ = ["content_security_policy", "page", "router"]

router = APIRouter(tags=["operation"])


@router.get("/", response_class=HTMLResponse, include_in_schema=False)
async def status_page() -> Response:
    """The status page."""
    headers = {
        "content-security-policy": content_security_policy(page()),
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }
    return HTMLResponse(page(), headers=headers)


@router.get("/status.json")
async def status_json(observed: Observed, settings: Settings, response: Response) -> Status:
    """The server's state and speed, for its status page."""
    response.headers["cache-control"] = "no-store"
    return status(observed, settings, await observed.usage.read())


@functools.cache
def page() -> str:
    """The page's text."""
    return resources.files("localspec.server").joinpath("status.html").read_text("utf-8")


@functools.cache
def content_security_policy(html: str) -> str:
    """The policy that allows what stands between <script> and <style> tags of the page, and to poll this server."""

    def hashes(tag: str) -> str:
        contents = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digests = [hashlib.sha256(content.encode()).digest() for content in contents]
        return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)

    return (
        f"default-src 'none'; script-src {hashes('script')}; style-src {hashes('style')}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
