"""Damaged and hostile inputs: readers, models, checkpoints and the server refuse them, or answer; nothing else.

    python benchmarks/reliability/fuzz.py [--inputs 20000] [--targets csv,http] [--seed 0] [--save FOLDER]

Each input is a mutation of one in the corpus. One that gives a new kind of answer joins the corpus, and so does one
that reaches a line of Shortlist that no other has reached; every fourth input is traced for this. Files are in memory
where there is /dev/shm. A failure is a crash, an error other than a `ShortlistError`, more than 2 seconds of CPU time,
more than 3 GB of memory, an answer from a damaged model, or a response of the server with status 500. Failures are
saved, and `--input FILE --targets NAME` repeats one of them.
"""

from __future__ import annotations

import io
import json
import mmap
import os
import random
import re
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType

import msgspec
import numpy as np

sys.path.append(str(Path(__file__).parent.parent))
from small import TEXTS, fast_folder, serve, small_model

import shortlist
from common import make_parser, print_json, show
from shortlist.data.label_names import read_label_names
from shortlist.data.predictions import read_predictions
from shortlist.data.rows import RowOptions, RowSource
from shortlist.errors import ShortlistError
from shortlist.labels.hierarchy import read_hierarchy
from shortlist.lazy import sparse
from shortlist.model.format import CONFIG, README, FileFacts, ModelConfig, checksum, config_checksum
from shortlist.text.pretrained_vectors import load_rows, load_vectors
from shortlist.training.checkpoints import Checkpoints, read_arrays

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


class Failure(Exception):
    """Something that must not happen."""


class Target:
    """A corpus, and what is done with an input: an error other than ShortlistError, or a Failure, is a finding."""

    def __init__(self, corpus: list[bytes], run: Callable[[bytes], object]) -> None:
        self.corpus, self.run = list(corpus), run
        self.kinds: set[str] = set()  # of answers
        self.lines: set[str] = set()  # of Shortlist that inputs have reached

    def warm_up(self) -> None:
        """Run the corpus: what is compiled or imported later counts as a hang."""
        for data in self.corpus:
            with suppress(ShortlistError):
                self.run(data)

    def learn(self, found: dict) -> None:
        """Take what a process has found."""
        self.kinds.update(found["kinds"])
        self.lines.update(found["lines"])
        self.corpus += map(bytes.fromhex, found["corpus"][: max(CORPUS_LIMIT - len(self.corpus), 0)])


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


def make_targets(folder: Path, stack: ExitStack) -> dict[str, Target]:
    targets = {}

    def from_file(name: str, corpus: list[bytes], read: Callable[[Path], object]) -> None:
        path = folder / name

        def run(data: bytes) -> object:
            path.write_bytes(data)
            return read(path)

        targets[name.partition(".")[0]] = Target(corpus, run)

    def read(path: Path) -> str:
        for on_error in ("skip", "raise"):
            dataset = shortlist.read(path, on_error=on_error, show_progress=False)
        return f"{min(len(dataset), 3)} texts"

    def predict_rows(path: Path) -> str:
        rows = list(RowSource(path, None, RowOptions(id="id", show_progress=False)).rows())
        return f"{len({row.problem for row in rows})} problems"

    lines = b"".join(json.dumps({"text": t, "labels": t.split()[:2], "id": i}).encode() + b"\n"
                     for i, t in enumerate(TEXTS[:6]))  # fmt: skip
    from_file("jsonl.jsonl", [lines, b'{"text": "a", "labels": {"x": 0.5}}\n'], read)
    from_file("rows.jsonl", [lines], predict_rows)
    table = b'text,labels\nred hat,red;hat\n"a ""quoted"", text",x\n"two\nlines",y\n'
    from_file("csv.csv", [table, table.replace(b",", b"\t")], read)
    from_file("fasttext.txt", [b"__label__red __label__hat a red hat\n__label__x y\n"], read)
    from_file("annif.tsv", [b"a red hat\t<http://a/red> <http://a/hat>\nx\t<http://a/y>\n"], read)
    from_file("repository.txt", [b"3 5 4\n0,2 1:0.5 3:1\n1 0:2\n3 4:1e-3\n"], read)
    from_file("names.json", [b'{"red": "the colour", "hat": "a hat"}', b"red\tthe colour\n"], read_label_names)
    from_file("hierarchy.tsv", [b"red\tcolour\nblue\tcolour\ncolour\tall\n"], read_hierarchy)
    pairs = b'{"child": "red", "parent": "colour"}\n{"child": "blue", "parent": "colour"}\n'
    from_file("hierarchy_lines.jsonl", [pairs], read_hierarchy)
    from_file("vectors.vec", [b"3 2\nred 0.5 -1\nhat 1e-2 3\nblue 0 0\n", b"red 0.5 -1\nhat 1 2\n"],
              lambda path: load_vectors(path, ["red", "hat"])[1].sum())  # fmt: skip
    array, packed = io.BytesIO(), io.BytesIO()
    np.save(array, np.ones((3, 2), np.float32))
    from_file("array.npy", [array.getvalue()], lambda path: load_rows(path, 3).shape)
    sparse.save_npz(packed, sparse.csr_array(np.eye(3)), compressed=False)
    from_file("matrix.npz", [packed.getvalue()], lambda path: read_predictions(path).shape)
    shortlist.read([(text, text.split()[:2]) for text in TEXTS]).write(folder / "seed.parquet")
    from_file("parquet.parquet", [(folder / "seed.parquet").read_bytes()], read)
    targets |= model_targets(folder) | {"checkpoint": checkpoint_target(folder)}
    targets["http"] = http_target(stack.enter_context(serve(folder / "served")))
    return targets


