"""Training at the size of AmazonTitles-3M: 2,812,281 labels, 1.7 million texts, 131,072 clusters; time and memory.

    python benchmarks/scale.py [--minutes 3] [--labels 2812281] [--texts 1717899] [--clusters 131072]

The data is random, so only the costs matter. After the given minutes of training, the process sends itself Ctrl-C,
training saves a checkpoint as usual, and the script prints the last log lines and the peak memory.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import shortlist
from common import make_parser, peak_gb, print_json, show, timed
from shortlist.errors import Stopped
from shortlist.progress import Progress
from synthetic import random_dataset


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--labels", type=int, default=2_812_281)
    parser.add_argument("--texts", type=int, default=1_717_899)
    parser.add_argument("--clusters", type=int, default=131_072)
    parser.add_argument("--words", type=int, default=500_000, help="size of the vocabulary")
    parser.add_argument("--minutes", type=float, default=3.0, help="training time before Ctrl-C")
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in processes started in the background
    Progress.bars = False  # log lines instead, also on a terminal
    lines = Lines()
    logging.basicConfig(handlers=[lines, logging.StreamHandler(sys.stderr)], format="%(message)s", level=logging.INFO)
    seconds, data = timed(lambda: random_dataset(arguments.texts, arguments.labels, arguments.words))
    print(f"{data}, made in {seconds:.0f} s; peak memory so far {peak_gb():.1f} GB", flush=True)
    threading.Thread(target=interrupt_after, args=(lines, 60 * arguments.minutes), daemon=True).start()
    options = {"n_clusters": arguments.clusters, "bag": False, "label_texts": False, "threads": arguments.threads}
    with tempfile.TemporaryDirectory() as folder:
        seconds, end = timed(lambda: train(data, checkpoint_dir=str(Path(folder) / "checkpoints"), **options))
        checkpoint_gb = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / 1e9
    result = {"end": end, "s": round(seconds), "checkpoint GB": checkpoint_gb, "peak GB": round(peak_gb(), 2)}
    show([result])
    print_json("scale", **vars(arguments), **result, log=lines.lines[-4:])


def train(data, **options) -> str:
    try:
        shortlist.train(data, "inceptionxml+", **options)
    except Stopped:
        return "interrupted"
    except KeyboardInterrupt:
        return "interrupted before the first step"
    return "finished"


class Lines(logging.Handler):
    """Keeps the log lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def interrupt_after(lines: Lines, seconds: float) -> None:
    """Send Ctrl-C some time after the first progress line of the first epoch."""
    while not any(line.startswith("epoch") for line in lines.lines):
        time.sleep(1)
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    main()
