"""Batch prediction on Ray against `shortlist predict` on the same cores.

    python benchmarks/cluster_predict.py [--texts 200000] [--labels 50000] [--cores 2] [--model FOLDER --in FILE]

Both predict the same JSON lines with the same model, an `astec` model of random numbers unless one is given: one
process with a thread per core, and one Ray process per core on this machine. The ratio is Ray's rate over ours. Times
are CPU times of all processes, without those of starting Ray and its workers, and wall times.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import psutil

from common import make_parser, print_json, show
from shortlist.batch.output import ResumableOutput, job_identity
from shortlist.batch.predict import JsonLines, predict_rows
from shortlist.cluster.connection import connected
from shortlist.cluster.predict import PredictJob, predict_files
from shortlist.data.rows import RowOptions, RowSource
from shortlist.model import load
from synthetic import astec_model

ONE, RAY = "shortlist predict", "shortlist predict --cluster"


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--texts", type=int, default=200_000)
    parser.add_argument("--labels", type=int, default=50_000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--rows-per-part", type=int, default=16_384)
    parser.add_argument("--model", help="model folder, instead of a synthetic one")
    parser.add_argument("--in", dest="source", help="JSON lines for that model")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, files = prepare(arguments, folder)
        results = [
            {"system": system, "texts": arguments.texts, "s": wall, "cpu s": cpu, "texts / s": arguments.texts / wall}
            for system, (wall, cpu) in (
                (ONE, one_machine(model, files, arguments)),
                (RAY, ray(model, files, arguments)),
            )
        ]
        same = all(
            (folder / f"one-{file.name}").read_bytes()
            == b"".join(part.read_bytes() for part in sorted((folder / "ray").glob(f"part-{i:05}-*")))
            for i, file in enumerate(files)
        )
    ratios = {name: results[0][name] / results[1][name] for name in ("s", "cpu s")}
    show([{**result, "rate": results[0]["cpu s"] / result["cpu s"]} for result in results])
    print(
        f"rate of Ray over one process: {ratios['s']:.2f} by the clock, {ratios['cpu s']:.2f} by CPU time; same: {same}"
    )
    print_json("cluster_predict", **vars(arguments), results=results, ratio=ratios, same_output=same)


def prepare(arguments, folder: Path) -> tuple[Path, list[Path]]:
    """The model folder, and the texts in several files."""
    if arguments.model:
        lines = Path(arguments.source).read_text().splitlines()[: arguments.texts]
        arguments.texts, model = len(lines), Path(arguments.model)
    else:
        model = folder / "model"
        texts = astec_model(arguments.labels, model, arguments.texts)
        lines = [json.dumps({"id": i, "text": text}) for i, text in enumerate(texts)]
    files = [folder / f"in{i}.jsonl" for i in range(arguments.files)]
    for i, file in enumerate(files):
        share = lines[len(lines) * i // len(files) : len(lines) * (i + 1) // len(files)]
        file.write_text("".join(f"{line}\n" for line in share))
    return model, files


def one_machine(model: Path, files: list[Path], arguments) -> tuple[float, float]:
    loaded = load(model)
    loaded.warm_up(arguments.cores)
    start, cpu = time.perf_counter(), time.process_time()
    for file in files:
        source, encode = RowSource(file, None, RowOptions(id="id")), JsonLines("line", True, False)
        out = file.with_name(f"one-{file.name}")
        with ResumableOutput(out, encode, job_identity(source.fingerprint, model, {})) as output:
            predict_rows(loaded, source, output, k=5, threads=arguments.cores)
            output.finish()
    return time.perf_counter() - start, time.process_time() - cpu


def ray(model: Path, files: list[Path], arguments) -> tuple[float, float]:
    """A first job with a few rows starts Ray's processes for reading; its time counts as that of starting."""
    few, out = files[0].with_name("few.jsonl"), files[0].with_name("ray")
    few.write_text("".join(files[0].read_text().splitlines(keepends=True)[:100]))
    options = RowOptions(id="id"), {"k": 5, "threads": 1}
    more = {"with_text": False, "rows_per_part": arguments.rows_per_part}
    with connected("local", num_cpus=arguments.cores, object_store_memory=200 << 20):
        times = []
        for some, to in (([few], out.with_name("few")), (files, out)):
            start, cpu = time.perf_counter(), cpu_of_all()
            predict_files(PredictJob(str(model), [str(file) for file in some], str(to), "jsonl", *options, **more))
            times.append((time.perf_counter() - start, cpu_of_all() - cpu))
    (wall_start, cpu_start), (wall, cpu) = times
    print(f"Ray's start with 100 rows: {wall_start:.1f} s, {cpu_start:.1f} s of CPU (subtracted)", flush=True)
    if min(wall - wall_start, cpu - cpu_start) < 0.5 * wall_start:
        raise SystemExit("Too few texts: Ray's start took longer than the predictions. Use more --texts.")
    return wall - wall_start, cpu - cpu_start


def cpu_of_all() -> float:
    """CPU seconds of this process and all below it, those that have ended included."""
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


if __name__ == "__main__":
    main()
