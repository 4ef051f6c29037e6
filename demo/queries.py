"""Ask a model of the demo's data what a person would ask, and count the answers that a person would accept.

    python demo/queries.py demo-output

`queries.json` has questions in lay words, each with the names of all terms that answer it. They were written before the
first model was asked. A question is answered if one of the first three labels is acceptable. A question is in reach if
the training data could teach it: each of its words, or one with the same first four letters, occurs in a training text
of an acceptable term. "Sunburns easily" is not: the ontology says "sun sensitivity".
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import shortlist
from shortlist.model import Model
from shortlist.model.prediction import Prediction

N_ANSWERS = 3
LETTERS = 4
# Words that change nothing about what is asked.
SMALL_WORDS = set("a an and at in is my of on one or the to while with".split())


class Asked(NamedTuple):
    text: str
    acceptable: list[str]
    in_reach: bool
    answers: list[Prediction]

    @property
    def is_answered(self) -> bool:
        return any(answer.name in self.acceptable for answer in self.answers)

    @property
    def wrong(self) -> list[Prediction]:
        return [answer for answer in self.answers if answer.name not in self.acceptable]


def ask(model: Model, train: shortlist.Dataset) -> list[Asked]:
    """The questions with the model's answers."""
    questions = json.loads(Path(__file__).with_name("queries.json").read_text(encoding="utf-8"))
    taught = beginnings_by_name(train, {name for names in questions.values() for name in names})
    asked = []
    for text, acceptable in questions.items():
        known = set().union(*(taught[name] for name in acceptable))
        in_reach = beginnings(text) <= known
        asked.append(Asked(text, acceptable, in_reach, model.predict(text, k=N_ANSWERS)))
    return asked


def beginnings_by_name(train: shortlist.Dataset, names: set[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for row, text in enumerate(train.texts):
        for label in train.labels_of(row):
            if (name := train.display_name(label)) in names:
                found[name] |= beginnings(text)
    return found


def beginnings(text: str) -> set[str]:
    return {word[:LETTERS] for word in re.findall(r"\w+", text.lower()) if word not in SMALL_WORDS}


def summary(asked: list[Asked]) -> str:
    """Three lines."""
    wrong = [answer.score for one in asked for answer in one.wrong]
    in_reach = [one for one in asked if one.in_reach]
    return (
        f"Of {len(asked)} questions in lay words, {sum(one.is_answered for one in asked)} have a right answer among "
        f"the first {N_ANSWERS};\nof the {len(in_reach)} whose words the ontology uses, "
        f"{sum(one.is_answered for one in in_reach)}.\n"
        f"Wrong answers have a mean score of {sum(wrong) / len(wrong):.2f}; the largest is {max(wrong):.2f}."
    )


def main(folder: Path) -> None:
    asked = ask(shortlist.load(folder / "model"), shortlist.read(folder / "data", "train"))
    for one in asked:
        print(f"{'right' if one.is_answered else 'WRONG'}  {one.text}{'' if one.in_reach else '  (out of reach)'}")
        for answer in one.answers:
            print(f"       {answer.score:.2f} {'+' if answer.name in one.acceptable else ' '} {answer.name}")
    print(summary(asked))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
