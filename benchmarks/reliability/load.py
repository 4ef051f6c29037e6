"""The server under 1, 3 and 10 times the load that it can bear, with hostile clients among the others.

    python benchmarks/reliability/load.py [--minutes 30] [--connections 8] [--max-slowdown 4] [--goals]

Well-formed clients send their next request when they have the response to the last one; one that is refused (429 or
503) waits for 25 to 75 ms. Beside them, others never read their responses, send half a request, announce a gigabyte, or
send noise. Every well-formed request must be answered or refused in time.

Times are measured by two processes of their own with one connection each, so that they do not contain the waiting
within the program that makes the load: one sends requests with pauses between them, also at rest; the other probes
(/healthz and /readyz). Where there are several cores, the server has the first one, and the clients have the others.

The table has the 99th percentile of the latency of accepted requests, also as a multiple of that at rest, the slowest
probe, and by how much the server's memory changed at most, after the first minute of a load or its first quarter. Times
mean something only on an idle machine: with --goals, the program fails if they are missed.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import uvloop

sys.path.append(str(Path(__file__).parent.parent))
from small import TEXTS, serve

from common import make_parser, print_json, show

MAX_P99, MAX_PROBE_MS, MAX_MEMORY = 5.0, 100.0, 5.0  # the goals: × that at rest, ms, %
REFUSED = (429, 503)
WAIT_SECONDS = 0.05
PROBE_SECONDS = 0.1
PAUSE_SECONDS = 0.02  # between two measured requests, at most
MAX_BODIES = 1000
FACTORS = (1, 3, 10)
TIMEOUT = 60.0
Client = Callable[[int, "Tally", float, int], Awaitable[None]]  # port, tally, end, number or process
HOSTILE = [
    b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Le",  # and nothing more
    b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n",
    b"\x16\x03\x01" + bytes(range(256)) * 20 + b"\r\n\r\n",
    b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500,  # and never reads
]


@dataclass
class Tally:
    """What happened to the well-formed requests, or to the probes."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)  # of accepted requests, or of probes
    memory: list[int] = field(default_factory=list)
    lost: int = 0


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--connections", type=int, default=8, help="as many as the server can bear")
    parser.add_argument("--max-slowdown", default="4", help="of the server")
    parser.add_argument("--goals", action="store_true", help="fail if a time or the memory misses its goal")
    parser.add_argument("--model", type=Path, help="by default, a small one")
    parser.add_argument("--texts", type=Path, help="one text per line; a request has two of them")
    options = parser.parse_args()
    texts = options.texts.read_text().splitlines() if options.texts else TEXTS
    bodies = [json.dumps({"texts": texts[i : i + 2], "k": 3}).encode() for i in range(min(len(texts) - 1, MAX_BODIES))]
    seconds = 60 * options.minutes / (len(FACTORS) + 1)
    results = []
    client = partial(ask, bodies=bodies)
    measure = partial(ask, bodies=bodies, pause=PAUSE_SECONDS)
    first, *others = cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {first})
    with (
        tempfile.TemporaryDirectory() as temporary,
        serve(options.model or Path(temporary) / "model", "--max-slowdown", options.max_slowdown) as port,
        ProcessPoolExecutor(
            4, multiprocessing.get_context("spawn"), os.sched_setaffinity, (0, others or cores)
        ) as pool,
    ):
        os.sched_setaffinity(0, cores)
        server = next(child.pid for child in psutil.Process().children() if "serve" in child.cmdline())
        list(pool.map(run_all, *zip(*[(client, port, 1, 1.0)] * 4, strict=True)))  # all processes are there, and warm
        rest = pool.submit(run_all, measure, port, 1, min(seconds, 60)).result()
        p99_at_rest = float(np.percentile(rest.seconds, 99))
        for factor in FACTORS:
            n = factor * options.connections
            work = [
                pool.submit(run_all, client, port, n, seconds),
                pool.submit(run_all, disturb, port, n, seconds),
                pool.submit(run_all, probe, port, 1, seconds, server),
                pool.submit(run_all, measure, port, 1, seconds),
            ]
            asked, _, probes, measured = [one.result() for one in work]
            results.append(summary(factor, seconds, asked, probes, measured, p99_at_rest))
    show(results)
    lost = sum(result["lost"] for result in results)
    missed = sum(result["missed"] != "" for result in results)
    print_json("reliability/load", results=results, p99_at_rest_ms=1000 * p99_at_rest, lost=lost, missed=missed)
    sys.exit(bool(lost or (options.goals and missed)))


