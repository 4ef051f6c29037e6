"""What models over words share: the vocabulary, the curves of their training, and a re-ranker behind a first stage."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from shortlist.model.base import Model, as_texts
from shortlist.model.folder import ModelReader, ModelWriter
from shortlist.model.reranker import Reranker
from shortlist.ragged import Ragged
from shortlist.text import Vocabulary

ARRAYS, VOCABULARY, METRICS = "arrays.safetensors", "vocabulary.txt", "metrics.jsonl"


class TextModel(Model):
    """A first stage over word ids; with a re-ranker, its best labels have a second look."""

    def __init__(
        self, vocabulary: Vocabulary, records: list[dict[str, Any]], reranker: Reranker | None, **common: Any
    ) -> None:
        super().__init__(**common)
        self.vocabulary, self.records, self.reranker = vocabulary, records, reranker

    @abstractmethod
    def _first_rank(self, word_ids: Ragged, k: int, threads: int | None) -> tuple[np.ndarray, np.ndarray]:
        """The k best labels of each text by the first stage, and their probabilities."""

    def rank(self, inputs: Any, k: int, threads: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        texts = as_texts(inputs)
        word_ids = self.vocabulary.encode(texts)
        if self.reranker is None:
            return self._first_rank(word_ids, k, threads)
        ids, probabilities = self._first_rank(word_ids, max(k, self.reranker.n_candidates), threads)
        return self.reranker.rerank(texts, word_ids, ids, probabilities, k, threads)

    def _write_words(self, writer: ModelWriter) -> dict[str, Any]:
        """Put the files of all this in place; what the config should hold."""
        # Without the times: the same training leaves the same files.
        curves = [{name: value for name, value in record.items() if name != "seconds"} for record in self.records]
        writer.lines(METRICS, curves)
        self.vocabulary.save(writer.path(VOCABULARY))
        config: dict[str, Any] = {"vocabulary": self.vocabulary.to_config()}
        if self.reranker is not None:
            config["reranker"] = self.reranker.write(writer)
        return config

    @staticmethod
    def _read_words(reader: ModelReader, n_labels: int) -> tuple[Vocabulary, list[dict[str, Any]], Reranker | None]:
        """The vocabulary, the curves and the re-ranker again."""
        extra = reader.config.extra
        vocabulary = Vocabulary.load(reader.path(VOCABULARY), extra["vocabulary"])
        reranker = None
        if "reranker" in extra:
            reranker = Reranker.read(reader, extra["reranker"], vocabulary, n_labels)
        return vocabulary, reader.lines(METRICS), reranker
