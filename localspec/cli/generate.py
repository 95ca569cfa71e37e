"""`localspec generate`: one answer to stdout, for scripts."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import queue
import select
import signal
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from localspec.cli.console import INTERRUPTED, LoadProgress, say, say_error, summary
from localspec.cli.endpoint import EndpointOptions, check_endpoint, remote_engine, sampling_set
from localspec.cli.option_groups import expand_groups
from localspec.cli.options import PairOptions, ReplyOptions, SamplingOptions, TunedOptions
from localspec.engine.requests import ChatPrompt, GenerateRequest, Message, Mode, RawPrompt
from localspec.errors import LocalspecError, UsageError
from localspec.printable import printable

if TYPE_CHECKING:
    from pathlib import Path

    from localspec.config import Settings
    from localspec.engine.client import EngineClient
    from localspec.engine.events import Loaded, RequestEvent, TextSpan
    from localspec.engine.metrics import RequestMetrics
    from localspec.engine.requests import PairSpec, SamplingParams
    from localspec.remote.engine import RemoteEngine

_REQUEST: Final = "The request"
_MAX_STDIN_BYTES: Final = 16 << 20


@expand_groups
def generate(
    context: typer.Context,
    pair: PairOptions,
    tuned: TunedOptions,
    sampling: SamplingOptions,
    reply: ReplyOptions,
    endpoint: EndpointOptions,
    prompt: Annotated[
        list[str] | None, typer.Argument(help="The prompt; words are joined. Without it, or where it says -, stdin.")
    ] = None,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Continue the text as it is, without the chat template.", rich_help_panel=_REQUEST),
    ] = False,
    stop: Annotated[
        list[str] | None,
        typer.Option(help="Text that ends the answer; may be given several times.", rich_help_panel=_REQUEST),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="One JSON object with text, tokens, origins and metrics.", rich_help_panel=_REQUEST
        ),
    ] = False,
) -> None:
    """Write one answer to stdout; a line with the speed goes to stderr.

    Exit codes: 0, 1 the engine failed, 2 usage, 3 model or pair refused, 4 does not fit, 130 interrupted.
    """
    check_endpoint(endpoint, pair, tuned, reply)
    text = _prompt_text(prompt)
    if raw and reply.system is not None:
        raise UsageError("--raw and --system contradict each other.", hint="Write the system prompt into the raw text.")
    if raw and endpoint.endpoint is not None:
        raise UsageError("--raw and --endpoint contradict each other: a server is asked by chats.")
    settings, params, spec, engine, notice = (
        _with_pair(context.obj.config, pair, tuned, sampling, reply)
        if endpoint.endpoint is None
        else _with_server(context.obj.config, sampling, reply, endpoint)
    )
    request = GenerateRequest(
        prompt=RawPrompt(text) if raw else ChatPrompt(_messages(reply.system, text)),
        sampling=params,
        mode=Mode(settings.mode),
        num_speculative_tokens=settings.num_speculative_tokens,
        fixed_length=settings.fixed_length,
        max_tokens=reply.max_tokens,
        stop=tuple(stop or ()),
    )
    if notice:
        say(notice)
    with engine:
        code = _run(engine, spec, request, as_json=as_json, is_remote=endpoint.endpoint is not None)
    if code:
        raise typer.Exit(code)


def _flags(reply: ReplyOptions) -> dict[str, object]:
    """What [chat] says about system prompt and length is for chats."""
    return {
        "mode": reply.mode,
        "num_speculative_tokens": reply.num_speculative_tokens,
        "fixed_length": reply.fixed_length,
    }


def _with_pair(
    config: Path | None, pair: PairOptions, tuned: TunedOptions, sampling: SamplingOptions, reply: ReplyOptions
) -> tuple[Settings, SamplingParams, PairSpec, EngineClient, str]:
    from localspec.cli.selection import select
    from localspec.engine.client import EngineClient

    selection = select(config, pair, sampling, _flags(reply), uses_profile=not tuned.no_profile)
    settings, spec = selection.settings, selection.pair
    if reply.mode is Mode.DRAFT and spec.draft is None:
        raise UsageError("--mode draft needs a draft model.", hint="Name one with --draft FILE, or use --mode lookup.")
    if Mode(settings.mode) in {Mode.LOOKUP, Mode.PLAIN}:
        spec = replace(spec, draft=None)  # it would never be used
    return settings, selection.sampling, spec, EngineClient(), selection.notice


def _with_server(
    config: Path | None, sampling: SamplingOptions, reply: ReplyOptions, endpoint: EndpointOptions
) -> tuple[Settings, SamplingParams, PairSpec, RemoteEngine, str]:
    from localspec.cli.selection import select_without_pair
    from localspec.remote.engine import stand_in

    settings, params = select_without_pair(config, PairOptions(), sampling, _flags(reply))
    engine, notice = remote_engine(endpoint, os.environ, sampling_set(settings, sampling), reply)
    settings = settings.model_copy(update={"fixed_length": False})  # no server is asked for that
    return settings, params, stand_in(engine.endpoint), engine, notice


def _run(
    engine: EngineClient | RemoteEngine, pair: PairSpec, request: GenerateRequest, *, as_json: bool, is_remote: bool
) -> int:
    loaded = engine.load_and_wait(pair, LoadProgress())
    if loaded.speculation_note:
        say(loaded.speculation_note)
    if not loaded.has_chat_template and isinstance(request.prompt, ChatPrompt):
        say("The model carries no chat template: ChatML is assumed, and the answer may suffer. Or use --raw.")
    answer = _Answer(is_streamed=not as_json)
    if not _wait_for(answer, engine, request):
        return INTERRUPTED
    if as_json:
        of_server = _known_of_server(answer, request, loaded) if is_remote else {}
        sys.stdout.write(json.dumps(answer.as_json(request, loaded) | of_server, ensure_ascii=False) + "\n")
    elif answer.text and not answer.text.endswith("\n") and sys.stdout.isatty():
        sys.stdout.write("\n")
    sys.stdout.flush()
    if answer.metrics is not None:
        say(summary(answer.metrics, answer.mode if loaded.takes_modes else "", answer.finish_reason))
    if answer.error is not None:
        say_error(answer.error)
        return answer.error.exit_code
    return INTERRUPTED if answer.interrupted else 0


def _wait_for(answer: _Answer, engine: EngineClient | RemoteEngine, request: GenerateRequest) -> bool:
    """Until the answer is complete; False if the user does not want to wait for that."""
    events: queue.SimpleQueue[RequestEvent | None] = queue.SimpleQueue()
    # Ctrl-C is one more event: it cannot fall between the taking of another one and its printing.
    signal.signal(signal.SIGINT, lambda *_: events.put(None))
    engine.submit(request, events.put)
    while not answer.is_complete:
        event = events.get()
        if event is not None:
            answer.take(event)
        elif answer.interrupted:
            return False  # a second Ctrl-C
        else:
            answer.interrupted = True
            engine.cancel(request.request_id)
    return True


@dataclass
class _Answer:
    """What has arrived of the answer."""

    is_streamed: bool
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)
    finish_reason: str = ""
    seed: int = 0
    mode: str = ""
    metrics: RequestMetrics | None = None
    error: LocalspecError | None = None
    interrupted: bool = False

    @property
    def is_complete(self) -> bool:
        return bool(self.finish_reason)

    def take(self, event: RequestEvent) -> None:
        from localspec.engine import events

        match event:
            case events.Queued():
                self.seed, self.mode = event.seed, event.mode.value
                if event.mode_note:
                    say(event.mode_note)
            case events.StepDecoded():
                self.token_ids += event.step.tokens
                self.origins += [origin.value for origin in event.step.origins]
                self._show(event.spans)
            case events.Finished():
                self._show(event.spans)
                self.finish_reason, self.metrics = event.reason.value, event.metrics
            case events.Cancelled():
                self._show(event.spans)
                self.finish_reason, self.metrics = "cancelled", event.metrics
            case events.Failed():
                self.finish_reason, self.error = "error", event.error
            case events.Prefilling():
                pass

    def _show(self, spans: tuple[TextSpan, ...]) -> None:
        text = "".join(span.text for span in spans if not span.is_reasoning)
        self.text += text
        if self.is_streamed and text:
            sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
            sys.stdout.flush()

    def as_json(self, request: GenerateRequest, loaded: Loaded) -> dict[str, Any]:
        """The object that `--json` prints."""
        return {
            "text": self.text,
            "finish_reason": self.finish_reason,
            "token_ids": self.token_ids,
            "origins": self.origins,
            "metrics": self.metrics.as_dict() if self.metrics else None,
            "model": {"target": loaded.target_name, "draft": loaded.draft_name},
            "mode": self.mode,
            "num_speculative_tokens": request.num_speculative_tokens,
            "fixed_length": request.fixed_length,
            "seed": self.seed,
            "error": str(self.error) if self.error else None,
        }


def _known_of_server(answer: _Answer, request: GenerateRequest, loaded: Loaded) -> dict[str, Any]:
    """What a server does not tell is null, and not 0 or empty."""
    from localspec.remote.reply_metrics import MEASURED

    metrics = answer.metrics.as_dict() if answer.metrics else {}
    return {
        "token_ids": None,
        "origins": None,
        "metrics": {name: metrics[name] or None for name in MEASURED} if metrics else None,
        "mode": answer.mode if loaded.takes_modes else None,
        "seed": request.sampling.seed,
    }


def _messages(system: str | None, prompt: str) -> tuple[Message, ...]:
    user = Message("user", prompt)
    return (user,) if system is None else (Message("system", system), user)


def _prompt_text(words: list[str] | None) -> str:
    """The words of the command line, with stdin in the place of "-"; stdin alone without any."""
    words = words or ["-"]
    if "-" not in words:
        _warn_of_ignored_stdin()
    elif sys.stdin is None or sys.stdin.isatty():
        raise UsageError("There is no prompt.", hint="Give it as an argument, or pipe it in.")
    text = ""
    for is_stdin, group in itertools.groupby(words, key=lambda word: word == "-"):
        text += ("\n\n" if text else "") + (_read_stdin() if is_stdin else " ".join(group))
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError("The prompt on the command line is not valid UTF-8.") from error
    if not text.strip():
        raise UsageError("The prompt is empty.", hint="Give some text as an argument, or pipe it in.")
    return text


def _warn_of_ignored_stdin() -> None:
    """Reading it unasked could wait for ever; but what is there by now was meant for us."""
    stream = getattr(sys.stdin, "buffer", None)
    if os.name != "posix" or not isinstance(stream, io.BufferedReader) or stream.isatty():
        return
    with contextlib.suppress(OSError, ValueError):
        if select.select([stream], [], [], 0)[0] and stream.peek(1):
            say("stdin is not read: put - where it belongs, as in: localspec generate 'Summarise this:' -")


def _read_stdin() -> str:
    data = sys.stdin.buffer.read(_MAX_STDIN_BYTES + 1)
    if len(data) > _MAX_STDIN_BYTES:
        raise UsageError(f"The prompt on stdin is larger than {_MAX_STDIN_BYTES >> 20} MiB.")
    try:
        return data.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"The prompt on stdin is not UTF-8: byte {error.start} is 0x{data[error.start]:02x}.",
            hint="Convert it, for example with iconv -t UTF-8.",
        ) from error
