"""Train Omikuji (Parabel) on dense features; benchmarks/modules.py runs this in the peers' Python.

    python omikuji_features.py FOLDER THREADS

Reads train.npy and test.npy (texts × features) and labels.npz (indptr, values, n_labels). Saves the five best label ids
of each test text as best.npy (-1 for none), and prints the training time as one JSON line.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import omikuji

K = 5


def write_rows(file, features, labels):
    """Write the format of the Extreme Classification Repository, which Omikuji reads."""
    with file.open("w") as out:
        out.write(f"{len(features)} {features.shape[1]} {int(labels['n_labels'])}\n")
        bounds = zip(labels["indptr"][:-1], labels["indptr"][1:], strict=True)
        for row, (begin, end) in zip(features, bounds, strict=True):
            pairs = " ".join(f"{j}:{row[j]:.6f}" for j in np.flatnonzero(row))
            out.write(",".join(map(str, np.sort(labels["values"][begin:end]))) + f" {pairs}\n")


def main(folder, threads):
    train, test = (np.load(folder / f"{name}.npy", allow_pickle=False) for name in ("train", "test"))
    with np.load(folder / "labels.npz", allow_pickle=False) as labels:
        write_rows(folder / "train.txt", train, labels)
    start = time.perf_counter()
    model = omikuji.Model.train_on_data(str(folder / "train.txt"), omikuji.Model.default_hyper_param(), threads)
    seconds = time.perf_counter() - start
    model.init_prediction_thread_pool(threads)
    best = np.full((len(test), K), -1, np.int32)
    for i, row in enumerate(test):
        found = [label for label, _ in model.predict([(int(j), float(row[j])) for j in np.flatnonzero(row)], top_k=K)]
        best[i, : len(found)] = found
    np.save(folder / "best.npy", best)
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
