"""The process of a recipe's row: trains it, saves it, and measures what was saved, as a user would have it.

    python -m shortlist.compare.child JOB.json

Leaves measured.json and predictions.npz in the job's folder, as the peers' script does. Exit code 3 says that the
recipe cannot be trained here, and the last line printed says why.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numba.core import event

from shortlist.compare.flops import multiply_adds
from shortlist.compare.job import CHECKPOINTS, MODEL, Job
from shortlist.compare.measure import one_at_a_time
from shortlist.compare.parts import Parts, first_texts
from shortlist.compare.peers.run_peer import CANNOT, end_with_parent, peak_memory
from shortlist.compare.results import Measured
from shortlist.errors import DataError, MissingExtraError, ShortlistError, Stopped
from shortlist.model import load, train
from shortlist.model.base import Model
from shortlist.model.registry import options_of
from shortlist.text.perturb import perturb

log = logging.getLogger("shortlist")

WARM_UP, COUNTED = 100, 1000  # texts


def do(job: Job) -> None:
    """Train, save, load, predict, and write what came out."""
    folder = Path(job.folder)
    parts = Parts.read(job.source, job.seed, job.reading)
    if parts.checksum() != job.checksum:
        raise DataError(f"{job.source} has changed since the comparison began. Start it again.")
    compiling, start = event.TimingListener(), time.perf_counter()
    with event.install_listener("numba:compile", compiling):
        model = train(parts.train, job.recipe, job.ensemble, **_options(job))
    compiled = compiling.duration if compiling.done else 0.0
    trained = time.perf_counter() - start - compiled
    model.save(folder / MODEL)
    log.info("trained in %.1f s", trained)
    stored = load(folder / MODEL)

    stored.rank(parts.inputs[:WARM_UP], job.places, job.threads)
    start = time.perf_counter()
    ids, scores = stored.rank(parts.inputs, job.places, job.threads)
    bulk = time.perf_counter() - start
    predictions = {"ids": ids, "scores": scores}
    for way in job.ways:
        ids, scores = stored.rank(perturb(parts.test.texts, way, job.seed), job.places, job.threads)
        predictions |= {f"{way}.ids": ids, f"{way}.scores": scores}
    times = one_at_a_time(stored, _singly(parts, job.latency_texts))
    np.savez(folder / "predictions.npz", **predictions)  # type: ignore[arg-type]
    measured = Measured(
        train_seconds=trained,
        compile_seconds=compiled,
        model_bytes=sum(path.stat().st_size for path in (folder / MODEL).iterdir()),
        bulk_texts_per_second=len(parts.test) / max(bulk, 1e-9),
        ms_p50=float(np.percentile(times, 50)) if times else None,
        ms_p99=float(np.percentile(times, 99)) if times else None,
        flops=multiply_adds(stored, parts.inputs[:COUNTED]),
        peak_memory_bytes=peak_memory(),
        options=stored.options,
        curves=_curves(model),
        calibration=stored.facts.get("calibration"),
        search_effort=stored.facts.get("search_effort"),
    )
    (folder / "measured.json").write_bytes(msgspec.json.encode(measured))


def _options(job: Job) -> dict[str, Any]:
    """The options of the row, and those that every recipe has that can have them."""
    folder = Path(job.folder)
    common = {"threads": job.threads, "seed": job.seed, "checkpoints": str(folder / CHECKPOINTS), "resume": job.resume}
    known = options_of(job.recipe)
    return {name: value for name, value in common.items() if name in known} | job.options


def _curves(model: Model) -> list[dict[str, Any]]:
    records = getattr(model, "records", [])
    return records if records else [record for one in getattr(model, "members", [])[:1] for record in _curves(one)]


def _singly(parts: Parts, count: int) -> list[Any]:
    if parts.test.features is None:
        return first_texts(parts.test.texts, count)
    return [parts.test.features[i : i + 1] for i in range(min(count, len(parts.test)))]


def main(job_file: str) -> int:
    """The exit code."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # one started in the background would be deaf to it
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stderr)
    try:
        do(msgspec.json.decode(Path(job_file).read_bytes(), type=Job))
    except MissingExtraError as error:
        log.error("%s", error)
        return CANNOT
    except ShortlistError as error:
        log.error("%s", error)
        return 2
    except Stopped as stopped:
        log.info("%s", stopped)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
