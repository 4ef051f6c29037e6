"""Cluster a sparse matrix with PECOS's `Indexer`; run by `benchmarks/label_tree.py` inside the peers' environment.

    python pecos_tree.py MATRIX.npz N_CLUSTERS THREADS REPEATS CLUSTERS.npy

Prints one JSON line, and saves the cluster of each row.
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
    # PECOS halves until leaves are no larger than this. Everything else stays at its defaults: spherical,
    # up to 20 iterations, no sampling.
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
