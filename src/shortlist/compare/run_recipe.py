"""The process of a recipe's entry: trains a model, saves it, loads it again, and measures that.

    python -m shortlist.compare.run_recipe JOB.json

See `shortlist.compare.job` for the files. Exit code 3 means that the recipe cannot run here; the last line of the
output says why.
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

from shortlist.compare.job import CHECKPOINTS, MODEL, Job, Measured
from shortlist.compare.peers.run_peer import CANNOT_RUN, LATENCY_K, end_with_parent, measure_latency, peak_memory
from shortlist.compare.splits import Splits
from shortlist.errors import DataError, MissingExtraError, ShortlistError, Stopped
from shortlist.model import load
from shortlist.recipes import get_recipe
from shortlist.training.train import train

log = logging.getLogger("shortlist")

BULK_WARM_UP_TEXTS, COUNTED_TEXTS = 100, 1000


def run(job: Job) -> None:
    """Train, save, load, predict, measure, and write the results."""
    folder = Path(job.folder)
    splits = Splits.read(job.source, job.seed, job.reading, job.drop_leaks)
    if splits.fingerprint() != job.fingerprint:
        raise DataError(f"{job.source} has changed since the comparison started. Start the comparison again.")
    start = time.perf_counter()
    trained = train(splits.train, job.recipe, ensemble=job.ensemble, **_options(job))
    train_seconds = time.perf_counter() - start
    trained.save(folder / MODEL)
    log.info("trained in %.1f s", train_seconds)
    model = load(folder / MODEL)

    model.rank(splits.inputs[:BULK_WARM_UP_TEXTS], job.k, job.threads)
    start = time.perf_counter()
    ids, scores = model.rank(splits.inputs, job.k, job.threads)
    bulk_seconds = time.perf_counter() - start
    predictions = {"ids": ids, "scores": scores}
    for kind in job.perturbations:
        ids, scores = model.rank(splits.perturbed(kind, job.seed), job.k, job.threads)
        predictions |= {f"{kind}.ids": ids, f"{kind}.scores": scores}
    np.savez(folder / "predictions.npz", **predictions)  # type: ignore[arg-type]
    predict = model.predict if splits.test.features is None else model.rank
    latency = measure_latency(lambda one: predict(one, k=LATENCY_K, threads=1), splits.single_inputs(job.latency_texts))
    measured = Measured(
        train_seconds=train_seconds,
        model_bytes=sum(path.stat().st_size for path in (folder / MODEL).iterdir()),
        bulk_texts_per_second=len(splits.test) / max(bulk_seconds, 1e-9),
        ms_p50=latency["ms_p50"],
        ms_p99=latency["ms_p99"],
        multiply_adds=model.multiply_adds(splits.inputs[:COUNTED_TEXTS]),
        peak_memory_bytes=peak_memory(),
        options=model.options,
        curves=trained.records,
        calibration=model.facts.get("calibration") or {},
        search_effort=model.facts.get("search_effort"),
    )
    (folder / "measured.json").write_bytes(msgspec.json.encode(measured))


def _options(job: Job) -> dict[str, Any]:
    """The options of the entry, and those of the comparison that the recipe knows."""
    folder = Path(job.folder)
    common = {
        "threads": job.threads,
        "seed": job.seed,
        "checkpoint_dir": str(folder / CHECKPOINTS),
        "resume": job.resume,
    }
    known = get_recipe(job.recipe).option_names
    return {name: value for name, value in common.items() if name in known} | job.options


def main(job_file: str) -> int:
    """Run the job and return the exit code."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in processes started in the background
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stderr)
    try:
        run(msgspec.json.decode(Path(job_file).read_bytes(), type=Job))
    except MissingExtraError as error:
        log.error("%s", error)
        return CANNOT_RUN
    except ShortlistError as error:
        log.error("%s", error)
        return 2
    except Stopped as stopped:
        log.info("%s", stopped)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
