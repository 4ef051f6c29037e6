"""Cluster a sparse matrix with PECOS's `Indexer`; benchmarks/label_tree.py runs this in the peers' Python.

    python pecos_tree.py MATRIX.npz N_CLUSTERS THREADS REPEATS CLUSTERS.npy

Saves the cluster of each row, and prints one JSON line.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from pecos.xmc import Indexer
from scipy import sparse


def main(matrix_file, n_clusters, threads, repeats, clusters_file):
    rows = sparse.csr_matrix(sparse.load_npz(matrix_file), dtype=np.float32)
    # PECOS halves clusters until none is larger than this. Everything else has its default: spherical, up to 20
    # iterations, no sampling.
    options = {"max_leaf_size": -(-rows.shape[0] // n_clusters), "threads": threads, "seed": 0}
    Indexer.gen(rows[:5000], indexer_type="hierarchicalkmeans", **options)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        chain = Indexer.gen(rows, indexer_type="hierarchicalkmeans", **options)
        seconds.append(time.perf_counter() - start)
    leaves = chain[-1].tocsr()
    np.save(clusters_file, leaves.indices)
    print(json.dumps({"seconds": seconds, "n_clusters": leaves.shape[1]}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