def summary(
    factor: int, seconds: float, asked: Tally, probes: Tally, measured: Tally, p99_at_rest: float
) -> dict[str, object]:
    p99 = float(np.percentile(measured.seconds, 99)) if measured.seconds else 0.0
    settled = np.array(probes.memory[int(len(probes.memory) * min(60 / seconds, 0.25)) :])
    slowest_ms = 1000 * max(probes.seconds, default=0.0)
    memory = 100 * float(np.abs(settled / settled[0] - 1).max()) if len(settled) else 0.0
    goals = {"p99": p99 <= MAX_P99 * p99_at_rest, "probe": slowest_ms <= MAX_PROBE_MS, "memory": memory <= MAX_MEMORY}
    statuses = asked.statuses + measured.statuses
    others = sum(n for status, n in statuses.items() if status not in (200, *REFUSED))
    return {
        "load": f"{factor} ×",
        "answered": statuses[200],
        "refused": sum(statuses[status] for status in REFUSED),
        "lost": asked.lost + measured.lost + others + probes.lost,
        "p99, ms": 1000 * p99,
        "of rest": p99 / p99_at_rest,
        "slowest probe, ms": slowest_ms,
        "memory, ± %": memory,
        "missed": " ".join(goal for goal, met in goals.items() if not met),
    }


def run_all(client: Client, port: int, n: int, seconds: float, server: int = 0) -> Tally:
    """Run some clients at the same time in this process."""
    tally = Tally()

    async def run() -> None:
        end = time.monotonic() + seconds
        await asyncio.gather(*(client(port, tally, end, server or i) for i in range(n)))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
    return tally


async def ask(port: int, tally: Tally, end: float, _: int, bodies: list[bytes], pause: float = 0.0) -> None:
    """A client that does everything right. A connection may be closed between two requests, not within one."""
    head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    requests = [head + b"Content-Length: %d\r\n\r\n" % len(body) + body for body in bodies]
    while time.monotonic() < end:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            while time.monotonic() < end and not reader.at_eof():
                request, start = random.choice(requests), time.monotonic()
                writer.write(request)
                status = await asyncio.wait_for(read_response(reader), TIMEOUT)
                tally.statuses[status] += 1
                if status == 200:
                    tally.seconds.append(time.monotonic() - start)
                    await asyncio.sleep(random.uniform(0, pause))
                else:
                    await asyncio.sleep(random.uniform(0.5, 1.5) * WAIT_SECONDS)
            writer.close()
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            tally.lost += 1


async def read_response(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    await reader.readexactly(size)
    return int(head[9:12])


async def probe(port: int, tally: Tally, end: float, server: int) -> None:
    """Ask whether the server is well, ten times a second, and how much memory it has."""
    process = psutil.Process(server)
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
            tally.seconds.append(time.monotonic() - start)
        tally.memory.append(process.memory_info().rss)
        await asyncio.sleep(PROBE_SECONDS)


async def disturb(port: int, _: Tally, end: float, seed: int) -> None:
    """A client that does something wrong, holds its connection for a while, and comes back."""
    rng = random.Random(seed)
    while time.monotonic() < end:
        with suppress(OSError):
            _reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(rng.choice(HOSTILE))
            await asyncio.sleep(min(rng.uniform(0.1, 5), max(end - time.monotonic(), 0)))
            writer.transport.abort()


if __name__ == "__main__":
    main()
