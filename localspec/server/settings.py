"""What the endpoint may be told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from localspec.engine.requests import Mode, SamplingParams

__all__ = ["DEFAULT_PORT", "ServerSettings"]

DEFAULT_PORT: Final = 8080


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of one endpoint.

    `api_keys`: any of them opens it; none: it is open. `allowed_origins`: pages of these origins may call it from a
    browser. `allowed_hosts`: names that it answers to beside its own. A request body has `body_timeout_s` to arrive.
    `n_parallel` replies run at once and `n_queue` more requests wait; a request that takes longer than
    `request_timeout_s` ends (None: no limit). A stream that is silent for `keep_alive_s` sends a comment. When the
    endpoint ends, running replies have `shutdown_s` to finish. `model_alias`: the name to serve the model by; None: its
    own. `sampling`, `mode`, `num_speculative_tokens`, `fixed_length` and `max_tokens` are for requests that do not say.
    `acceptance_threshold`: a windowed acceptance rate below it is logged.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    allowed_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    n_parallel: int = 4
    n_queue: int = 64
    request_timeout_s: float | None = 600.0
    keep_alive_s: float = 5.0
    shutdown_s: float = 10.0
    max_body_bytes: int = 16 << 20
    max_header_bytes: int = 32 << 10
    body_timeout_s: float = 30.0
    model_alias: str | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    mode: Mode = Mode.AUTO
    num_speculative_tokens: int | None = None
    fixed_length: bool = False
    max_tokens: int | None = None
    acceptance_threshold: float = 0.55
