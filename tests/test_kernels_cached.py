"""Kernels read from numba's cache compute the same bits as kernels compiled in the process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

STEPS = """
import hashlib
import numpy as np
from shortlist.heads import label_rows
from shortlist.arrays import Ragged

label_rows.has_short_products = lambda: False
rng = np.random.default_rng(0)
rows = label_rows.LabelRows.start(40, 543, prior=0.1)
features = rng.standard_normal((9, 543), dtype=np.float32)
positives = Ragged.from_lists([[i] for i in range(9)])
clusters, starts = np.tile(np.arange(8, dtype=np.int32), (9, 1)), np.arange(0, 41, 5)
digest = hashlib.sha256()
for _ in range(3):
    results = rows.step_on_all(features, positives, 0.01, 1), \\
        rows.step_on_clusters(features, clusters, starts, positives, 0.01, 1)
    for loss, gradient in results:
        digest.update(np.float64(loss).tobytes() + gradient.tobytes())
    digest.update(rows.weights.tobytes())
print(digest.hexdigest())
"""


def test_a_run_that_compiles_equals_one_that_does_not(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    command = [sys.executable, "-c", STEPS]
    compiled, cached = (subprocess.check_output(command, env=environment, text=True) for _ in range(2))
    assert compiled == cached
