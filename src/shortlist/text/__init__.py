"""From texts to numbers: words, vocabularies, bags of words, word vectors."""

from shortlist.text.bag import TfIdf
from shortlist.text.tokenizer import Tokenizer
from shortlist.text.vocabulary import Vocabulary

__all__ = ["TfIdf", "Tokenizer", "Vocabulary"]
