"""From file to word ids: ours against scikit-learn's TfidfVectorizer on the same texts, in one run.

    python benchmarks/reading.py DATA/train.jsonl.gz

Ours opens the file, parses it, and numbers labels and words. The opponent gets the texts as a list. The sides take
turns, and the median of the repeats counts. The ratio is the opponent's time over ours.
"""

from __future__ import annotations

from pathlib import Path

import shortlist
from common import make_parser, peak_gb, print_json, show, take_turns
from shortlist.text import Vocabulary


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("path", type=Path, help="a JSON lines file of texts and labels")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()

    def read():
        return shortlist.read(arguments.path, show_progress=False)

    texts = read().texts
    Vocabulary.build_and_encode(texts)
    peak_mb = round(1000 * peak_gb())  # before the opponent needs memory

    from sklearn.feature_extraction.text import TfidfVectorizer

    strings = list(texts)
    seconds = take_turns(
        {
            "Shortlist: file to texts and labels": read,
            "Shortlist: texts to vocabulary and word ids": lambda: Vocabulary.build_and_encode(texts),
            "scikit-learn TfidfVectorizer": lambda: TfidfVectorizer().fit_transform(strings),
        },
        arguments.repeats,
    )
    *ours, sklearn = seconds.values()
    print(f"{len(texts):,} texts from {arguments.path} ({arguments.path.stat().st_size / 1e6:.0f} MB)\n")
    show([{"": name, "seconds": round(side, 3)} for name, side in seconds.items()])
    print(f"\npeak memory of our side: {peak_mb:,} MB, including Python and numpy")
    print_json("reading", ratio=sklearn / sum(ours), ours_s=sum(ours), sklearn_s=sklearn, peak_mb=peak_mb)


if __name__ == "__main__":
    main()
