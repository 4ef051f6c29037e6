"""A model under construction: what the phases of training pass on to each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.arrays import Arrays, Ragged
from shortlist.data.storage import is_url
from shortlist.recipes.options import Options
from shortlist.recipes.recipe import Recipe
from shortlist.stages.candidates import AllLabels, CandidateStage
from shortlist.stages.classifier import Classifier
from shortlist.stages.encoders import Encoder, NoEncoder
from shortlist.stages.pipeline import Pipeline
from shortlist.training.budget import Budget
from shortlist.training.data import TrainingData
from shortlist.training.group import ALONE, Group, Shard
from shortlist.training.sharding import EncodedTexts, ShardedPipeline


@dataclass
class Build:
    """Stages that are learnt already, and what later phases need.

    features         the training texts, encoded
    candidates_of    candidates of the training texts (texts × K), and their evidence where it is known
    own_candidates   of several workers: those that are rows of this one
    hard_negatives   the candidates that the classifier ranks best for the training texts; the re-ranker learns on them
    held_out_ranked  (ids, scores): the ranking of the held-out texts by a model that had not learnt from them, where
                     the final one has
    search_effort    how much predictions search, once it is chosen
    records          the training curves
    group, shard     the workers that train together, and the labels of this one; None: all labels
    budget           the time for training, if that is limited
    """

    recipe: Recipe
    data: TrainingData
    options: Options
    encoder: Encoder = field(default_factory=lambda: NoEncoder({}))
    candidates: CandidateStage = field(default_factory=AllLabels)
    classifier: Classifier | None = None
    features: np.ndarray | EncodedTexts | None = None
    candidates_of: tuple[np.ndarray, np.ndarray | None] | None = None
    own_candidates: Ragged | None = None
    hard_negatives: np.ndarray | None = None
    held_out_ranked: tuple[np.ndarray, np.ndarray] | None = None
    search_effort: dict[str, Any] | None = None
    records: list[dict[str, Any]] = field(default_factory=list)
    group: Group = ALONE
    shard: Shard | None = None
    budget: Budget | None = None

    @property
    def pipeline(self) -> Pipeline:
        """The stages so far, strung together."""
        assert self.classifier is not None
        vocabulary = self.data.vocabulary if self.encoder.n_words else None
        kind = Pipeline if self.shard is None else ShardedPipeline
        return kind(vocabulary, self.encoder, self.candidates, self.classifier)

    def encoded_texts(self) -> np.ndarray | EncodedTexts:
        """The features of the training texts; of several workers, each computes those that it needs."""
        if self.shard is None:
            return self.encoder.encode(self.data.inputs)
        return EncodedTexts(self.encoder, self.data.inputs)

    @property
    def own_labels(self) -> Ragged:
        """The labels of the training texts; of several workers, the rows of this one."""
        labels = self.data.labels
        if self.shard is None:
            return labels
        rows = self.shard.row_of_label[labels.values]
        return Ragged(labels.indptr, rows, labels.weights).keep(rows >= 0)

    def fit(
        self,
        phase: str,
        learner: Any,
        batches: Any,
        validation: Any,
        n_epochs: int,
        learning_rate: float,
        detach_fraction: float = 0.0,
        seed: int | None = None,
        decay_epoch: int | None = None,
    ) -> Arrays:
        """Run the training loop for one phase, with checkpoints of its own; the arrays of the best epoch.

        seed, decay_epoch  those of the phase, if not of the options
        """
        from shortlist.training.checkpoints import checkpoints_of
        from shortlist.training.loop import Schedule, fit, tensorboard_writer

        options, checkpoints, tensorboard = self.options, None, None
        if options.checkpoint_dir:
            identity = {"recipe": self.recipe.name, **options.model_options(), "data": self.data.dataset.fingerprint()}
            checkpoints = checkpoints_of(phase, identity, options, self.group)
            if self.group.rank == 0 and not is_url(options.checkpoint_dir):
                tensorboard = tensorboard_writer(Path(options.checkpoint_dir) / "tensorboard" / phase)
        schedule = Schedule(
            n_epochs,
            options.batch_size,
            learning_rate,
            detach_fraction,
            options.patience,
            options.seed if seed is None else seed,
            options.schedule,
            options.decay_epoch if decay_epoch is None else decay_epoch,
        )
        validation = validation if len(self.data.held_out) else None
        arrays, records = fit(
            learner,
            schedule,
            batches,
            validation,
            checkpoints,
            options.resume,
            tensorboard=tensorboard,
            budget=self.budget,
        )
        self.records += [{"phase": phase, **record} for record in records]
        return arrays
