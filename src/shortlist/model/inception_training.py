"""Training for recipes whose encoder and labels' rows learn together: data in, settings chosen, a model out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from shortlist.data.dataset import Dataset
from shortlist.errors import OptionError
from shortlist.model.finish import finish
from shortlist.model.inception import InceptionModel, InceptionPlusOptions, JointOptions
from shortlist.model.new_encoders import ENCODERS, SIZES
from shortlist.model.options import check_options, filled, size_of
from shortlist.model.prepared import Prepared, need_texts, show_settings
from shortlist.training.batches import WordBatches
from shortlist.training.checkpoints import Checkpoints
from shortlist.training.learner import Learner, Shortlisting
from shortlist.training.loop import Plan, fit, tensorboard_writer
from shortlist.training.memory import need_memory

# Small clusters are the more accurate, and cost more the more there are of them.
LABELS_PER_CLUSTER, LABELS_PER_CLUSTER_OF_MANY, MANY_CLUSTERS = 8, 16, 8192
CANDIDATES = 1600  # labels that a text sees
AnyInception = TypeVar("AnyInception", bound=InceptionModel)
AnyJoint = TypeVar("AnyJoint", bound=JointOptions)


def train_inception(model_class: type[AnyInception], dataset: Dataset, options: JointOptions) -> AnyInception:
    """Train a model of any of these recipes."""
    need_texts(dataset, model_class.recipe)
    options = chosen(options, len(dataset), dataset.n_labels)
    _check(options)
    show_settings(options)
    if options.checkpoints and not options.resume:
        Checkpoints(options.checkpoints, {}).refuse_to_overwrite()  # before the work, not after it
    prepared = Prepared(dataset, options)
    need_memory(
        memory_of(model_class, prepared, options),
        "Smaller dimensions or channels, bag=false, or a larger min_count need less.",
    )
    shortlisting = None
    if isinstance(options, InceptionPlusOptions):
        tree = prepared.tree(int(options.clusters or 1))
        shortlisting = Shortlisting(tree, int(options.top or 1), options.form == "lightxml")
    encoder = ENCODERS[model_class.encoder].new(prepared, options)
    learner = Learner(
        encoder,
        dataset.n_labels,
        len(dataset.labels.values) / len(dataset),
        shortlisting,
        options.seed,
        options.threads,
        options.device,
    )
    fixed = {} if shortlisting is None else {f"tree.{k}": v for k, v in shortlisting.tree.to_arrays().items()}
    checkpoints = prepared.checkpoints(model_class.recipe)
    arrays, records = fit(
        learner,
        Plan(
            int(options.epochs or 0),
            int(options.batch_size or 1),
            float(options.rate or 0),
            getattr(options, "detached", 0.0),
            options.patience,
            options.seed,
        ),
        WordBatches(
            prepared.word_ids,
            prepared.labels,
            options.max_words,
            encoder.padding,
            getattr(options, "shuffle", False),
        ),
        _validator(model_class, prepared, options, fixed) if len(prepared.validation) else None,
        checkpoints,
        options.resume,
        tensorboard=tensorboard_writer(Path(options.checkpoints) / "tensorboard") if checkpoints else None,
    )
    arrays |= fixed
    network = model_class.at_work(arrays, options.kept(), dataset.n_labels)
    top = int(getattr(options, "top", 0) or 0)
    reranker = prepared.reranker(lambda word_ids, k: network.rank(word_ids, k, top, options.threads))
    model = model_class(arrays, **prepared.of_texts(records, reranker))
    finish(model, prepared)
    return model


def chosen(options: AnyJoint, n_texts: int, n_labels: int) -> AnyJoint:
    """The options with everything that was left open chosen from the size of the data; docs/lab-book.md says why."""
    size = size_of(n_texts)
    values: dict[str, Any] = {
        "epochs": round(min(max(40 * size**-0.5, 5), 60)),
        "batch_size": 128 if n_texts < 200_000 else 256,
        "rate": 0.004,
        "dropout": round(min(max(0.85 - 0.27 * float(np.log10(size)), 0.25), 0.9), 2),
        "validation": min(0.05, 5000 / n_texts),
    }
    if isinstance(options, InceptionPlusOptions):
        of_many = max(-(-n_labels // LABELS_PER_CLUSTER_OF_MANY), MANY_CLUSTERS)
        n_clusters = min(options.clusters or -(-n_labels // LABELS_PER_CLUSTER), options.clusters or of_many, n_labels)
        top = min(max(-(-CANDIDATES * n_clusters // n_labels), 1), n_clusters)
        values |= {"clusters": n_clusters, "top": top}
    return filled(options, values)


def _check(options: JointOptions) -> None:
    check_options(options, ("epochs", "batch_size", "clusters", "top", *SIZES), ("dropout",), ("rate",))
    if not 0 <= getattr(options, "detached", 0.0) <= 1:
        raise OptionError(f"detached is {options.detached}; it is a share, from 0 to 1")  # type: ignore[attr-defined]
    if getattr(options, "form", "synchronised") not in ("synchronised", "lightxml"):
        raise OptionError(f"form is {options.form!r}; it is synchronised or lightxml")  # type: ignore[attr-defined]


def memory_of(model_class: type[InceptionModel], prepared: Prepared, options: JointOptions) -> dict[str, int]:
    """Bytes for what is large, beside the texts, which are there already."""
    kind = ENCODERS[model_class.encoder]
    n_features = kind.n_features(prepared, options)
    n_clusters = getattr(options, "clusters", 0) or 0
    n_rows, batch = prepared.n_labels + n_clusters, int(options.batch_size or 1)
    return {
        # Twice: where the best epoch is not the last, it is read back beside it.
        "label rows": 2 * 4 * n_rows * n_features + 16 * n_rows,
        # Twice: as they are learnt, and as they are trained.
        "word vectors": 2 * 4 * len(prepared.vocabulary) * options.dimensions,
        "a batch": 4 * batch * (kind.per_text(options) + n_clusters + 3 * n_features),
    }


def _validator(
    model_class: type[InceptionModel], prepared: Prepared, options: JointOptions, fixed: dict[str, np.ndarray]
) -> Any:
    """A function that measures arrays on the part held out."""

    def validate(arrays: dict[str, np.ndarray]) -> dict[str, float]:
        network = model_class.at_work(arrays | fixed, options.kept(), prepared.n_labels)
        top = int(getattr(options, "top", 0) or 0)
        scores = prepared.measure(network.rank(prepared.validation_ids, 5, top, options.threads)[0])
        if network.tree is not None:
            labels = prepared.validation_labels
            best = network.best_cluster(prepared.validation_ids)[labels.row_ids]
            right = network.tree.cluster_of_label[labels.values] == best
            hits = np.bincount(labels.row_ids[right], minlength=len(labels)) > 0
            scores["meta_P@1"] = 100 * float(hits.mean())
        return scores

    return validate
