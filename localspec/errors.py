"""Every error that localspec raises on purpose.

Each one names the thing and the values in its message, carries a `hint` with the next step, and maps to the exit
code of the command line. All of them survive pickling, since they cross from the engine process.

    LocalspecError                      1
    ├── UsageError                      2   a flag, setting or request that cannot be used
    │   └── ConfigError                 2   the configuration file
    ├── ModelError                      3   a model or pair that is refused
    │   ├── ModelFileError              3   missing, a directory, empty, truncated, not GGUF
    │   ├── UnsupportedModelError       3   unknown architecture, embeddings only
    │   ├── IncompatiblePairError       3   the draft cannot draft for the target: rule and both values
    │   └── ChatTemplateError           3   the model's own template fails
    ├── DoesNotFitError                 4   memory or disk
    │   ├── ContextFullError            4   more tokens than the context holds
    │   └── DiskFullError               4
    ├── HubError                        1   the Hub answers with something that cannot be used
    │   ├── HubUnreachableError         1   it does not answer, or is busy: another attempt may succeed
    │   ├── OfflineError                1   not in the cache, and the network may not be asked
    │   ├── DownloadCancelledError      1   a download was stopped on request
    │   ├── NotOnHubError               3   no such repository, file or quantization
    │   └── HubAccessError              3   a licence to accept, or a token that is missing or wrong
    ├── EndpointError                   1   a server that models are used through (--endpoint)
    │   ├── EndpointUnreachableError    1   it does not answer, or broke off: another attempt may succeed
    │   ├── EndpointRefusedError        1   it answers with an error
    │   └── EndpointAnswerError         1   it answers with something that cannot be used
    ├── EngineError                     1   llama.cpp failed while running
    │   ├── LoadCancelledError          1   loading was stopped on request
    │   └── EngineDiedError             1   its process ended
    └── UnavailableError                1   the endpoint cannot take or finish a request now
        ├── BusyError                   1   too many requests wait already
        ├── RequestTimeoutError         1   a request took longer than the endpoint allows
        ├── StillLoadingError           1   the models are not loaded yet
        └── ShuttingDownError           1   the endpoint is about to end
"""

from __future__ import annotations

from typing import Any, ClassVar, Self


class LocalspecError(Exception):
    """Base of the tree: a message that names what went wrong, and a hint that says what to do next."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.__dict__)


def _rebuild(cls: type[LocalspecError], state: dict[str, Any]) -> LocalspecError:
    error = cls.__new__(cls, state["message"])
    error.__dict__.update(state)
    return error


class UsageError(LocalspecError):
    """A flag, setting or request that cannot be used as given."""

    exit_code = 2


class ConfigError(UsageError):
    """The configuration file or an environment variable holds something that cannot be used."""


class ModelError(LocalspecError):
    """A model or a pair is refused."""

    exit_code = 3


class ModelFileError(ModelError):
    """The file cannot be read as a GGUF model."""


class UnsupportedModelError(ModelError):
    """A well-formed model that cannot generate text here."""


class IncompatiblePairError(ModelError):
    """The draft model cannot draft for the target: `rule` failed on `target_value` and `draft_value`."""

    def __init__(self, message: str, *, rule: str, target_value: str, draft_value: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.rule = rule
        self.target_value = target_value
        self.draft_value = draft_value


class ChatTemplateError(ModelError):
    """The chat template of the model raised, is not valid Jinja, or does too much."""


class DoesNotFitError(LocalspecError):
    """Memory or disk does not hold what was asked for."""

    exit_code = 4


class ContextFullError(DoesNotFitError):
    """The prompt has `n_tokens` tokens where the context holds `n_ctx`."""

    def __init__(self, message: str, *, n_tokens: int, n_ctx: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.n_tokens = n_tokens
        self.n_ctx = n_ctx

    @classmethod
    def for_prompt(cls, n_tokens: int, n_ctx: int) -> Self:
        return cls(
            f"The prompt has {n_tokens} tokens; the context holds {n_ctx}, and one is needed for the reply.",
            n_tokens=n_tokens,
            n_ctx=n_ctx,
            hint="Shorten the prompt, start a new chat, or give a larger context with --ctx.",
        )


class DiskFullError(DoesNotFitError):
    """A file could not be written in full."""


class HubError(LocalspecError):
    """The Hub answered with something that cannot be used."""


class HubUnreachableError(HubError):
    """The Hub did not answer, broke off, or is busy. `retry_after_s`: how long it asks to be left alone, if it says."""

    def __init__(self, message: str, *, hint: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class OfflineError(HubError):
    """What was asked for is not in the cache, and offline mode forbids to ask the Hub."""


class DownloadCancelledError(HubError):
    """A download was stopped because somebody asked for it. What has arrived is kept."""


class NotOnHubError(HubError):
    """No such repository, file or quantization, as far as the Hub tells."""

    exit_code = 3


class HubAccessError(HubError):
    """It is on the Hub, but not for this user: a licence is to be accepted, or a token is missing or wrong."""

    exit_code = 3


class EndpointError(LocalspecError):
    """A server that models are used through failed."""


class EndpointUnreachableError(EndpointError):
    """The server did not answer, or broke off: name, network, TLS, time."""


class EndpointRefusedError(EndpointError):
    """The server answered with an error; `status` is that of HTTP, None where it came in the middle of a reply."""

    def __init__(self, message: str, *, status: int | None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status


class EndpointAnswerError(EndpointError):
    """The server answered with something that cannot be used."""


class EngineError(LocalspecError):
    """llama.cpp reported a failure while running."""


class LoadCancelledError(EngineError):
    """Loading was stopped because somebody asked for it."""


class EngineDiedError(EngineError):
    """The engine process ended without being asked to."""


class UnavailableError(LocalspecError):
    """The endpoint cannot take a request now, or cannot finish one."""


class BusyError(UnavailableError):
    """As many requests run and wait as may. `retry_after_s`: when there may be room again."""

    def __init__(self, message: str, *, retry_after_s: float, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class RequestTimeoutError(UnavailableError):
    """A request took longer than the endpoint allows."""


class StillLoadingError(UnavailableError):
    """The models are not loaded yet."""


class ShuttingDownError(UnavailableError):
    """The endpoint is about to end."""
