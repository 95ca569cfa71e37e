"""`localspec serve` as a process: what it says, when it ends, and by which code."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil
import pytest
import yaml

from localspec.engine.events import Failed, Finished, Prefilling, RequestEvent, StepDecoded
from localspec.engine.requests import ChatPrompt, GenerateRequest, Message, Mode, SamplingParams
from localspec.remote.endpoint import endpoint_at
from localspec.remote.engine import RemoteEngine, stand_in
from tests.cli.conftest import Localspec, clean_environment, run_localspec

pytestmark = pytest.mark.native

CHAT = "/v1/chat/completions"
END = 257  # the token of the tiny models that ends a reply
ENDLESS = {"ignore_eos": True, "stream": True, "messages": [{"role": "user", "content": "Hello"}]}


@dataclass
class Server:
    """A server that runs, and what it has said."""

    process: subprocess.Popen[str]
    port: int
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.said.extend(self.process.stderr)

    @contextmanager
    def response(self, method: str, path: str, body: Any = None, **headers: str) -> Iterator[http.client.HTTPResponse]:
        """The response as it comes."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            given = {"Content-Type": "application/json"}
            given |= {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, None if body is None else json.dumps(body), given)
            with connection.getresponse() as response:
                yield response

    def status(self, path: str, **headers: str) -> int:
        with self.response("GET", path, **headers) as response:
            return response.status

    def model(self) -> str:
        """The name that the model is served by."""
        with self.response("GET", "/v1/models") as response:
            name: str = json.loads(response.read())["data"][0]["id"]
            return name

    def wait(self) -> None:
        """Until it is ready."""
        for _ in range(600):
            assert self.process.poll() is None, self.said
            try:
                if self.status("/health") == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        raise AssertionError("it does not become ready")

    def end(self, *signals: int) -> tuple[int, str]:
        """Send signals; the exit code, and all that was said."""
        for number in signals:
            self.process.send_signal(number)
            time.sleep(0.3)
        code = self.process.wait(60)
        self._reader.join(10)
        text = "".join(self.said)
        assert "Traceback" not in text
        return code, text


@pytest.fixture
def serve(home: Path, tmp_path: Path, tiny: list[object]) -> Iterator[Callable[..., Server]]:
    """Starts `localspec serve` with the tiny pair on a free port."""
    started: list[Server] = []

    def start(*args: object, is_ready: bool = True, verbose: str = "", **variables: str) -> Server:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, "-m", "localspec", *verbose.split(), "serve", *map(str, [*tiny, "--port", port, *args])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(home) | variables,
            cwd=tmp_path,
        )
        started.append(Server(process, port))
        if is_ready:
            started[-1].wait()
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait(10)
        for stream in (server.process.stdout, server.process.stderr):
            assert stream is not None
            stream.close()


