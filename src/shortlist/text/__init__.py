"""From texts to numbers: words, vocabularies, bags of words, word vectors."""

from shortlist.text.bag import TfIdf
from shortlist.text.learnt_vectors import learn_vectors
from shortlist.text.tokenizer import Tokenizer
from shortlist.text.vectors import load_vectors
from shortlist.text.vocabulary import Vocabulary

__all__ = ["TfIdf", "Tokenizer", "Vocabulary", "learn_vectors", "load_vectors"]
