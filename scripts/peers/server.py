"""One process of a server, llama-server or localspec's own, from its start to its certain end."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Self

from localspec.errors import EngineError
from localspec.printable import printable
from scripts.peers.completion import HOST
from scripts.peers.modes import ServerMode

_START_TIMEOUT_S: Final = 300.0
_STOP_TIMEOUT_S: Final = 10.0
_N_LOG_LINES: Final = 20


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What every mode has in common. `binary` is run as it is; `n_ctx` in tokens."""

    binary: Path
    target: Path
    draft: Path | None
    n_ctx: int
    n_threads: int
    n_slots: int = 1

    def command(self, mode: ServerMode) -> list[str]:
        """The command line, without a port. The draft model's threads follow --threads."""
        command = [str(self.binary), "--model", str(self.target), *self.common_flags]
        if mode.needs_draft_model:
            command += ["--model-draft", str(self.draft), "--spec-draft-ngl", "all"]
        return [*command, *mode.flags]

    @property
    def common_flags(self) -> list[str]:
        """The flags of every mode.

        No prompt cache in memory and nothing fitted to the device: context, caches and layers are those that localspec
        uses too. Slots share the cells of one cache, as they do there.
        """
        flags = ["--host", HOST, "--threads", str(self.n_threads), "--ctx-size", str(self.n_ctx)]
        flags += ["--parallel", str(self.n_slots), *(["--kv-unified"] if self.n_slots > 1 else [])]
        return [*flags, "--n-gpu-layers", "all", "--cache-ram", "0", "--fit", "off", "--no-ui"]


class ServerProcess:
    """A server on a free port of 127.0.0.1, in a process group of its own, its log in a temporary file.

    Example:
        with ServerProcess("llama-server plain", settings.command(MODES["plain"])) as server:
            reply = complete(server.port, body)
    """

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self.port = 0
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def process_id(self) -> int | None:
        """None while it is not running."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start it and return when it answers.

        Raises:
            EngineError: it cannot be started, ends, or takes longer than five minutes; with the end of its log.
        """
        self.port = _free_port()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        try:
            self._process = subprocess.Popen(
                [*self._command, "--port", str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                env=server_environment(os.environ),
                process_group=0,  # Ctrl-C reaches this program alone, which ends the servers in order
            )
            self._wait_until_it_answers()
        except OSError as error:
            self.stop()
            raise EngineError(
                f"{self._command[0]} cannot be started: {error.strerror or error}.",
                hint="Name another binary with --llama-server FILE.",
            ) from error
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End it, by force where it does not listen. Repeated calls do nothing."""
        process, self._process = self._process, None
        log, self._log = self._log, None
        if process is not None:
            process.terminate()
            try:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_STOP_TIMEOUT_S)
            finally:
                process.kill()  # does nothing to a process that has ended
                process.wait()
        if log is not None:
            log.close()

    def log_tail(self) -> str:
        """The last lines that it wrote."""
        if self._log is None:
            return ""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 8_000))
        lines = printable(self._log.read().decode("utf-8", "replace")).splitlines()
        return "\n".join(lines[-_N_LOG_LINES:])

    def _wait_until_it_answers(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._is_healthy():
            code = self._process.poll()
            if code is not None:
                raise EngineError(
                    f"{self.name} ended with code {code} before it answered. Its last lines:\n{self.log_tail()}",
                    hint=f"It was run as: {' '.join(self._command)}",
                )
            if time.monotonic() > deadline:
                raise EngineError(
                    f"{self.name} did not answer within {_START_TIMEOUT_S:.0f} s. Its last lines:\n{self.log_tail()}"
                )
            time.sleep(0.05)

    def _is_healthy(self) -> bool:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=5.0)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def server_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without llama-server's own settings, which would change what is measured unseen.

    OpenMP threads that wait for each other yield as soon as in localspec's engine: on a busy machine the server would
    otherwise be many times as slow, and the comparison one of that setting. What the user sets holds for both.
    """
    kept = {name: value for name, value in environment.items() if not name.startswith("LLAMA_ARG_")}
    return {"GOMP_SPINCOUNT": "1000", **kept}


def _free_port() -> int:
    """A port that was free a moment ago; where another program takes it first, the start fails and says so."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
