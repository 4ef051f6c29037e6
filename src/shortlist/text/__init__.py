"""Texts as numbers: tokenizer, vocabulary, sparse features, word vectors."""

from typing import TYPE_CHECKING, Any

from shortlist.text.features import LexicalFeatures, TfIdf
from shortlist.text.tokenizer import Tokenizer
from shortlist.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from shortlist.text.learnt_vectors import learn_vectors
    from shortlist.text.pretrained_vectors import load_vectors

__all__ = ["LexicalFeatures", "TfIdf", "Tokenizer", "Vocabulary", "learn_vectors", "load_vectors"]


def __getattr__(name: str) -> Any:  # only training needs these, and a prediction should not wait for their import
    if name == "learn_vectors":
        from shortlist.text.learnt_vectors import learn_vectors

        return learn_vectors
    if name == "load_vectors":
        from shortlist.text.pretrained_vectors import load_vectors

        return load_vectors
    raise AttributeError(f"module 'shortlist.text' has no attribute {name!r}")
