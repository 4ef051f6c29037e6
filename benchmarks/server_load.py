"""The server under load: requests a second with one text each, their times, and what happens at ten times as many.

    python benchmarks/server_load.py MODEL --texts texts.txt [--connections 16] [--seconds 10]

The server has one core, the load comes from a process on another. Every connection sends its next request when it has
the answer to the last one. Then ten times as many connections: every request must be answered or refused, and the
server's memory must stay where it was. The ratio is against 1,500 requests a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path

import numpy as np

from shortlist.tables import plain

WANTED = 1500
SECONDS_TO_START = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--texts", type=Path, required=True, help="one text a line")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--load-on", help=argparse.SUPPRESS)  # the port, for the process that makes the load
    chosen = parser.parse_args()
    if chosen.load_on:
        print(json.dumps(make_load(int(chosen.load_on), chosen.texts, chosen.connections, chosen.seconds)))
        return
    cores = sorted(os.sched_getaffinity(0))
    server, port = start_server(chosen.model, cores[0])
    try:
        measure = [sys.executable, __file__, str(chosen.model), "--texts", str(chosen.texts), "--load-on", str(port)]
        load_on_core(measure, cores[-1], chosen.connections, min(chosen.seconds, 3.0))  # warm-up
        memory = [memory_of(server)]
        plans = {"bearable": chosen.connections, "ten times": 10 * chosen.connections}
        results = {}
        for name, connections in plans.items():
            before = cpu_seconds_of(server)
            results[name] = load_on_core(measure, cores[-1], connections, chosen.seconds)
            results[name]["cpu_us"] = 1e6 * (cpu_seconds_of(server) - before) / max(results[name]["requests"], 1)
            memory.append(memory_of(server))
        alive = server.poll() is None
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(timeout=60)
    show(results, plans, memory)
    first, second = results["bearable"], results["ten times"]
    print(f"exit code {code}; alive until told to stop: {alive}")
    print(
        json.dumps(
            {
                "benchmark": "server_load",
                "ratio": round(first["answers_a_second"] / WANTED, 3),
                "requests_a_second": first["answers_a_second"],
                "p99_ms": first["p99"],
                "cpu_us": round(first["cpu_us"]),
                "answered_or_refused": second["lost"] == 0,
                "memory_mb": memory,
                "alive": alive,
            }
        )
    )


def show(results: dict[str, dict], plans: dict[str, int], memory: list[float]) -> None:
    columns = {
        "answers/s": ("answers_a_second", ",.0f"),
        "p50 ms": ("p50", ".2f"),
        "p99 ms": ("p99", ".2f"),
        "answers": ("answers", ","),
        "refusals": ("refusals", ","),
        "other errors": ("others", ","),
        "no answer": ("lost", ","),
        "server's CPU µs/request": ("cpu_us", ".0f"),
    }
    rows = [
        [name, str(plans[name]), *(format(result[key], how) for key, how in columns.values()), f"{after:.0f}"]
        for (name, result), after in zip(results.items(), memory[1:], strict=True)
    ]
    print(f"memory before: {memory[0]:.0f} MB")
    print(plain(["load", "connections", *columns, "memory MB"], rows))


def start_server(model: Path, core: int) -> tuple[subprocess.Popen, int]:
    """A server on one core, ready to answer, and its port."""
    command = [sys.executable, "-m", "shortlist", "serve", str(model), "--port", "0"]
    server = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: os.sched_setaffinity(0, {core})
    )
    line = server.stderr.readline()
    if not line.startswith("{"):
        raise SystemExit(line)
    url = json.loads(line)["url"]
    # From here on nobody reads the log: the server must not mind.
    for _ in range(10 * SECONDS_TO_START):
        if server.poll() is not None:
            raise SystemExit(server.stderr.read())
        try:
            urllib.request.urlopen(f"{url}/readyz").close()
            return server, int(url.rpartition(":")[2])
        except OSError:
            time.sleep(0.1)
    server.kill()
    raise SystemExit("the server did not become ready")


def memory_of(process: subprocess.Popen) -> float:
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu_seconds_of(process: subprocess.Popen) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load_on_core(measure: list[str], core: int, connections: int, seconds: float) -> dict:
    command = [*measure, "--connections", str(connections), "--seconds", str(seconds)]
    run = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, timeout=seconds + 120,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )  # fmt: skip
    return json.loads(run.stdout)


class Client(asyncio.Protocol):
    """One connection that always has one request open."""

    def __init__(self, requests: list[bytes], start: int, load: Load) -> None:
        self.requests, self.at, self.load = requests, start, load
        self.open = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        self.at = (self.at + 1) % len(self.requests)
        self.received = b""
        self.open = True
        self.sent_at = time.perf_counter()
        self.transport.write(self.requests[self.at])

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, end, body = self.received.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.partition(b"content-length: ")[2].split(b"\r\n", 1)[0]):
            return
        self.open = False
        self.load.answered(int(head[9:12]), time.perf_counter() - self.sent_at)
        if self.load.over:
            self.transport.close()
        elif b"connection: close" not in head:
            self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.open:
            self.load.lost += 1
        self.load.closed(self)


class Load:
    """All connections together."""

    def __init__(self, port: int, requests: list[bytes]) -> None:
        self.port, self.requests = port, requests
        self.statuses: Counter[int] = Counter()
        self.times: list[float] = []
        self.lost = 0
        self.over = False
        self.tasks: set[asyncio.Task] = set()

    def answered(self, status: int, seconds: float) -> None:
        self.statuses[status] += 1
        if status == 200:
            self.times.append(seconds)

    def closed(self, client: Client) -> None:
        if not self.over:
            self.connect(client.at)

    def connect(self, start: int) -> None:
        connecting = asyncio.get_running_loop().create_connection(
            lambda: Client(self.requests, start, self), "127.0.0.1", self.port
        )
        task = asyncio.ensure_future(connecting)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def run(self, connections: int, seconds: float) -> float:
        start = time.perf_counter()
        for i in range(connections):
            self.connect(i * len(self.requests) // connections)
        await asyncio.sleep(seconds)
        self.over = True
        took = time.perf_counter() - start
        await asyncio.sleep(2.0)  # what is open still gets its answer
        return took


def make_load(port: int, texts: Path, connections: int, seconds: float) -> dict:
    """Ask for predictions over so many connections for so many seconds."""
    import uvloop

    load = Load(port, [as_request(text) for text in texts.read_text().splitlines() if text.strip()])
    took = uvloop.run(load.run(connections, seconds))
    p50, p99 = np.percentile(1000 * np.asarray(load.times or [np.nan]), [50, 99])
    refusals = load.statuses[503] + load.statuses[429]
    return {
        "answers_a_second": round(load.statuses[200] / took, 1),
        "p50": round(float(p50), 3),
        "p99": round(float(p99), 3),
        "requests": load.statuses.total(),
        "answers": load.statuses[200],
        "refusals": refusals,
        "others": load.statuses.total() - load.statuses[200] - refusals,
        "lost": load.lost,
    }


def as_request(text: str) -> bytes:
    body = json.dumps({"text": text}).encode()
    head = (
        f"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    )
    return head.encode() + b"\r\n\r\n" + body


if __name__ == "__main__":
    main()
