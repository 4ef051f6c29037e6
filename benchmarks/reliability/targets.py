"""What `fuzz.py` tries inputs on: readers, models, checkpoints, feedback and the server."""

from __future__ import annotations

import io
import json
import re
import select
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
import numpy as np

sys.path.append(str(Path(__file__).parent.parent))
from small import TEXTS, serve, small_model

import shortlist
from shortlist.data.label_names import read_label_names
from shortlist.data.predictions import read_predictions
from shortlist.data.rows import RowOptions, RowSource
from shortlist.errors import ShortlistError
from shortlist.labels.hierarchy import read_hierarchy
from shortlist.lazy import sparse
from shortlist.model.format import CONFIG, README, FileFacts, ModelConfig, checksum, config_checksum
from shortlist.model.kept_texts import kept_texts
from shortlist.serving.annif import FORM_TYPE
from shortlist.serving.feedback import FeedbackRequest, line_of
from shortlist.serving.operations import JSON_TYPE
from shortlist.text.pretrained_vectors import load_rows, load_vectors
from shortlist.training.checkpoints import Checkpoints, read_arrays

CORPUS_LIMIT = 500
WAIT_SECONDS = 0.01  # for a response


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
    targets["feedback"] = feedback_target(folder / "feedback.jsonl")
    targets["http"] = http_target(stack.enter_context(serve(folder / "served")))
    return targets


def model_targets(folder: Path) -> dict[str, Target]:
    """Files of a model, damaged by accident; and by somebody who sets the checksums right."""
    place, model = folder / "model", small_model()
    model.store_list("warm", ["re*", "coat"])
    model.set_hierarchy({"red": "colour", "blue": "colour", "colour": "all"})
    model.kept_texts = b'{"text": "a red hat", "labels": ["red"]}\n'
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
            kept_texts(found)
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


def feedback_target(path: Path) -> Target:
    """What a server takes as feedback is what `shortlist update` reads."""
    model, decoder = small_model(), msgspec.json.Decoder(FeedbackRequest)

    def run(data: bytes) -> str:
        try:
            line = line_of(decoder.decode(data), model)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return "not a request"
        path.write_bytes(line * 2)
        (first, second) = shortlist.read(path, show_progress=False).texts
        if first != second:
            raise Failure("two lines give different texts")
        return "stored"

    return Target([b'{"text": "a red hat", "right": ["red"], "wrong": ["shoe", "coat"]}'], run)


def http_target(port: int) -> Target:
    def request(method: bytes, path: bytes, body: bytes = b"", *headers: bytes, media_type: str = JSON_TYPE) -> bytes:
        lines = [method + b" " + path + b" HTTP/1.1", b"Host: localhost", b"Connection: close", *headers]
        if body:
            lines += [b"Content-Type: " + media_type.encode(), b"Content-Length: %d" % len(body)]
        return b"\r\n".join([*lines, b"", body])

    def run(data: bytes) -> str:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            try:
                connection.sendall(data)
                select.select([connection], [], [], WAIT_SECONDS)
                connection.shutdown(socket.SHUT_WR)  # who hangs up gets no prediction
                answer = b"".join(iter(lambda: connection.recv(65536), b""))
            except (ConnectionResetError, BrokenPipeError):  # it was refused while it was sent
                return "reset"
        status = answer[9:12].decode(errors="replace")
        if answer and not re.match(rb"HTTP/1\.1 [1-4]\d\d |HTTP/1\.1 503 ", answer):
            raise Failure(f"the server answered {answer[:40]!r}")
        return status

    predict = b'{"texts": ["red hat", "blue shoe"], "k": 3, "min_score": 0.1, "allow": ["red"]}'
    infer = (
        b'{"inputs": [{"name": "text", "shape": [2], "datatype": "BYTES"'
        b', "data": ["red hat", "blue"]}], "outputs": [{"name": "labels"}], "parameters": {"allow": ["red"], "k": 2}}'
    )
    behind = b'{"inputs": [{"name": "text", "shape": [2], "datatype": "BYTES"}]}'
    binary = b"\x07\0\0\0red hat\x04\0\0\0blue"
    chunked = request(b"POST", b"/v1/predict", b"", b"Transfer-Encoding: chunked", b"Content-Type: application/json")
    corpus = [
        request(b"POST", b"/v1/predict", predict),
        request(b"POST", b"/v1/predict", b'{"texts": ["red hat"], "explain": true}'),
        request(b"POST", b"/v1/predict", b'{"fields": [{"title": "red hat", "author": null}], "deny": ["re*"]}'),
        request(b"POST", b"/v1/predict", b'{"features": [{"indices": [1], "values": [0.5]}, [1, 2]]}'),
        request(b"POST", b"/v2/models/served/infer", infer),
        request(
            b"POST", b"/v2/models/served/infer", behind + binary, b"Inference-Header-Content-Length: %d" % len(behind)
        ),
        request(b"POST", b"/v1/projects/served/suggest", b"text=red%20hat&limit=3", media_type=FORM_TYPE),
        chunked + b"14\r\n" + b'{"texts": ["a red"]}' + b"\r\n0\r\n\r\n",
        *(
            request(b"GET", path)
            for path in (b"/", b"/healthz", b"/readyz", b"/metrics", b"/v1/model", b"/openapi.json")
        ),
    ]
    return Target(corpus, run)
