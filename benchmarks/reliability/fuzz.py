"""Damaged and hostile inputs: readers, models, checkpoints and the server refuse them, or answer; nothing else.

    python benchmarks/reliability/fuzz.py [--inputs 20000] [--targets csv,http] [--seed 0] [--save FOLDER]

Each input is a mutation of one in the corpus. One that gives a new kind of answer joins the corpus, and so does one
that reaches a line of Shortlist that no other has reached; every fourth input is traced for this. Files are in memory
where there is /dev/shm. A failure is a crash, an error other than a `ShortlistError`, more than 2 seconds of CPU time,
more than 3 GB of memory, an answer from a damaged model, or a response of the server with status 500. Failures are
saved, and `--input FILE --targets NAME` repeats one of them.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import re
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

sys.path.append(str(Path(__file__).parent.parent))
from small import fast_folder
from targets import Target, make_targets

import shortlist
from common import make_parser, print_json, show
from shortlist.errors import ShortlistError
from shortlist.model.format import checksum

INPUTS_PER_PROCESS = 500
MAX_SECONDS, MAX_BYTES = 2.0, 3 << 30
CORPUS_LIMIT = 500
TRACED_EVERY, TRACED_SECONDS = 4, 3 * MAX_SECONDS  # tracing doubles the time
SOURCE = str(Path(shortlist.__file__).parent)
NUMBERS = [b"0", b"-1", b"1e309", b"NaN", b"4294967296", b"9" * 40, b"0.1", b"true", b"null", b"2147483648"]
TOKENS = [b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r\n", b'"', b"'", b"\\", b"\\ud800", b"{", b"}", b"[", b"]" * 50,
          b":", b",", b";", b"\t", b"\x1b[2J", b"__label__", b"<http://a>", b"\xed\xa0\x80", b"\xe2\x80\xae",
          b"[" * 3000, b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n", b"\n" * 200,
          *NUMBERS]  # fmt: skip


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--targets", help="names, separated by commas; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, default=Path("fuzz-failures"))
    parser.add_argument("--input", type=Path, help="repeat one input")
    options = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=fast_folder()) as temporary, ExitStack() as stack:
        targets = make_targets(Path(temporary), stack)
        chosen = options.targets.split(",") if options.targets else list(targets)
        for name in chosen:
            targets[name].warm_up()
        if options.input:
            targets[chosen[0]].run(options.input.read_bytes())
            return
        outcomes: dict[str, Counter[str]] = {name: Counter() for name in chosen}
        findings: list[str] = []
        n = max(min(INPUTS_PER_PROCESS, options.inputs // len(chosen)), 1)
        for turn in range(-(-options.inputs // n)):
            name = chosen[turn % len(chosen)]
            found = run_in_process(targets[name], n, f"{options.seed} {turn}", options.save / name)
            outcomes[name].update(found["outcomes"])
            findings += [f"{name}: {finding}" for finding in found["findings"]]
            targets[name].learn(found)
    show([{"target": name, "inputs": sum(counts.values()), "answered": counts["answered"], "refused": counts["refused"],
           "corpus": len(targets[name].corpus), "lines": len(targets[name].lines), "failures": counts["failed"]}
          for name, counts in outcomes.items()])  # fmt: skip
    print(*findings[:30], sep="\n")
    n_inputs = sum(sum(counts.values()) for counts in outcomes.values())
    seconds = round(time.perf_counter() - start, 1)
    print_json("reliability/fuzz", inputs=n_inputs, failures=len(findings), seconds=seconds)
    sys.exit(bool(findings))


def run_in_process(target: Target, n: int, seed: str, save: Path) -> dict:
    """Try some inputs in a forked process. If it dies, the input that killed it is in shared memory."""
    shared = mmap.mmap(-1, 1 << 24)
    reader, writer = os.pipe()
    if not (child := os.fork()):
        limit = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 + MAX_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit + (4 << 30), limit + (4 << 30)))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        with os.fdopen(writer, "w") as answer:
            json.dump(try_inputs(target, n, seed, shared, save), answer)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        content = answer.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == 0:
        return json.loads(content)
    size = int.from_bytes(shared[:8], "little")
    path = save_input(save, shared[8 : 8 + size])
    finding = f"the process ended with {code}: {path}"
    return {"outcomes": {"failed": 1}, "findings": [finding], "corpus": [], "kinds": [], "lines": []}


def try_inputs(target: Target, n: int, seed: str, shared: mmap.mmap, save: Path) -> dict:
    rng, outcomes, findings, corpus = random.Random(seed), Counter(), [], []
    kinds, lines = set(target.kinds), set(target.lines)
    signal.signal(signal.SIGPROF, stop_hang)
    for number in range(n):
        traced, n_lines = number % TRACED_EVERY == 0, len(lines)
        data = mutate(rng, target.corpus + corpus)
        shared[: 8 + len(data)] = len(data).to_bytes(8, "little") + data
        signal.setitimer(signal.ITIMER_PROF, TRACED_SECONDS if traced else MAX_SECONDS)
        trace(lines if traced else None)
        try:
            kind = f"answered {target.run(data)}"
        except ShortlistError as error:
            kind = "refused " + re.sub(r"[\d,]+|'[^']*'|\"[^\"]*\"", "", str(error))[:100]
        except (Exception, Hang) as error:  # noqa: BLE001 - the findings
            kind = "failed"
            where = traceback.extract_tb(error.__traceback__)[-1]
            finding = f"{type(error).__name__}: {error!s:.120} ({Path(where.filename).name}:{where.lineno})"
            if finding not in [known.rpartition(" in ")[0] for known in findings]:
                findings.append(f"{finding} in {save_input(save, data)}")
        finally:
            trace(None)
            signal.setitimer(signal.ITIMER_PROF, 0)
        outcomes[kind.partition(" ")[0]] += 1
        if kind not in kinds or len(lines) > n_lines:
            kinds.add(kind)
            corpus.append(data)
    corpus = [data.hex() for data in corpus if len(data) < 5000]
    return {"outcomes": outcomes, "findings": findings, "corpus": corpus, "kinds": [*kinds - target.kinds],
            "lines": [*lines - target.lines]}  # fmt: skip


def trace(lines: set[str] | None) -> None:
    """Add the lines of Shortlist that are run from now on to a set; None stops that."""

    def in_function(frame: FrameType, event: str, _: object) -> object:
        if event == "line" and lines is not None:
            lines.add(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        return in_function

    def at_call(frame: FrameType, *_: object) -> object:
        return in_function if frame.f_code.co_filename.startswith(SOURCE) else None

    function = None if lines is None else at_call
    threading.settrace(function)  # of threads that start now
    sys.settrace(function)


class Hang(BaseException):
    """Too much CPU time; not an Exception, so that nothing catches it."""


def stop_hang(*_: object) -> None:
    raise Hang(f"more than {MAX_SECONDS} s of CPU time")


def save_input(folder: Path, data: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{checksum(data)[:12]}.bin"
    path.write_bytes(data)
    return path


def mutate(rng: random.Random, corpus: list[bytes]) -> bytes:
    """One to four changes to an input of the corpus."""
    data = bytearray(rng.choice(corpus))
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice([1, 2, 8, 40, 1000]))
        kind = rng.randrange(8)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = rng.choice([0, 9, 10, 34, 44, 58, 127, 128, 255, rng.randrange(256)])
        elif kind == 2:
            del data[at:end]
        elif kind == 3:
            data[at:at] = data[at:end] * rng.choice([1, 3, 50])
        elif kind == 4:
            data[at:at] = rng.choice(TOKENS)
        elif kind == 5:
            del data[at:]
        elif kind == 6:
            other = rng.choice(corpus)
            data[at:] = other[rng.randrange(len(other) + 1) :]
        elif numbers := list(re.finditer(rb"\d+", data)):
            number = rng.choice(numbers)
            data[number.start() : number.end()] = rng.choice(NUMBERS)
    return bytes(data[: 1 << 20])


if __name__ == "__main__":
    main()
