"""Ways to damage a model folder, and a program that tries what comes of each: a clear error, or predictions in order.

Where a check is missing, compiled loops kill the process, so this is a program of its own, with a limit on its memory
and on the time of a case. It names each case before it tries it; `tests/test_model_fuzz.py` reads what it prints.

    python tests/model_damage.py folder-of-models folder-to-work-in [number of cases of a kind, or all] [first case]
"""

from __future__ import annotations

import faulthandler
import gzip
import json
import math
import os
import pickle
import resource
import shutil
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import xxhash
from safetensors.numpy import load_file, save

import shortlist
from shortlist.errors import ModelError
from shortlist.model.format import ModelConfig, config_checksum

CONFIG, README = "config.json", "README.md"
MARKER = "a-pickle-was-loaded"
SECONDS_A_CASE = 60
MEMORY_FOR_CASES = 3 << 30
MOST_WARNINGS = 10

Damage = Callable[[Path], None]


@dataclass(frozen=True)
class Case:
    """`damage` is done to a copy of a model; `refused`: this must be an error that names the file."""

    kind: str
    name: str
    damage: Damage
    refused: str = ""


# Putting content into a folder, with checksums as they were or made right again.


def put(name: str, content: bytes, folder: Path) -> None:
    (folder / name).write_bytes(content)


def put_sealed(name: str, content: bytes, folder: Path) -> None:
    put(name, content, folder)
    config = json.loads((folder / CONFIG).read_bytes())
    config["files"][name] = {"bytes": len(content), "xxh3": xxhash.xxh3_128(content).hexdigest()}
    put_config(config, folder)


def put_config(config: dict[str, Any], folder: Path) -> None:
    """The config, with the checksum of itself where it can have one."""
    with suppress(msgspec.ValidationError, msgspec.EncodeError, RecursionError, OverflowError):
        config = {**config, "xxh3": config_checksum(msgspec.convert(config, ModelConfig))}
    put(CONFIG, json.dumps(config).encode(), folder)


# A kind of damage each; all of them lists of cases, of which some are drawn.


class _Evil:
    def __reduce__(self):
        return Path.touch, (Path(os.environ.get("SHORTLIST_MARKER", MARKER)),)


def pickled() -> bytes:
    return pickle.dumps(_Evil())


def replaced_by(what: str, name: str, folder: Path) -> None:
    path = folder / name
    path.unlink()
    if what == "nothing":
        return
    if what == "a folder":
        path.mkdir()
    elif what == "a pipe":
        os.mkfifo(path)
    elif what == "a huge sparse file":
        path.touch()
        os.truncate(path, 1 << 40)
    elif what == "a link to itself":
        path.symlink_to(path)
    else:
        path.symlink_to(
            {"a link to nothing": folder / "none", "a link to a folder": "/", "a link": __file__}.get(what, what)
        )


