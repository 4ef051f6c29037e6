"""The server under 1, 3 and 10 times the load that it can bear, with hostile clients among the others.

    python benchmarks/reliability/load.py [--minutes 30] [--connections 8]

Well-formed clients send their next request when they have the response to the last one. Beside them, others never read
their responses, send half a request, announce a gigabyte, or send noise. Every well-formed request must be answered or
refused (429 or 503) in time. The table has the 99th percentile of the latency of accepted requests, also as a
multiple of that at rest, the slowest of the probes (/healthz and /readyz), and the growth of the server's memory after
the first quarter. Times mean something only on an idle machine.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil

sys.path.append(str(Path(__file__).parent.parent))
from small import TEXTS, serve

from common import make_parser, print_json, show

FACTORS = (1, 3, 10)
TIMEOUT = 60.0
HOSTILE = [
    b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Le",  # and nothing more
    b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n",
    b"\x16\x03\x01" + bytes(range(256)) * 20 + b"\r\n\r\n",
    b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500,  # and never reads
]


class Tally:
    """What happened to the well-formed requests and to the probes."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.seconds: list[float] = []
        self.probes: list[float] = []
        self.memory: list[int] = []
        self.lost = 0


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--connections", type=int, default=8, help="as many as the server can bear")
    options = parser.parse_args()
    seconds = 60 * options.minutes / (len(FACTORS) + 1)
    results = []
    with tempfile.TemporaryDirectory() as temporary, serve(Path(temporary) / "model") as port:
        server = next(child for child in psutil.Process().children() if child.is_running())
        rest = asyncio.run(run(port, server, 1, 0, min(seconds, 60)))
        p99_at_rest = float(np.percentile(rest.seconds, 99))
        for factor in FACTORS:
            n = factor * options.connections
            tally = asyncio.run(run(port, server, n, n, seconds))
            p99 = float(np.percentile(tally.seconds, 99)) if tally.seconds else 0.0
            settled = tally.memory[len(tally.memory) // 4 :]
            results.append(
                {
                    "load": f"{factor} ×",
                    "answered": tally.statuses[200],
                    "refused": sum(tally.statuses[status] for status in (429, 503)),
                    "lost": tally.lost + sum(n for s, n in tally.statuses.items() if s not in (200, 429, 503)),
                    "p99, ms": 1000 * p99,
                    "of rest": p99 / p99_at_rest,
                    "slowest probe, ms": 1000 * max(tally.probes, default=0.0),
                    "memory, %": 100 * (settled[-1] / settled[0] - 1),
                }
            )
    show(results)
    lost = sum(result["lost"] for result in results)
    print_json("reliability/load", results=results, p99_at_rest_ms=1000 * p99_at_rest, lost=lost)
    sys.exit(bool(lost))


async def run(port: int, server: psutil.Process, n_clients: int, n_hostile: int, seconds: float) -> Tally:
    """Load the server for some time."""
    tally, end = Tally(), time.monotonic() + seconds
    hostile = [asyncio.create_task(disturb(port, random.Random(i), end)) for i in range(n_hostile)]
    clients = [ask(port, tally, end) for _ in range(n_clients)]
    await asyncio.gather(probe(port, server, tally, end), *clients)
    for task in hostile:
        task.cancel()
    await asyncio.gather(*hostile, return_exceptions=True)
    return tally


async def ask(port: int, tally: Tally, end: float) -> None:
    """A client that does everything right. A connection may be closed between two requests, not within one."""
    body = json.dumps({"texts": TEXTS[:2], "k": 3}).encode()
    head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    while time.monotonic() < end:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            while time.monotonic() < end:
                start = time.monotonic()
                writer.write(request)
                status = await asyncio.wait_for(read_response(reader), TIMEOUT)
                tally.statuses[status] += 1
                if status == 200:
                    tally.seconds.append(time.monotonic() - start)
                else:
                    break  # a refused client comes again later, on a new connection
            writer.close()
            await asyncio.sleep(0.05)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            tally.lost += 1


async def read_response(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    await reader.readexactly(size)
    return int(head[9:12])


async def probe(port: int, server: psutil.Process, tally: Tally, end: float) -> None:
    """Ask whether the server is well, ten times a second, and how much memory it has."""
    while time.monotonic() < end:
        for path in ("healthz", "readyz"):
            start = time.monotonic()
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(f"GET /{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                status = await asyncio.wait_for(read_response(reader), TIMEOUT)
                tally.lost += status != 200
                writer.close()
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                tally.lost += 1
            tally.probes.append(time.monotonic() - start)
        tally.memory.append(server.memory_info().rss)
        await asyncio.sleep(0.1)


async def disturb(port: int, rng: random.Random, end: float) -> None:
    """A client that does something wrong, holds its connection for a while, and comes back."""
    while time.monotonic() < end:
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(rng.choice(HOSTILE))
            await asyncio.sleep(rng.uniform(0.1, 5))
            writer.transport.abort()


if __name__ == "__main__":
    main()
