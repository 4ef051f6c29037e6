"""What models over words share: the vocabulary, the curves of their training, and a re-ranker behind a first stage."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from shortlist.arrays import Ragged
from shortlist.errors import ModelError
from shortlist.model.base import Model, as_texts
from shortlist.model.folder import ModelReader, ModelWriter
from shortlist.model.reranker import Reranker
from shortlist.text import Tokenizer, Vocabulary

ARRAYS, VOCABULARY, METRICS = "arrays.safetensors", "vocabulary.txt", "metrics.jsonl"


class TextModel(Model):
    """A first stage over word ids; with a re-ranker, its best labels have a second look.

    searched  how many clusters or cells of labels the first stage looks into, at an effort of 1
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        records: list[dict[str, Any]],
        reranker: Reranker | None = None,
        searched: int | None = None,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.vocabulary, self.records, self.reranker, self._searched = vocabulary, records, reranker, searched

    @property
    def most_searched(self) -> int:
        """How many clusters or cells are as good as all of them; 1 where every label is scored."""
        return 1

    @property
    def searched(self) -> int:
        return self._searched or self.most_searched

    @searched.setter
    def searched(self, number: int) -> None:
        self._searched = number

    def _searched_with(self, search_effort: float) -> int:
        return max(1, round(min(search_effort * self.searched, 2**31)))

    @abstractmethod
    def _first_rank(
        self, word_ids: Ragged, k: int, searched: int, threads: int | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k best labels of each text by the first stage, and their probabilities."""

    @abstractmethod
    def _first_scores(self, word_ids: Ragged, ids: np.ndarray, threads: int | None) -> np.ndarray:
        """The probabilities of these labels (texts × K) by the first stage."""

    def _rank(self, inputs: Any, k: int, threads: int | None, search_effort: float) -> tuple[np.ndarray, np.ndarray]:
        texts = as_texts(inputs)
        word_ids = self.vocabulary.encode(texts)
        searched = self._searched_with(search_effort)
        if self.reranker is None:
            return self._first_rank(word_ids, k, searched, threads)
        ids, probabilities = self._first_rank(word_ids, max(k, self.reranker.n_candidates), searched, threads)
        return self.reranker.rerank(texts, word_ids, ids, probabilities, k, threads)

    def _scores(self, inputs: Any, ids: np.ndarray, threads: int | None) -> np.ndarray:
        texts = as_texts(inputs)
        word_ids = self.vocabulary.encode(texts)
        probabilities = self._first_scores(word_ids, ids, threads)
        if self.reranker is None:
            return probabilities
        return self.reranker.scores(texts, word_ids, ids, probabilities, threads)

    @property
    def tokenizer(self) -> Tokenizer | None:
        return self.vocabulary.tokenizer

    def _write_words(self, writer: ModelWriter) -> dict[str, Any]:
        """Put the files of all this in place; what the config should hold."""
        # Without the times: the same training leaves the same files.
        curves = [{name: value for name, value in record.items() if name != "seconds"} for record in self.records]
        writer.lines(METRICS, curves)
        self.vocabulary.save(writer.path(VOCABULARY))
        config: dict[str, Any] = {"vocabulary": self.vocabulary.to_config(), "searched": self.searched}
        if self.reranker is not None:
            config["reranker"] = self.reranker.write(writer)
        return config

    @staticmethod
    def _read_words(reader: ModelReader, n_labels: int) -> dict[str, Any]:
        """The arguments of `TextModel.__init__` again."""
        extra = reader.config.extra
        vocabulary = Vocabulary.from_bytes(reader.content(VOCABULARY), reader.path(VOCABULARY), extra["vocabulary"])
        reranker = None
        if "reranker" in extra:
            reranker = Reranker.read(reader, extra["reranker"], vocabulary, n_labels)
        searched = extra["searched"]
        if isinstance(searched, bool) or not isinstance(searched, int) or not 1 <= searched < 2**31:
            raise ModelError(f"{searched!r:.60} cells are to be searched")
        records = reader.lines(METRICS)
        return {"vocabulary": vocabulary, "records": records, "reranker": reranker, "searched": searched}
