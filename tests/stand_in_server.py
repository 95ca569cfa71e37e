"""A llama-server that is none: speaks its protocol, needs no model, and writes down what it was asked."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Answers as llama-server does, a token every 5 ms; writes down its process and every request that it answered.
STAND_IN = f"""#!{sys.executable}
import http.server, json, os, sys, time

arguments = sys.argv[1:]
journal = os.environ["STAND_IN_JOURNAL"]

def note(kind, value):
    with open(journal, "a") as file:
        file.write(json.dumps([kind, value]) + "\\n")

if "--version" in arguments:
    sys.exit("version: a stand-in")
if "--list-devices" in arguments:
    print("Available devices:\\n  " + os.environ.get("STAND_IN_DEVICE", "(none)"))
    sys.exit()
if os.environ.get("STAND_IN_FAILS", "no such mode") in arguments:
    sys.exit("error: the model is no model")

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def send(self, text):
        data = text.encode()
        self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(data), data))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if os.environ.get("STAND_IN_REFUSES"):
            answer = b'{{"error": {{"code": 400, "message": "this is refused"}}}}'
            self.send_response(400)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for n in range(1, body["n_predict"] + 1):
            time.sleep(0.005)
            self.send("data: " + json.dumps({{"content": "x", "stop": False, "tokens_predicted": n}}) + "\\n\\n")
            if os.environ.get("STAND_IN_DIES") == str(n):
                os._exit(1)
        timings = {{"cache_n": 0, "predicted_per_second": 199.0, "draft_n": 8, "draft_n_accepted": 6}}
        last = {{"stop": True, "tokens_evaluated": len(body["prompt"]), "timings": timings}}
        self.send("data: " + json.dumps(last) + "\\n\\n")
        self.send("")
        note("request", body)

note("process", os.getpid())
note("flags", arguments)
print("this is the log", flush=True)
port = int(arguments[arguments.index("--port") + 1])
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


class StandIn:
    """A llama-server that is none, and what it wrote down."""

    def __init__(self, folder: Path) -> None:
        self.binary = folder / "llama-server"
        self.binary.write_text(STAND_IN, encoding="utf-8")
        self.binary.chmod(0o755)
        self.journal = folder / "journal"

    def noted(self, kind: str) -> list[Any]:
        text = self.journal.read_text(encoding="utf-8") if self.journal.exists() else ""
        notes = [json.loads(line) for line in text.splitlines()]
        return [value for found, value in notes if found == kind]

    def living(self) -> list[int]:
        return [process_id for process_id in self.noted("process") if is_alive(process_id)]


def is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    made = StandIn(tmp_path)
    monkeypatch.setenv("STAND_IN_JOURNAL", str(made.journal))
    yield made
    assert made.living() == []