def children_of(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def are_gone(pids: list[int]) -> bool:
    for _ in range(100):
        if not any(map(_is_alive, pids)):
            return True
        time.sleep(0.1)
    return False


def _is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_it_says_where_it_is_and_ends_by_sigterm_with_0(serve: Callable[..., Server]) -> None:
    server = serve("--alias", "tiny")
    assert server.model() == "tiny"
    engine = children_of(server.process.pid)
    code, text = server.end(signal.SIGTERM)
    assert code == 0
    assert f"http://127.0.0.1:{server.port}/v1" in text
    assert "256 tokens, for up to 4 replies" in text
    assert "--settings" in text
    assert max(map(len, text.splitlines())) <= 80, text  # a line that a terminal breaks is hard to read
    assert server.process.stdout is not None
    assert server.process.stdout.read() == ""
    assert engine
    assert are_gone(engine)


def test_ctrl_c_ends_it_with_130(serve: Callable[..., Server]) -> None:
    assert serve().end(signal.SIGINT)[0] == 130


def test_ctrl_c_while_it_loads_is_no_failure(serve: Callable[..., Server]) -> None:
    server = serve(is_ready=False)
    while True:
        try:
            socket.create_connection(("127.0.0.1", server.port), timeout=1).close()
            break
        except OSError:
            assert server.process.poll() is None
    code, text = server.end(signal.SIGINT)
    assert code == 130
    assert "ended with" not in text


def test_a_reply_that_runs_is_finished_before_it_ends(serve: Callable[..., Server]) -> None:
    server = serve("--ctx", 4096)
    with server.response("POST", CHAT, ENDLESS | {"max_tokens": 300}) as response:
        response.readline()
        server.process.send_signal(signal.SIGTERM)
        data = response.read().decode()
    assert data.rstrip().endswith("data: [DONE]")
    assert '"finish_reason":"length"' in data
    assert server.end()[0] == 0


def test_a_second_ctrl_c_ends_it_at_once(serve: Callable[..., Server]) -> None:
    server = serve("--ctx", 8192)
    with server.response("POST", CHAT, ENDLESS) as response:
        response.readline()
        engine = children_of(server.process.pid)
        began = time.monotonic()
        code, text = server.end(signal.SIGINT, signal.SIGINT)
    assert code == 130
    assert time.monotonic() - began < 5
    assert "Ctrl-C again" in text
    assert are_gone(engine)


def test_keys_from_everywhere_open_it(serve: Callable[..., Server], tmp_path: Path) -> None:
    file = tmp_path / "keys.txt"
    file.write_text("# ours\n\nfrom-file\n")
    file.chmod(0o644)
    server = serve("--api-key", "from-flag", "--api-key-file", file, LOCALSPEC_API_KEY="from-environment")
    assert server.status("/v1/models") == 401
    for key in ("from-flag", "from-file", "from-environment"):
        assert server.status("/v1/models", authorization=f"Bearer {key}") == 200
    code, text = server.end(signal.SIGTERM)
    assert code == 0
    assert not any(key in text for key in ("from-flag", "from-file", "from-environment"))
    assert "chmod 600" in text


def test_requests_are_logged_only_when_asked_for(serve: Callable[..., Server]) -> None:
    quiet = serve()
    quiet.model()
    assert "/v1/models" not in quiet.end(signal.SIGTERM)[1]
    talking = serve(verbose="-v")
    talking.model()
    assert "GET /v1/models" in talking.end(signal.SIGTERM)[1]


def test_another_address_without_a_key_is_warned_of(serve: Callable[..., Server]) -> None:
    server = serve("--host", "0.0.0.0")
    name = f"{socket.gethostname()}:{server.port}"
    assert server.status("/v1/models", host=name) == 200
    text = server.end(signal.SIGTERM)[1]
    assert "Give it a key" in text
    assert f"http://{name}/v1" in text
    assert "Give it a key" not in serve("--host", "0.0.0.0", "--api-key", "k").end(signal.SIGTERM)[1]


def test_what_the_configuration_says_holds(home: Path, serve: Callable[..., Server]) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config" / "config.toml").write_text('[serve]\nalias = "from-file"\nparallel = 3\n')
    server = serve()
    assert server.model() == "from-file"
    assert "up to 3 replies" in server.end(signal.SIGTERM)[1]


# --- our own clients --------------------------------------------------------------------------------------------------


def test_our_chat_sees_the_numbers_while_a_reply_is_written(serve: Callable[..., Server]) -> None:
    server = serve("--ctx", 1024, verbose="-v")
    events: SimpleQueue[RequestEvent] = SimpleQueue()
    endpoint = endpoint_at(f"http://127.0.0.1:{server.port}")
    with RemoteEngine(endpoint, sampling_names={"logit_bias"}) as engine:
        loaded = engine.load_and_wait(stand_in(endpoint))
        assert (loaded.n_ctx, loaded.takes_modes) == (1024, True)
        assert loaded.draft_name
        prompt = ChatPrompt((Message("user", "Hello"),))
        # Nothing ends the reply before its limit.
        never_ends = SamplingParams(logit_bias=((END, float("-inf")),))
        engine.submit(GenerateRequest(prompt, never_ends, max_tokens=48, mode=Mode.DRAFT), events.put)
        told = [events.get(timeout=60)]
        while not isinstance(told[-1], Finished | Failed):
            told.append(events.get(timeout=60))
    last = told[-1]
    assert isinstance(last, Finished), last
    assert last.metrics.n_tokens == 48
    assert [event for event in told if isinstance(event, Prefilling)]
    steps = [event.metrics for event in told if isinstance(event, StepDecoded)]
    counts = [metrics.n_tokens for metrics in steps]
    assert counts == sorted(set(counts))
    assert counts[0] > 0
    assert all(metrics.n_context_tokens and metrics.n_drafted for metrics in steps)
    # No field was refused: it was asked once.
    assert server.end(signal.SIGTERM)[1].count("POST /v1/chat/completions") == 1


def test_generate_asks_a_server(serve: Callable[..., Server], localspec: Localspec, home: Path, tmp_path: Path) -> None:
    server = serve("--api-key", "k", "--ctx", 1024)
    args = ["generate", "--endpoint", f"http://127.0.0.1:{server.port}/v1", "--max-tokens", 8, "Hello"]
    refused = localspec(*args)
    assert refused.returncode != 0
    assert b"401" in refused.stderr
    assert b"LOCALSPEC_ENDPOINT_KEY" in refused.stderr
    done = run_localspec(args, home, tmp_path, variables={"LOCALSPEC_ENDPOINT_KEY": "k"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert b"tokens" in done.stderr


# --- without a server -------------------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_told_before_anything_is_loaded(localspec: Localspec, tiny: list[object]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = localspec("serve", *tiny, "--port", port, check=2)
    assert f"Port {port}".encode() in done.stderr
    assert b"--port" in done.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--cors-origin", "*"], b"asks for no key"),
        (["--cors-origin", "no origin"], b"is not an origin"),
        (["--allowed-host", "http://x"], b"is not the name of a host"),
        (["--api-key", ""], b"cannot be sent"),
        (["--api-key-file", "missing.txt"], b"missing.txt"),
        (["--host", "192.0.2.1"], b"no address of this machine"),
        (["--port", "99999"], b"65535"),
        (["--settings", "emacs"], b"emacs"),
        (["--fixed-length"], b"mode is auto"),
    ],
)
def test_what_cannot_work_is_refused_with_2(
    localspec: Localspec, tiny: list[object], args: list[str], words: bytes
) -> None:
    assert words in localspec("serve", *tiny, "--port", 0, *args, check=2).stderr


def test_a_pair_that_cannot_be_loaded_has_the_code_of_that(localspec: Localspec, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF nonsense")
    assert b"broken.gguf" in localspec("serve", "--target", broken, "--port", 0, check=3).stderr


def test_settings_are_alone_on_stdout_and_start_nothing(localspec: Localspec, tiny: list[object]) -> None:
    done = localspec("serve", *tiny, "--port", 8123, "--alias", "mine", "--settings", "continue", check=0)
    config = yaml.safe_load(done.stdout)
    assert config["models"][0]["apiBase"] == "http://127.0.0.1:8123/v1"
    assert config["models"][0]["model"] == "mine"
    assert config["models"][0]["defaultCompletionOptions"]["contextLength"] == 256
    assert done.stderr == b""
    everything = localspec("serve", *tiny, "--settings", "all", check=0).stdout.decode()
    assert all(word in everything for word in ("apiBase", "openai_compatible", "cline auth", "g:llama_config", "aider"))


def test_a_key_is_not_printed_among_settings(home: Path, tmp_path: Path, tiny: list[object]) -> None:
    args = ["serve", *tiny, "--settings", "all"]
    done = run_localspec(args, home, tmp_path, variables={"LOCALSPEC_API_KEY": "secret-key"})
    assert b"secret-key" not in done.stdout + done.stderr
    assert b"YOUR_API_KEY" in done.stdout
