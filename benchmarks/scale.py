"""Training at the shape of AmazonTitles-3M: 2,812,281 labels, 1.7 million texts, 131,072 clusters; time and memory.

    python benchmarks/scale.py [--minutes 3] [--labels 2812281] [--texts 1717899] [--clusters 131072]

The data is random: what is learnt means nothing, what it costs does. After so many minutes of training Ctrl-C comes,
the training is saved as for a user, and the script tells texts a second and the largest memory of the process.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import resource
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import shortlist
from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.data.texts import Texts
from shortlist.errors import Stopped

DIGITS = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=2_812_281)
    parser.add_argument("--texts", type=int, default=1_717_899)
    parser.add_argument("--clusters", type=int, default=131_072)
    parser.add_argument("--words", type=int, default=500_000)
    parser.add_argument("--minutes", type=float, default=3.0, help="of training, before Ctrl-C")
    parser.add_argument("--threads", type=int)
    chosen = parser.parse_args()
    lines = Lines()
    logging.basicConfig(handlers=[lines, logging.StreamHandler(sys.stderr)], format="%(message)s", level=logging.INFO)
    start = time.perf_counter()
    data = random_data(chosen.texts, chosen.labels, chosen.words)
    print(f"{data} made in {time.perf_counter() - start:.0f} s, {peak():.1f} GB so far", flush=True)
    threading.Thread(target=interrupt_after, args=(lines, 60 * chosen.minutes), daemon=True).start()
    start = time.perf_counter()
    options = {"clusters": chosen.clusters, "bag": False, "label_texts": False, "threads": chosen.threads}
    with tempfile.TemporaryDirectory() as folder:
        try:
            shortlist.train(data, "inceptionxml+", checkpoints=str(Path(folder) / "c"), **options)
            end = "finished"
        except Stopped as stopped:
            end = re.sub(r"/\S+/", "…/", str(stopped))
        saved = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / 1e9
    print(f"{end}; {time.perf_counter() - start:.0f} s; checkpoint {saved:.1f} GB; peak {peak():.1f} GB")
    print(json.dumps({"benchmark": "scale", **vars(chosen), "peak_gb": round(peak(), 2), "log": lines.lines[-4:]}))


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def interrupt_after(lines: Lines, seconds: float) -> None:
    """Ctrl-C, so long after the memory was counted, which is where training begins."""
    while not any(line.startswith("memory:") for line in lines.lines):
        time.sleep(1)
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGINT)


def random_data(n_texts: int, n_labels: int, n_words: int) -> shortlist.Dataset:
    """Texts of about nine words, with frequencies as in language; two or three labels each."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.poisson(9, n_texts), 1, 32)
    words = np.minimum(n_words * rng.random(lengths.sum()) ** 4, n_words - 1).astype(np.int64)
    letters = np.empty((len(words), DIGITS + 1), np.uint8)
    for place in range(DIGITS):
        letters[:, DIGITS - 1 - place] = ord("a") + words // 10**place % 10
    letters[:, DIGITS] = ord(" ")
    texts = Texts(letters.reshape(-1), counts_to_indptr(lengths) * (DIGITS + 1))
    per_text = 1 + rng.poisson(1.5, n_texts)
    labels = rng.integers(0, n_labels, per_text.sum(), dtype=np.int32)
    return shortlist.Dataset(texts, Ragged(counts_to_indptr(per_text), labels), [f"label {i}" for i in range(n_labels)])


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    main()
