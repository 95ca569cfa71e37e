"""Grammars from anywhere in a process of their own, with bounds: what ends it or takes too long fails the test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

# Processor time of each, and memory on top of what the library takes.
_LIMIT_S, _LIMIT_BYTES = 20, 1 << 30
_PROGRAM = """
import json, resource, sys
from pathlib import Path
from localspec.errors import UsageError
from localspec.llama.model import Model
from localspec.llama.sampler import SamplerChain
from localspec.llama.sampling_params import SamplingParams

model = Model(Path(sys.argv[1]))
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[3]),) * 2)
for line in sys.stdin:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(usage.ru_utime + usage.ru_stime) + int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))
    try:
        SamplerChain(model, SamplingParams(**json.loads(line)), n_ctx=64, seed=1).close()
    except UsageError as error:
        print(json.dumps(str(error)), flush=True)
    else:
        print(json.dumps("accepted"), flush=True)
"""


class GrammarProcess:
    """Builds samplers one after the other; starts anew where one of them ended it."""

    def __init__(self, model: Path) -> None:
        self._command = [sys.executable, "-c", _PROGRAM, str(model), str(_LIMIT_S), str(_LIMIT_BYTES)]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def outcome(self, **params: Any) -> str:
        """The message of the error, or "accepted"."""
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(params) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise AssertionError(f"The process ended with {self._end()}")
        message = json.loads(answer)
        assert len(message) < 1000, message
        return str(message)

    def _end(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        process.communicate()
        return process.returncode
