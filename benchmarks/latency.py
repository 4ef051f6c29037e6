"""How long one text takes: text in, names out, one at a time, one thread; and where the time goes.

    python benchmarks/latency.py MODEL --data DATA/commit-files [--texts 2000] [--peers-python .venv-peers/bin/python]
    python benchmarks/latency.py MODEL --data DATA/commit-files --search-effort 1 0.5 0.25
    python benchmarks/latency.py --synthetic 670000

With --peers-python, Omikuji (as Parabel and as Bonsai) and PECOS predict the same texts in the same run; their models
are trained first if they are not in --peers-models. With several efforts, each has a row, with P@1 on the test part
(labels that the model does not know are ignored). Texts are those of the test part, from its beginning. --synthetic
makes a model of recipe `astec` with so many labels out of random numbers, of the usual shape, and saves, loads and
measures it. Bulk: all texts at once, all cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import shortlist
from shortlist.evaluation.calibration import is_relevant
from shortlist.tables import plain

STAGES = {
    "words to numbers": ("vocabulary", "encode"),
    "features": ("pipeline.encoder", "encode"),
    "features ": ("_network.encoder", "encode"),
    "clusters": ("_network.meta", "logits"),
    "shortlist": ("pipeline.shortlister", "shortlist"),
    "rows": ("pipeline.head", "logits_of"),
    "rows ": ("_network.extreme", "best_of"),
    "words of labels": ("reranker", "rerank"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--data", type=Path, help="folder with a test part, and a train part for the peers")
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--search-effort", type=float, nargs="+", default=[1.0])
    parser.add_argument("--synthetic", type=int, help="so many labels in a model of random numbers")
    parser.add_argument("--peers-python")
    parser.add_argument("--peers-models", type=Path, default=Path("peers-models"))
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if chosen.synthetic:
            chosen.model, texts = synthetic(chosen.synthetic, Path(folder) / "model", chosen.texts)
        else:
            test = shortlist.read(chosen.data, "test")
            texts = [test.texts[i] for i in range(min(chosen.texts, len(test)))]
        start_up(chosen.model)
        model = shortlist.load(chosen.model)
        rows = []
        for search_effort in chosen.search_effort:
            reached = "" if chosen.synthetic else f", P@1 {precision(model, test, search_effort):.2f}"
            rows.append(
                [f"shortlist, effort {search_effort:g}{reached}", *quantiles(times_of(model, texts, search_effort))]
            )
        if chosen.peers_python:
            rows += peers(chosen, texts, Path(folder))
        print(plain(["", "p50 ms", "p90 ms", "p99 ms", "mean ms"], rows))
        print(plain(["where the time goes", "µs a text"], stages(model, texts, chosen.search_effort[0])))
        bulk(model, texts, chosen.search_effort[0])


def start_up(folder):
    """How long a new process takes to import, load and predict once, and how much memory it has then."""
    code = (
        "import time; start = time.perf_counter()\n"
        "import shortlist, sys; model = shortlist.load(sys.argv[1]); loaded = time.perf_counter()\n"
        "model.predict('one text', threads=1); first = time.perf_counter()\n"
        "lines = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "print(loaded - start, first - loaded, lines['VmRSS'].split()[0], lines['RssAnon'].split()[0])\n"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
        for _ in range(5)
    ]
    measured = np.array([[float(value) for value in run.stdout.split()] for run in runs])
    load, first, resident, own = np.median(measured, axis=0)
    size = sum(path.stat().st_size for path in Path(folder).iterdir())
    print(
        f"{folder}: {size / 1e6:.0f} MB; import and load {load:.2f} s, first prediction {1000 * first:.0f} ms (medians "
        f"of 5 processes); then resident {resident / 1e3:.0f} MB, of which not shared files {own / 1e3:.0f} MB"
    )


def precision(model, test, search_effort):
    known = test.relabelled(model.label_names)
    counts = known.labels.counts > 0
    first = model.rank(test.texts, 1, search_effort=search_effort)[0]
    return 100 * is_relevant(first, known.labels, model.n_labels)[counts].mean()


def times_of(model, texts, search_effort):
    for text in texts[:20]:
        model.predict(text, threads=1, search_effort=search_effort)
    times = []
    for text in texts:
        start = time.perf_counter()
        model.predict(text, threads=1, search_effort=search_effort)
        times.append(1000 * (time.perf_counter() - start))
    return times


def quantiles(times):
    return [f"{value:.3f}" for value in (*np.percentile(times, [50, 90, 99]), statistics.mean(times))]


def peers(chosen, texts, folder):
    (folder / "texts.json").write_text(json.dumps(texts))
    script = Path(__file__).parent / "peers" / "one_at_a_time.py"
    train = chosen.data / "train.jsonl.gz"
    command = [chosen.peers_python, script, train, folder / "texts.json", chosen.peers_models]
    run = subprocess.run([*map(str, command), "parabel", "bonsai", "pecos"], capture_output=True, text=True, check=True)
    results = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    return [[result["tool"], *quantiles(result["milliseconds"])] for result in results]


def stages(model, texts, search_effort):
    """Mean time in each stage, by a clock around it; the whole is a little slower for it."""
    spent = {}
    for stage, (path, method) in STAGES.items():
        owner = model
        for name in path.split("."):
            owner = getattr(owner, name, None)
        if owner is not None:
            _clock(owner, method, stage.strip(), spent)
    start = time.perf_counter()
    for text in texts:
        model.predict(text, threads=1, search_effort=search_effort)
    whole = time.perf_counter() - start
    rows = [[stage, f"{1e6 * seconds / len(texts):.0f}"] for stage, seconds in spent.items()]
    rest = whole - sum(spent.values())
    return [*rows, ["everything else", f"{1e6 * rest / len(texts):.0f}"], ["in all", f"{1e6 * whole / len(texts):.0f}"]]


def _clock(owner, method, stage, spent):
    inner = getattr(owner, method)

    def timed(*arguments, **named):
        start = time.perf_counter()
        try:
            return inner(*arguments, **named)
        finally:
            spent[stage] = spent.get(stage, 0.0) + time.perf_counter() - start

    object.__setattr__(owner, method, timed)


def bulk(model, texts, search_effort):
    many = (texts * (1 + 20_000 // len(texts)))[:20_000]
    model.rank(many[:2000], search_effort=search_effort)
    start = time.perf_counter()
    model.rank(many, search_effort=search_effort)
    seconds = time.perf_counter() - start
    print(f"in bulk, all cores: {len(many) / seconds:,.0f} texts a second")


def synthetic(n_labels, folder, n_texts):
    """A model of random numbers with the shape that training gives, and texts for it."""
    from shortlist.arrays import Ragged
    from shortlist.heads.runtime import HeadRuntime
    from shortlist.heads.word_rows import WordRows
    from shortlist.model.deepxml import AstecModel, AstecOptions, Pipeline
    from shortlist.model.reranker import Mixture, Reranker
    from shortlist.shortlisters.cells import CellIndex
    from shortlist.shortlisters.centres import unit
    from shortlist.shortlisters.merged import MergedShortlister
    from shortlist.text import LexicalFeatures, TfIdf, Vocabulary

    rng = np.random.default_rng(0)
    n_words, n_features, per_label, group = 200_000, 300, 60, 50
    words = [f"w{number:x}" for number in range(n_words)]
    vocabulary = Vocabulary(words, np.ones(n_words))
    pieces = Vocabulary([f"{number:04x}" for number in range(30_000)], np.ones(30_000))
    vectors = unit(rng.standard_normal((n_words, n_features), dtype=np.float32))
    arrays = {"encoder.words": vectors, "encoder.idf": np.ones(n_words, np.float32)}
    # Labels are about topics, and a label's centre is near the words it has.
    topics = unit(rng.standard_normal((-(-n_labels // group), n_features), dtype=np.float32))
    centres = unit(np.repeat(topics, group, axis=0)[:n_labels] + vectors[np.arange(n_labels) % n_words])
    arrays |= {"extreme.weights": 4 * centres, "extreme.biases": np.full(n_labels, -6, np.float32)}
    arrays["extreme.block"] = np.zeros((n_features, n_features), np.float32)
    features = LexicalFeatures(
        vocabulary, pieces, TfIdf(np.ones(n_words, np.float32)), TfIdf(np.ones(30_000, np.float32))
    )
    owned = np.sort(rng.integers(features.n_features, size=(n_labels, per_label), dtype=np.int32), axis=1)
    weights = rng.standard_normal(owned.size, dtype=np.float32)
    bounds = np.arange(0, owned.size + 1, per_label)
    rows = WordRows.of_words(bounds, owned.ravel(), weights, np.zeros(n_labels, np.float32), features.n_features)
    start = time.perf_counter()
    index = CellIndex.build(centres)
    print(f"{index} in {time.perf_counter() - start:.0f} s")
    nothing = Ragged(np.zeros(1, np.int64), np.zeros(0, np.int32))
    owner = np.arange(n_labels, dtype=np.int32)
    shortlister = MergedShortlister(index, owner, None, nothing, 50, 0.0, n_labels)
    encoder = AstecModel.Runtime({"words": vectors, "idf": arrays["encoder.idf"]}, 32)
    head = {name.removeprefix("extreme."): array for name, array in arrays.items() if name.startswith("extreme.")}
    pipeline = Pipeline(encoder, shortlister, HeadRuntime(head, n_labels, n_features), 500)
    model = AstecModel(
        pipeline,
        arrays,
        vocabulary=vocabulary,
        records=[],
        reranker=Reranker(features, rows, Mixture(), 100),
        searched=max(1, len(index.cells) // 32),
        label_names=[f"label {number}" for number in range(n_labels)],
        display_names={},
        options=AstecOptions().kept(),
    )
    model.save(folder)
    texts = [" ".join(words[i] for i in rng.integers(n_words, size=9)) for _ in range(n_texts)]
    return folder, texts


if __name__ == "__main__":
    main()
