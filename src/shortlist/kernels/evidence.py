"""What the re-ranker knows about a candidate beside its scores: its name, its frequency, texts with the same words."""

from __future__ import annotations

from shortlist.kernels.native import native
from shortlist.kernels.threads import run_ranges

# Words that more names have say too little to be worth the time.
MAX_NAMES_PER_WORD = 1000
# Log-odds of labels of a training text with the same words, at least (88 %), and of all other labels then, at most.
KNOWN_ABOVE, OTHERS_BELOW = 2.0, 1.9


def hash_bags(words, word_ends, word_counts, hashes):
    """A hash of the words of each text, whatever their order; 0 for a text without words."""
    native.hash_bags(words, word_ends, word_counts, hashes)


def gather_evidence(
    indptr, words, values, name_ptr, name_labels, name_weights, known_ptr, known_labels, n_given, ids, names, known
):
    """Find further candidates by name, and say what is known about all of them.

    `ids` is texts × K: `n_given` candidates, and room for further ones: labels of texts with the same words first, then
    those with the most similar names. `names` gets the similarity of each candidate's name and the text, `known`
    whether the candidate is in the text's list of known labels.
    """
    texts, index = (indptr, words, values), (name_ptr, name_labels, name_weights, known_ptr, known_labels)
    limits, results = (n_given, MAX_NAMES_PER_WORD), (ids, names, known)
    run_ranges(native.gather_evidence, len(ids), 16, *texts, *index, *limits, *results)


def evidence_odds(ids, probabilities, word_scores, names, parts, known, is_known, frequencies, weights, surest, odds):
    """The weighted sum of all evidence for each candidate (see `Mixture`); −∞ where there is none.

    `parts` is empty where names have no parts. Labels of a text with the same words always come first: they stay above
    a bound, and all others below it. Far from the bound nothing changes, so that scores remain probabilities.
    """
    evidence = ids, probabilities, word_scores, names, parts, known, is_known, frequencies
    native.evidence_odds(*evidence, weights, surest, KNOWN_ABOVE, OTHERS_BELOW, odds)
