"""From file to word ids: Shortlist against scikit-learn's TfidfVectorizer on the same texts, in the same run.

    python benchmarks/reading.py DATA/train.jsonl.gz

Shortlist reads and parses the file and numbers labels and words. scikit-learn gets the texts as a list in memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from pathlib import Path


def measure_ours(path: str) -> tuple[float, float]:
    import shortlist
    from shortlist.text import Vocabulary

    start = time.perf_counter()
    dataset = shortlist.read(path, show_progress=False)
    read = time.perf_counter()
    Vocabulary.build_and_encode(dataset.texts)
    return read - start, time.perf_counter() - read


def measure_sklearn(texts: list[str]) -> float:
    from sklearn.feature_extraction.text import TfidfVectorizer

    start = time.perf_counter()
    TfidfVectorizer().fit_transform(texts)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", help="JSON lines file of texts and labels")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()

    measure_ours(arguments.path)  # compile the kernels, or load them from the cache
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    import shortlist

    texts = list(shortlist.read(arguments.path, show_progress=False).texts)
    ours, others = [], []
    for _ in range(arguments.repeats):  # alternate, so that a busy moment affects both
        ours.append(measure_ours(arguments.path))
        others.append(measure_sklearn(texts))
    read, encode = (statistics.median(times) for times in zip(*ours, strict=True))
    total, other = statistics.median(map(sum, ours)), statistics.median(others)
    file_mb = Path(arguments.path).stat().st_size / 1e6

    print(f"{len(texts):,} texts from {arguments.path} ({file_mb:.0f} MB on disk), median of {arguments.repeats}")
    print(f"{'':44}{'seconds':>8}")
    print(f"{'shortlist: file to labels and texts':44}{read:8.2f}")
    print(f"{'shortlist: texts to vocabulary and word ids':44}{encode:8.2f}")
    print(f"{'shortlist: both':44}{total:8.2f}")
    print(f"{'scikit-learn TfidfVectorizer, texts in memory':44}{other:8.2f}")
    print(f"peak memory of Shortlist: {peak_mb:.0f} MB (Python and numba included)")
    print(json.dumps({"ratio": other / total, "ours_s": total, "sklearn_s": other, "peak_mb": peak_mb}))


if __name__ == "__main__":
    main()
