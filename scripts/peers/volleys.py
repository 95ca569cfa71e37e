"""Several clients at once: what a server gets done in all."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scripts.peers.completion import complete, request_body
from scripts.peers.contenders import Task
from scripts.peers.reply import Reply

__all__ = ["Server", "Volley", "fire"]


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers on `port`; `fields` go with each request, and say how it should speculate."""

    name: str
    port: int
    fields: Mapping[str, Any] = field(default_factory=dict)

    def reply(self, task: Task) -> Reply:
        """One reply, waited for."""
        return complete(self.port, {**request_body(task.tokens, task.sampling, task.max_tokens), **self.fields})


@dataclass(frozen=True, slots=True)
class Volley:
    """The same tasks, asked by so many clients at once. `seconds` go from the first request to the last reply's end."""

    server: str
    n_clients: int
    repetition: int
    n_tokens: int
    seconds: float
    replies: tuple[Reply, ...]  # in the order of the tasks

    @property
    def tokens_per_second(self) -> float:
        """Of all replies together, prompts and waiting included."""
        return self.n_tokens / self.seconds


def fire(server: Server, tasks: Sequence[Task], n_clients: int) -> Volley:
    """Each client asks the next task as soon as it has its reply.

    Raises:
        EngineError: the server refused or broke off; the other clients have ended by then.
    """
    waiting: queue.SimpleQueue[tuple[int, Task]] = queue.SimpleQueue()
    for numbered in enumerate(tasks):
        waiting.put(numbered)
    replies: dict[int, Reply] = {}
    failures: list[Exception] = []

    def ask() -> None:
        while not failures:
            try:
                number, task = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                replies[number] = server.reply(task)
            except Exception as error:
                failures.append(error)

    clients = [threading.Thread(target=ask, name=f"client {n}") for n in range(n_clients)]
    began = time.perf_counter()
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    if failures:
        raise failures[0]
    ordered = tuple(replies[number] for number in range(len(tasks)))
    end = max(reply.arrivals[-1][0] for reply in ordered if reply.arrivals)
    n_tokens = sum(reply.n_tokens for reply in ordered)
    return Volley(server.name, n_clients, tasks[0].repetition, n_tokens, end - began, ordered)
