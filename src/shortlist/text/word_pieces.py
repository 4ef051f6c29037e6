"""Word pieces: what a `tokenizer.json` of Hugging Face's `tokenizers` makes of texts. It is data; no code is run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.errors import DataError, import_extra

TOKENIZER_FILE = "tokenizer.json"
TEXTS_PER_BLOCK = 4096


class WordPieces:
    """Texts to the ids of their word pieces.

    content     the bytes of a tokenizer.json
    source      named in error messages
    max_pieces  longest text in pieces, special ones included; None: texts are read to their end
    """

    def __init__(self, content: bytes, source: object, max_pieces: int | None = None) -> None:
        tokenizers = import_extra("tokenizers", f"reading {source}", "transformers")
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its pool of threads does not survive a fork
        try:
            self._tokenizer: Any = tokenizers.Tokenizer.from_buffer(content)
            self._tokenizer.no_padding()
            self._tokenizer.no_truncation()
            if max_pieces is not None:
                self._tokenizer.enable_truncation(max_pieces)
        except Exception as error:  # noqa: BLE001 - the library raises nothing more special
            raise DataError(f"{source}: cannot be used as a tokenizer ({error}).") from None
        self.content = content

    @property
    def n_ids(self) -> int:
        """One more than the largest id."""
        return max(self._tokenizer.get_vocab().values(), default=-1) + 1

    @property
    def unknown_id(self) -> int | None:
        """The id of the piece that stands for whatever is unknown, where there is one."""
        name = getattr(self._tokenizer.model, "unk_token", None) or "<unk>"  # Unigram has no such attribute
        return self._tokenizer.token_to_id(name)

    def encode(self, texts: Sequence[str], special: bool = True) -> Ragged:
        """The ids of each text's pieces; `special`: with the pieces that a model expects around a text."""
        counts, ids = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
        for begin in range(0, len(texts), TEXTS_PER_BLOCK):
            block = list(texts[begin : begin + TEXTS_PER_BLOCK])
            rows = [pieces.ids for pieces in self._tokenizer.encode_batch_fast(block, add_special_tokens=special)]
            counts.append(np.fromiter(map(len, rows), np.int64, len(rows)))
            ids += [np.asarray(row, np.int32) for row in rows]
        return Ragged(counts_to_indptr(np.concatenate(counts)), np.concatenate(ids))
