"""Texts as numbers: tokenizer, vocabulary, sparse features, word vectors."""

from shortlist.text.features import LexicalFeatures, TfIdf
from shortlist.text.learnt_vectors import learn_vectors
from shortlist.text.pretrained_vectors import load_vectors
from shortlist.text.tokenizer import Tokenizer
from shortlist.text.vocabulary import Vocabulary

__all__ = ["LexicalFeatures", "TfIdf", "Tokenizer", "Vocabulary", "learn_vectors", "load_vectors"]