def model_targets(folder: Path) -> dict[str, Target]:
    """Files of a model, damaged by accident; and by somebody who sets the checksums right."""
    place, model = folder / "model", small_model()
    model.store_list("warm", ["re*", "coat"])
    model.set_hierarchy({"red": "colour", "blue": "colour", "colour": "all"})
    model.save(place)
    whole = {path.name: path.read_bytes() for path in place.iterdir()}
    names = sorted(whole)

    def damaged(data: bytes, forged: bool) -> object:
        name, content = names[data[0] % len(names)], data[1:]
        if content == whole[name]:
            return "unchanged"
        (place / name).write_bytes(content)
        try:
            if forged:
                forge(place, name)
            found = shortlist.load(place)
            answers = [*found.predict(TEXTS[:3]), *found.predict(TEXTS[:3], allow="@warm")]
            answers += found.predict(TEXTS[:3], levels="roll-up")
        finally:
            for changed in (name, CONFIG):
                (place / changed).write_bytes(whole[changed])
        if not forged and name != README and not is_same_config(name, content, whole):
            raise Failure(f"an answer from a damaged {name}")
        return len(answers)

    corpus = [bytes([i]) + whole[name] for i, name in enumerate(names)]
    return {
        "model": Target(corpus, lambda data: damaged(data or b"\0", forged=False)),
        "forged": Target(corpus, lambda data: damaged(data or b"\0", forged=True)),
    }


def is_same_config(name: str, content: bytes, whole: dict[str, bytes]) -> bool:
    """Whether a config says the same in other words: other spaces, a field twice, or one that nobody knows."""
    if name != CONFIG:
        return False
    found, expected = (msgspec.convert(msgspec.json.decode(one), ModelConfig) for one in (content, whole[CONFIG]))
    return found == expected


def forge(place: Path, name: str) -> None:
    """Give the config the checksums of the files as they are."""
    try:
        config = msgspec.json.decode((place / CONFIG).read_bytes(), type=ModelConfig)
    except (ValueError, RecursionError):
        return
    if name != CONFIG and name in config.files:
        content = (place / name).read_bytes()
        config.files[name] = FileFacts(len(content), checksum(content))
    config.xxh3 = config_checksum(config)
    (place / CONFIG).write_bytes(msgspec.json.encode(config))


def checkpoint_target(folder: Path) -> Target:
    checkpoints = Checkpoints(folder / "checkpoints", {"recipe": "x"})
    checkpoints.save({"a": np.arange(20.0), "b": np.eye(3, dtype=np.float32)}, {"epoch": 3})
    place = folder / "checkpoints" / "state"
    whole = {path.name: path.read_bytes() for path in place.iterdir()}
    names, expected = sorted(whole), read_arrays(place)

    def run(data: bytes) -> object:
        name, content = names[(data or b"\0")[0] % len(names)], data[1:]
        (place / name).write_bytes(content)
        try:
            arrays, facts = read_arrays(place)
        finally:
            (place / name).write_bytes(whole[name])
        if facts != expected[1] or any(not np.array_equal(arrays[key], expected[0][key]) for key in expected[0]):
            raise Failure(f"a checkpoint from a damaged {name}")
        return "the same"

    return Target([bytes([i]) + whole[name] for i, name in enumerate(names)], run)


def http_target(port: int) -> Target:
    def request(method: bytes, path: bytes, body: bytes = b"", *headers: bytes) -> bytes:
        lines = [method + b" " + path + b" HTTP/1.1", b"Host: localhost", b"Connection: close", *headers]
        if body:
            lines += [b"Content-Type: application/json", b"Content-Length: %d" % len(body)]
        return b"\r\n".join([*lines, b"", body])

    def run(data: bytes) -> str:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda: connection.recv(65536), b""))
            except (ConnectionResetError, BrokenPipeError):  # it was refused while it was sent
                return "reset"
        status = answer[9:12].decode(errors="replace")
        if answer and not re.match(rb"HTTP/1\.1 [1-4]\d\d |HTTP/1\.1 503 ", answer):
            raise Failure(f"the server answered {answer[:40]!r}")
        return status

    predict = b'{"texts": ["red hat", "blue shoe"], "k": 3, "min_score": 0.1, "allow": ["red"]}'
    chunked = request(b"POST", b"/v1/predict", b"", b"Transfer-Encoding: chunked", b"Content-Type: application/json")
    corpus = [
        request(b"POST", b"/v1/predict", predict),
        request(b"POST", b"/v1/predict", b'{"texts": ["red hat"], "explain": true}'),
        chunked + b"14\r\n" + b'{"texts": ["a red"]}' + b"\r\n0\r\n\r\n",
        *(
            request(b"GET", path)
            for path in (b"/", b"/healthz", b"/readyz", b"/metrics", b"/v1/model", b"/openapi.json")
        ),
    ]
    return Target(corpus, run)


if __name__ == "__main__":
    main()
