"""Texts as numbers: tokenizer, vocabulary, sparse features, word vectors."""

from typing import TYPE_CHECKING

from shortlist.lazy import names_from
from shortlist.text.features import LexicalFeatures, TfIdf
from shortlist.text.tokenizer import Tokenizer
from shortlist.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from shortlist.text.learnt_vectors import learn_vectors
    from shortlist.text.pretrained_vectors import load_vectors

__all__ = ["LexicalFeatures", "TfIdf", "Tokenizer", "Vocabulary", "learn_vectors", "load_vectors"]

# Only training needs these, and a prediction should not wait for their import.
__getattr__ = names_from(
    __name__,
    {
        "shortlist.text.learnt_vectors": ("learn_vectors",),
        "shortlist.text.pretrained_vectors": ("load_vectors",),
    },
)
