"""Helpers for tests of the server: a tiny model, a server in this process, and one in its own process."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

import shortlist
from shortlist.serving.app import App
from shortlist.serving.logs import Log

COLOURS, THINGS = ("red", "blue", "green"), ("shoes", "hat", "coat")
SECONDS = 60  # time limit for waiting; no test passes by being fast


def save_model(folder: Path, colours: tuple[str, ...] = COLOURS) -> Path:
    """A tiny model: texts such as "red shoes 3" with labels such as "shoes" and "red"."""
    rows = [(f"{colour} {thing} {i}", [thing, colour]) for i in range(5) for colour in colours for thing in THINGS]
    shortlist.train(rows, recipe="centroid").save(folder)
    return folder


class InProcess:
    """An application and a client for it on one event loop, which runs only during requests."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.lines: list[bytes] = []
        self.log = Log(self.lines.append)
        self.runner = asyncio.Runner()
        self.app = App(folder, log=self.log, **options)
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://server")
        self.runner.run(self.app.__aenter__())

    def ready(self) -> InProcess:
        async def wait() -> None:
            while self.app.state != "ready":
                assert not self.app.model_task.done(), self.app.model_task.exception()
                await asyncio.sleep(0.01)

        self.runner.run(asyncio.wait_for(wait(), SECONDS))
        return self

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.runner.run(self.client.get(path, **options))

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.runner.run(self.client.request(method, path, **options))

    def predict(self, content: Any = None, **fields: Any) -> httpx.Response:
        """POST to /v1/predict: the fields as JSON, or a given body."""
        body = json.dumps(fields).encode() if content is None else content
        headers = {"content-type": "application/json"}
        return self.runner.run(self.client.post("/v1/predict", content=body, headers=headers))

    def logged(self) -> list[dict[str, Any]]:
        """Close the log and return its lines."""
        self.log.close()
        return [json.loads(line) for line in b"".join(self.lines).splitlines()]

    def close(self) -> None:
        self.runner.run(self.app.__aexit__())
        self.runner.run(self.client.aclose())
        self.runner.close()
        self.log.close()


# Runs `shortlist serve` with other timeouts and a slow model.
_PROGRAM = """
import sys, time
from shortlist.serving import connection, connections, served_model
connection.Connection.request_seconds = {request_seconds}
connection.Connection.response_seconds = {response_seconds}
connections.MAX_UNSENT = {max_unsent}
load = served_model.load
loads = 0
def load_slow(folder):
    global loads
    loads += 1
    if loads > 1:
        time.sleep({reload_seconds})
    model = load(folder)
    predict = model.predict
    def slow(*arguments, **options):
        time.sleep({batch_seconds})
        return predict(*arguments, **options)
    model.predict = slow
    return model
if {batch_seconds} or {reload_seconds}:
    served_model.load = load_slow
from shortlist.cli import main
main()
"""


class Served:
    """A server in its own process."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, port: int) -> None:
        self.process, self.log, self.port = process, log, port

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)

    def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        connection = self.connect()
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def predict(self, **fields: Any) -> tuple[int, Any]:
        status, body = self.call("POST", "/v1/predict", json.dumps(fields), {"Content-Type": "application/json"})
        return status, json.loads(body)

    def metric(self, name: str) -> float:
        for line in self.call("GET", "/metrics")[1].decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.rpartition(" ")[2])
        return 0.0

    def memory(self) -> float:
        """Resident memory in megabytes."""
        return self.metric("process_resident_memory_bytes") / 1e6

    def logged(self) -> list[dict[str, Any]]:
        whole = self.log.read_text().rpartition("\n")[0]  # the last line may be incomplete
        return [json.loads(line) for line in whole.splitlines()]


@contextmanager
def serving(
    folder: Path,
    *options: str,
    token: str | None = None,
    batch_seconds: float = 0.0,
    reload_seconds: float = 0.0,
    request_seconds: float = 10.0,
    response_seconds: float = 30.0,
    max_unsent: int = 1 << 26,
) -> Iterator[Served]:
    """Start a server and wait until it is ready; kill it at the end unless the test has stopped it."""
    log = folder.parent / f"{folder.name}.log"
    program = _PROGRAM.format(
        batch_seconds=batch_seconds,
        reload_seconds=reload_seconds,
        request_seconds=request_seconds,
        response_seconds=response_seconds,
        max_unsent=max_unsent,
    )
    environment = {name: value for name, value in os.environ.items() if name != "SHORTLIST_TOKEN"}
    if token is not None:
        environment["SHORTLIST_TOKEN"] = token
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", program, "serve", str(folder), "--port", "0", *options], stderr=file, env=environment
        )
    try:
        served = Served(process, log, 0)
        until(lambda: process.poll() is not None or any(line["event"] == "listening" for line in served.logged()))
        assert process.poll() is None, log.read_text()
        served.port = int(served.logged()[0]["url"].rpartition(":")[2])
        until(lambda: served.call("GET", "/readyz")[0] == 200)
        yield served
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def until(condition: Any) -> None:
    """Wait until the condition is true."""
    give_up = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < give_up, "timed out"
        time.sleep(0.02)
