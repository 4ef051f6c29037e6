"""The server under load: requests per second with one text each, latency, and behaviour at ten times the load.

    python benchmarks/server_load.py MODEL --texts texts.txt [--connections 16] [--seconds 10]

The server runs on one core, the load generator on another. Each connection sends its next request when it has the
response to the last one. Then ten times as many connections: every request must be answered or refused, and the
server's memory must not grow. The ratio is against 1,500 requests per second or, with --baseline FOLDER, against the
server of another checkout, measured in alternating rounds of the same run.
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

from common import make_parser, print_json
from shortlist.tables import plain

TARGET = 1500
START_SECONDS = 300
ROUNDS = 8


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--texts", type=Path, required=True, help="one text per line")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--baseline", type=Path, help="another checkout, to compare with its server")
    parser.add_argument("--load-on", help=argparse.SUPPRESS)  # the port, for the load generator
    options = parser.parse_args()
    if options.load_on:
        print(json.dumps(make_load(int(options.load_on), options.texts, options.connections, options.seconds)))
        return
    cores = sorted(os.sched_getaffinity(0))
    if options.baseline:
        compare(options, cores)
        return
    server, port = start_server(options.model, cores[0])
    try:
        measure = load_command(options, port)
        load_on_core(measure, cores[-1], options.connections, min(options.seconds, 3.0))  # warm-up
        memory = [memory_of(server)]
        plans = {"normal": options.connections, "ten times": 10 * options.connections}
        results = {}
        for name, connections in plans.items():
            before = cpu_seconds_of(server)
            results[name] = load_on_core(measure, cores[-1], connections, options.seconds)
            results[name]["cpu_us"] = 1e6 * (cpu_seconds_of(server) - before) / max(results[name]["requests"], 1)
            memory.append(memory_of(server))
        alive = server.poll() is None
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(timeout=60)
    show(results, plans, memory)
    first, second = results["normal"], results["ten times"]
    print(f"exit code {code}; alive until stopped: {alive}")
    print_json(
        "server_load",
        ratio=round(first["answers_per_second"] / TARGET, 3),
        requests_per_second=first["answers_per_second"],
        p99_ms=first["p99"],
        cpu_us=round(first["cpu_us"]),
        answered_or_refused=second["lost"] == 0,
        memory_mb=memory,
        alive=alive,
    )


def compare(options: argparse.Namespace, cores: list[int]) -> None:
    """Load this server and the baseline's in alternating rounds; the ratio is that of their median rates."""
    sources = {"this": Path(__file__).parent.parent, "baseline": options.baseline}
    servers = {name: start_server(options.model, cores[0], folder) for name, folder in sources.items()}
    rates, cpu = {name: [] for name in servers}, {name: [] for name in servers}
    try:
        for _ in range(ROUNDS + 1):
            for name, (server, port) in servers.items():
                before = cpu_seconds_of(server)
                result = load_on_core(
                    load_command(options, port), cores[-1], options.connections, options.seconds / ROUNDS
                )
                rates[name].append(result["answers_per_second"])
                cpu[name].append(1e6 * (cpu_seconds_of(server) - before) / max(result["requests"], 1))
    finally:
        for server, _ in servers.values():
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=60)
    medians = {name: (np.median(rates[name][1:]), np.median(cpu[name][1:])) for name in servers}  # the first warms up
    rows = [[name, f"{rate:,.0f}", f"{micros:.0f}"] for name, (rate, micros) in medians.items()]
    print(plain(["server", "answers/s", "server's CPU µs/request"], rows))
    (rate, cpu_us), (baseline_rate, baseline_cpu_us) = medians["this"], medians["baseline"]
    print_json("server_load", ratio=round(rate / baseline_rate, 3), cpu_ratio=round(cpu_us / baseline_cpu_us, 3))


def load_command(options: argparse.Namespace, port: int) -> list[str]:
    return [sys.executable, __file__, str(options.model), "--texts", str(options.texts), "--load-on", str(port)]


def show(results: dict[str, dict], plans: dict[str, int], memory: list[float]) -> None:
    columns = {
        "answers/s": ("answers_per_second", ",.0f"),
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


def start_server(model: Path, core: int, checkout: Path | None = None) -> tuple[subprocess.Popen, int]:
    """Start a server on one core and wait until it is ready; returns it and its port."""
    command = [sys.executable, "-m", "shortlist", "serve", str(model), "--port", "0"]
    environment = os.environ if checkout is None else {**os.environ, "PYTHONPATH": str(checkout.resolve() / "src")}
    server = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )  # fmt: skip
    line = server.stderr.readline()
    if not line.startswith("{"):
        raise SystemExit(line)
    url = json.loads(line)["url"]
    # From here on nobody reads the log, which must not block the server.
    for _ in range(10 * START_SECONDS):
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
    """One connection that always has one request in flight."""

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
        await asyncio.sleep(2.0)  # requests in flight still get their response
        return took


def make_load(port: int, texts: Path, connections: int, seconds: float) -> dict:
    """Send predict requests over `connections` connections for `seconds` seconds."""
    import uvloop

    load = Load(port, [as_request(text) for text in texts.read_text().splitlines() if text.strip()])
    took = uvloop.run(load.run(connections, seconds))
    p50, p99 = np.percentile(1000 * np.asarray(load.times or [np.nan]), [50, 99])
    refusals = load.statuses[503] + load.statuses[429]
    return {
        "answers_per_second": round(load.statuses[200] / took, 1),
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