def unsealed(folder: Path, rng: np.random.Generator) -> Iterator[Case]:
    """What happens to files by accident, or by someone who does not know of checksums."""
    names = sorted(path.name for path in folder.iterdir() if path.name != README)  # which is not read
    for name in names:
        content = (folder / name).read_bytes() or b"\n"  # a vocabulary, where there are no texts, is empty
        other = next(other for other in names[names.index(name) + 1 :] + names if other != name)
        cuts = sorted({0, 1, 7, 8, len(content) // 3, len(content) - 1, *rng.integers(len(content), size=3).tolist()})
        contents = {f"cut to {size} bytes": content[:size] for size in cuts}
        contents |= {"grown": content + b"\0", "grown by a line": content + b"\n", "doubled": 2 * content}
        contents |= {"a pickle": pickled(), f"the content of {other}": (folder / other).read_bytes()}
        for at in {0, min(9, len(content) - 1), len(content) - 1, *rng.integers(len(content), size=12).tolist()}:
            contents[f"bit {at}.{at % 8} flipped"] = flipped(content, [(at, at % 8)])
        for what, changed in contents.items():
            if changed == (folder / name).read_bytes():
                continue
            # Blanks in a config may go unnoticed, and nothing is lost.
            refused = "as before" if name == CONFIG else name
            yield Case("unsealed", f"{name}: {what}", partial(put, name, changed), refused)
        for what in ("nothing", "a folder", "a pipe", "a huge sparse file", "a link", "a link to nothing"):
            yield Case("unsealed", f"{name}: {what}", partial(replaced_by, what, name), name)
        for what in ("a link to a folder", "a link to itself", "/dev/zero", "/dev/full", "/dev/stdin"):
            yield Case("unsealed", f"{name}: {what}", partial(replaced_by, what, name), name)


def flipped(content: bytes, bits: list[tuple[int, int]]) -> bytes:
    changed = bytearray(content)
    for at, bit in bits:
        changed[at] ^= 1 << bit
    return bytes(changed)


def flips(folder: Path, rng: np.random.Generator) -> Iterator[Case]:
    """Bits anywhere, one or several, and whole stretches of bytes; in headers as often as in all the rest."""
    for path in sorted(folder.iterdir()):
        content, name = path.read_bytes(), path.name
        if name in (CONFIG, README) or not content:
            continue
        header = 8 + int.from_bytes(content[:8], "little") if name.endswith(".safetensors") else len(content)
        for end in (header, len(content)):
            for n_bits in (1, 1, 1, 2, 8, 64):
                bits = [(int(at), int(rng.integers(8))) for at in rng.integers(end, size=n_bits)]
                changed = flipped(content, bits)
                yield Case("flips", f"{name}: {n_bits} bits flipped, {bits[:2]}", partial(put_sealed, name, changed))
        for size in {0, 1, 8, header, len(content) // 2, len(content) - 1}:
            yield Case("flips", f"{name}: cut to {size} bytes", partial(put_sealed, name, content[:size]))
        begin = int(rng.integers(len(content)))
        noise = rng.bytes(min(64, len(content) - begin))
        changed = content[:begin] + noise + content[begin + len(noise) :]
        yield Case("flips", f"{name}: noise at {begin}", partial(put_sealed, name, changed))
        yield Case("flips", f"{name}: a pickle", partial(put_sealed, name, pickled()))
        yield Case("flips", f"{name}: zeros", partial(put_sealed, name, bytes(len(content))))
        for other in rng.permutation(sorted(folder.glob(f"*{path.suffix}")))[:2]:
            yield Case("flips", f"{name}: the content of {other.name}", partial(put_sealed, name, other.read_bytes()))


def parsed(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file, and what follows it."""
    start = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:start]), content[start:]


def joined(header: Any, data: bytes) -> bytes:
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + data


def headers(folder: Path, rng: np.random.Generator) -> Iterator[Case]:
    """Headers of files of arrays that lie."""
    for path in sorted(folder.glob("*.safetensors")):
        content = path.read_bytes()
        header, data = parsed(content)
        changed: dict[str, bytes] = {}
        for length in (0, 7, len(content) - 8, len(content), 1 << 40, (1 << 63) - 1, (1 << 64) - 1):
            changed[f"a header of {length} bytes"] = length.to_bytes(8, "little") + content[8:]
        for raw in (b"", b"[]", b"3", b"{}", b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe", b'{"a":NaN}'):
            changed[f"the header {raw[:9]!r}, {len(raw)} bytes"] = joined(raw, data)
        for metadata in (5, [], {"index": 5}, {"index": "{}"}, {"index": "[" * 10_000}, {"a": {"b": "c"}}):
            changed[f"__metadata__ {metadata!s:.20}"] = joined({**header, "__metadata__": metadata}, data)
        odd = json.dumps(header).encode()
        odd += b" " * ((3 - len(odd)) % 8)
        changed["arrays out of step"] = len(odd).to_bytes(8, "little") + odd + data
        for name in sorted(header.keys() - {"__metadata__"}):
            facts, other = header[name], header[str(rng.choice(sorted(header.keys() - {"__metadata__"})))]
            begin, end = facts["data_offsets"]
            rest = {key: value for key, value in header.items() if key != name}
            changed[f"{name} missing in the header"] = joined(rest, data)
            changed[f"{name} renamed"] = joined({**rest, f"{name}2": facts}, data)
            changed[f"{name} gone"] = joined(*without(header, data, name))
            for key, values in {
                "dtype": ["F64", "I32", "U16", "I8", "F16", "BOOL", "O", "", None, 5, [], "F32" * 99],
                "shape": [[], [-1], [0], [1 << 62], [0, 1 << 40], [1 << 40, 0], [1] * 99, "3", None, [1.5], [True]],
                "data_offsets": [[end, begin], [begin, end + 4], [begin + 4, end + 4], [-8, 0], [0, 0], [0, 1 << 63]],
            }.items():
                for value in values:
                    lie = {**header, name: {**facts, key: value}}
                    changed[f"{name}: {key} {value!s:.30}"] = joined(lie, data)
            for value in (other["data_offsets"], [0.0, 4.0], ["0", "4"], [0], None, {}, [0, 1 << 70]):
                lie = {**header, name: {**facts, "data_offsets": value}}
                changed[f"{name}: data_offsets {value!s:.30}, the other's or no numbers"] = joined(lie, data)
            changed[f"{name}: the facts of another"] = joined({**header, name: other}, data)
            changed[f"{name}: no facts"] = joined({**header, name: 5}, data)
        for what, new in changed.items():
            yield Case("headers", f"{path.name}: {what}", partial(put_sealed, path.name, new))


def without(header: dict[str, Any], data: bytes, name: str) -> tuple[dict[str, Any], bytes]:
    """A header and data that fit together, but lack an array."""
    begin, end = header[name]["data_offsets"]
    moved = {}
    for key, facts in header.items():
        if key == "__metadata__":
            moved[key] = facts
        elif key != name:
            offsets = [at - (end - begin) if at >= end else at for at in facts["data_offsets"]]
            moved[key] = {**facts, "data_offsets": offsets}
    return moved, data[:begin] + data[end:]


def arrays(folder: Path, rng: np.random.Generator) -> Iterator[Case]:
    """Arrays of other sizes, types and values in files that are in order."""
    for path in sorted(folder.glob("*.safetensors")):
        everything = load_file(path)
        metadata = parsed(path.read_bytes())[0].get("__metadata__")
        for name, array in sorted(everything.items()):
            for what, changed in {**other_forms(array, rng), **other_values(array, rng)}.items():
                content = save({**everything, name: np.ascontiguousarray(changed)}, metadata)
                yield Case("arrays", f"{path.name}: {name} {what}", partial(put_sealed, path.name, content))


def other_forms(array: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    forms = {
        "without the last": array[:-1],
        "twice": np.concatenate([array, array]),
        "empty": array[:0],
        "with one axis more": array[None],
        "with one axis more behind": array[..., None],
        "flat": array.ravel(),
        "turned": np.ascontiguousarray(array.T),
        "one number": array.ravel()[:1].reshape(()) if array.size else np.zeros((), array.dtype),
        "backwards": array[::-1],
        "shuffled": rng.permutation(array),
    }
    kinds = (np.float64, np.float32, np.int64, np.int32, np.uint16, np.uint8, np.int8)
    with np.errstate(invalid="ignore"):
        return forms | {f"as {kind.__name__}": array.astype(kind) for kind in kinds if array.dtype != kind}


def other_values(array: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    if array.dtype.kind == "f":
        values: list[Any] = [math.nan, math.inf, -math.inf, 3e38, -3e38, 1e-45, 0, -1, 1e9]
    else:
        facts = np.iinfo(array.dtype)
        some = (facts.min, facts.max, 0, -1, len(array), len(array) - 1, int(array.max(initial=0)) + 1, 1 << 30)
        values = [value for value in some if facts.min <= value <= facts.max]
    changed = {}
    for value in values:
        changed[f"all {value}"] = np.full_like(array, value)
        for at in {0, array.size - 1, int(rng.integers(array.size))} if array.size else ():
            one = array.copy()
            one.flat[at] = value
            changed[f"{value} at {at}"] = one
    return changed


STRANGE: list[Any] = [
    *(None, True, False, -1, 0, 1, 3, 1 << 31, 10**18, 1 << 64, 10**30, -(10**30), 0.5, -0.5, 1e18, 1e308, -1e308),
    *(
        "",
        "x",
        "3",
        "../x",
        "nan",
        "english",
        "\0",
        "x" * 100_000,
        [],
        {},
        [0],
        [1, 2],
        [2, 1],
        [1, 1000],
        [None],
        [[]],
    ),
    *({"a": 1}, [0.5] * 3, [1, 10**9], [-5, 3], [0, "1"], ["0", "1"], [10**30], [True, 2], {"members": []}),
]
STRANGE_TEXT = [
    "NaN",
    "Infinity",
    "1e999",
    "1" * 5000,
    "[" * 2000 + "]" * 2000,
    "[" * 100_000,
    '{"a":' * 100_000,
    "",
    "\\",
]


def configs(folder: Path, rng: np.random.Generator) -> Iterator[Case]:
    """Other values in the config, of any type and size, and values that are missing."""
    config = json.loads((folder / CONFIG).read_bytes())
    for path in places(config):
        if path[:1] == ("files",):
            continue
        where = ".".join(map(str, path))
        for value in STRANGE:
            yield Case("configs", f"{where}: {value!r:.40}", partial(put_changed, config, path, value, False))
        for text in STRANGE_TEXT:
            yield Case("configs", f"{where}: {text:.20}", partial(put_text, config, path, text))
        if isinstance(path[-1], str):
            yield Case("configs", f"{where} missing", partial(put_changed, config, path, None, True))


# Of thousands of cases few are drawn, so the changed config is made when the damage is done.


def put_changed(config: dict[str, Any], path: tuple[Any, ...], value: Any, gone: bool, folder: Path) -> None:
    put_config(changed_at(config, path, value, gone), folder)


def put_text(config: dict[str, Any], path: tuple[Any, ...], text: str, folder: Path) -> None:
    """Text in place of a value that JSON may not be able to hold."""
    raw = json.dumps(changed_at(config, path, "HERE")).replace('"HERE"', text)
    put(CONFIG, raw.encode(), folder)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to everything in a config; of a list, to the first and the last."""
    inside = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list) and value:
        inside = {0: value[0], len(value) - 1: value[-1]}.items()
    if path:
        yield path
    for key, item in inside:
        yield from places(item, (*path, key))


def changed_at(config: dict[str, Any], path: tuple[Any, ...], value: Any, gone: bool = False) -> dict[str, Any]:
    copy = json.loads(json.dumps(config))
    at = copy
    for key in path[:-1]:
        at = at[key]
    if gone:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return copy


NAMES = ["../x", "../outside.txt", "/etc/passwd", "a/b", "", ".", "..", "x\0y", "x" * 300, "C:\\x", "a\\b", "con", "~"]


def names(folder: Path, rng: np.random.Generator) -> Iterator[Case]:
    """Names of files that lead elsewhere, or to the same file again."""
    config = json.loads((folder / CONFIG).read_bytes())

    def also(name: str, own: str, instead: bool, at: Path) -> None:
        files = {key: value for key, value in config["files"].items() if key != own or not instead}
        outside = at.parent / "outside.txt"
        outside.write_bytes((at / own).read_bytes())
        put_config({**config, "files": {**files, name: config["files"][own]}}, at)

    for own in sorted(config["files"]):
        for name in [*NAMES, own.upper(), f"{own} ", f"./{own}", f"{own}/", f"../{folder.name}/{own}"]:
            refused = "" if name in ("con", "~", own.upper()) else repr(name)[:50]
            for instead in (False, True):
                what = f"{own} {'called' if instead else 'beside'} {name!r:.40}"
                yield Case("names", what, partial(also, name, own, instead), refused)
        for facts in ({"bytes": -1}, {"bytes": 1 << 70}, {"xxh3": "x" * 100_000}, {"xxh3": ""}, {"bytes": 1.0}):
            lie = changed_at(config, ("files", own), {**config["files"][own], **facts})
            yield Case("names", f"{own}: {facts!s:.40}", partial(put_config, lie), own if "xxh3" in facts else "")


@cache
def bomb() -> bytes:
    """A few megabytes that unfold to more than there is room for."""
    return gzip.compress(bytes(1 << 24)) * 400


def texts(folder: Path, rng: np.random.Generator) -> Iterator[Case]:
    """Lines that are missing, too many, twice, or not what they should be."""
    for path in sorted(folder.iterdir()):
        if path.suffix not in (".txt", ".jsonl", ".json") or path.name == CONFIG:
            continue
        content = path.read_bytes()
        lines = content.splitlines(keepends=True)
        changed = {
            "fewer lines": b"".join(lines[:-1]),
            "more lines": content + (lines[-1] if lines else b"x\t1\n"),
            "the first line twice": b"".join([*lines[:1], *lines[:1], *lines[2:]]),
            "backwards": b"".join(lines[::-1]),
            "no line end": content.rstrip(b"\n"),
            "invalid UTF-8": b"\xff" + content[1:],
            "half a character": content[:-2] + b"\xc3\n",
            "a surrogate": b"\xed\xa0\x80" + content[3:],
            "NUL": b"\0" + content[1:],
            "CRLF": content.replace(b"\n", b"\r\n"),
            "a mark of byte order": b"\xef\xbb\xbf" + content,
            "empty lines": content.replace(b"\n", b"\n\n"),
            "empty lines only": b"\n" * len(lines),
            "backslashes": b"\\\n" * len(lines),
            "one long line": b"x" * (1 << 20) + b"\t1\n",
            "large counts": content.replace(b"\t", b"\t99999999999999999"),
            "counts beyond 64 bits": content.replace(b"\t", b"\t99999999999999999999"),
            "a bomb": bomb(),
        }
        if path.suffix != ".txt":
            for raw in (b"[]", b"5", b"null", b"{}", b"[" * 100_000, b'{"a":' * 100_000, b'{"a":NaN}', b'{"a":1e999}'):
                changed[f"{raw[:9]!r}, {len(raw)} bytes"] = raw
            for card in (
                {"examples": 5},
                {"examples": [5]},
                {"examples": {}},
                {"n_labels": -1, "title": [], "recipe": 3},
            ):
                changed[f"{card}"] = json.dumps(card).encode()
        for what, new in changed.items():
            yield Case("texts", f"{path.name}: {what}", partial(put_sealed, path.name, new))


KINDS = (unsealed, flips, headers, arrays, configs, names, texts)


def cases_of(folder: Path, most: int | None) -> list[Case]:
    """The cases of a model, always the same; of each kind at most so many, drawn at random."""
    rng = np.random.default_rng(zlib.crc32(folder.name.encode()))
    drawn: list[Case] = []
    for kind in KINDS:
        cases = list(kind(folder, rng))
        chosen = range(len(cases)) if most is None else sorted(rng.permutation(len(cases))[:most].tolist())
        drawn += [cases[i] for i in chosen]
    return drawn


# What comes of a case.

TEXTS = ["topic1word2 noise3 topic1word0 words that begin alike", "", "topic2word1 ünïcode 日本", "topic3word3 " * 40]


def attempt(folder: Path, before: list[Any] | None, refused: str) -> str:
    """In a word or two what came of loading a folder; what must not be begins with WRONG."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("default")
        try:
            found = predictions(shortlist.load(folder))
        except ModelError as error:
            message = str(error)
            if len(message) > 2000 or str(folder) not in message:
                return f"WRONG message: {message[:200]}"
            return (
                "refused"
                if refused in (*("", "as before"), *(r for r in [refused] if r in message))
                else (f"WRONG message, it does not name {refused!r}: {message[:300]}")
            )
        except BaseException as error:  # noqa: BLE001 - that is what is looked for
            return f"WRONG error {type(error).__name__}: {str(error)[:300]}"
    if len(warned) > MOST_WARNINGS:
        return f"WRONG {len(warned)} warnings, such as {warned[0].message}"
    if isinstance(found, str):
        return f"WRONG {found}"
    if refused and not (refused == "as before" and found == before):
        return "WRONG not refused"
    return "predicted"


def predictions(model: Any) -> Any:
    """Everything a model can do with texts (or features); a sentence where that makes no sense."""
    inputs: Any = TEXTS
    if model.columns is not None:
        inputs = np.random.default_rng(0).normal(size=(4, len(model.columns)))
    found = []
    for some, k, search_effort in ((inputs, 5, 1.0), (inputs[:1], 2, 0.3), (inputs, 10_000, 1e6)):
        ids, scores = model.rank(some, k, search_effort=search_effort)
        if ids.shape != scores.shape or len(ids) != len(some) or ids.dtype.kind != "i":
            return f"ids {ids.dtype} {ids.shape}, scores {scores.shape}"
        if not np.isfinite(scores).all() or scores.min(initial=0) < 0 or scores.max(initial=0) > 1:
            return f"scores from {scores.min()} to {scores.max()}"
        if ids.size and not -1 <= ids.min() <= ids.max() < model.n_labels:
            return f"ids from {ids.min()} to {ids.max()}"
        if any(len(set(row)) < len(row) for row in (line[line >= 0].tolist() for line in ids)):
            return "a label twice"
        found += [ids.tolist(), scores.tolist()]
    if model.columns is None:
        for row in model.predict(inputs, k=2, explain=True):
            if not all(math.isfinite(share.moved) for prediction in row for share in prediction.words):
                return "words that moved a label by no number"
            found.append([prediction.label for prediction in row])
        model.warm_up()
    json.dumps(model.card)
    return found if model.card["n_labels"] == model.n_labels else "a card of another model"


def main(models: Path, work: Path, most: int | None, first: int) -> None:
    folders = sorted(path for path in models.iterdir() if path.is_dir())
    marker = work / MARKER
    os.environ["SHORTLIST_MARKER"] = str(marker)
    before = {folder: predictions(shortlist.load(folder)) for folder in folders}  # kernels are there now
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY_FOR_CASES,) * 2)
    cases = ((path, case) for path in folders for case in cases_of(path, most))
    for number, (folder, case) in enumerate(cases):
        if number < first:
            continue
        print(f"{number}\t{folder.name}\t{case.kind}\t{case.name!a}", end="\t", flush=True)  # noqa: T201
        faulthandler.dump_traceback_later(SECONDS_A_CASE, exit=True)
        target = work / folder.name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(folder, target)
        case.damage(target)
        outcome = attempt(target, before[folder], case.refused)
        faulthandler.cancel_dump_traceback_later()
        if marker.exists():
            outcome = "WRONG a pickle was loaded"
            marker.unlink()
        print(f"{outcome!a}", flush=True)  # noqa: T201


if __name__ == "__main__":
    models, work, most, first, *_ = [*sys.argv[1:], *["10", "0"][len(sys.argv) - 3 :]]
    main(Path(models), Path(work), None if most == "all" else int(most), int(first))
