"""A data set for `trust.py`: short medical phrases and their ICD-10-CM codes, built without a download.

    python benchmarks/icd10.py FOLDER

Each code of the classification has an official description, and many have inclusion terms: other ways of saying the
same thing ("Classical cholera" for A00.0 "Cholera due to Vibrio cholerae 01, biovar cholerae"). These are the texts.
The labels of a text are its code and all ancestors of the code, up to the chapter.

The test part is a random sample of the inclusion terms; all descriptions are training texts. So every test label can be
learned, and no test text occurs in training, also when case, punctuation and spacing are ignored. Label names are
descriptions, so they do not reveal test texts either. Descriptions are not held out because few codes have a second
text: most test codes would not occur in training, while their ancestors would be too easy, as codes for the other side
of the body or a later visit differ in a single word.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import simple_icd_10_cm as icd

from shortlist import DataError, Dataset, OptionError
from shortlist.files import write_atomically, write_folder_atomically

TRAIN, TEST, NAMES, ABOUT = "train.jsonl.gz", "test.jsonl.gz", "label_names.json", "about.json"
PACKAGE = "simple-icd-10-cm"


@dataclass(frozen=True)
class About:
    """What was built from what; saved in the folder as `about.json`."""

    source: str
    seed: int
    test_fraction: float
    train_texts: int
    test_texts: int
    labels: int


@dataclass
class _Phrase:
    """A text, the codes it belongs to (usually one), and whether it is a description of any of them."""

    text: str
    codes: list[str]
    is_description: bool


def build(folder: str | Path, seed: int = 0, test_fraction: float = 0.2) -> About:
    """Write the data set to a folder: `train.jsonl.gz`, `test.jsonl.gz`, `label_names.json`, `about.json`.

    Labels are the codes of the classification ("A00.0", "A00", "A00-A09"). Chapters, which have only a number there,
    become "chapter 1". A block that consists of one category shares its code and is the same label. Identical texts are
    merged and get the labels of all their codes. `test_fraction` is the fraction of inclusion terms that are held out.
    The same seed gives the same bytes.
    """
    if not 0 < test_fraction < 1:
        raise OptionError(f"test_fraction is {test_fraction}; it must be between 0 and 1, for example 0.2.")
    folder = Path(folder).resolve()
    _check_target(folder)
    codes = list(dict.fromkeys(icd.get_all_codes()))
    phrases = _phrases(codes)
    is_test = _sample_test(phrases, test_fraction, seed)
    paths = {code: list(dict.fromkeys(map(_label, [code, *icd.get_ancestors(code)]))) for code in codes}
    train = _dataset([phrase for phrase, held_out in zip(phrases, is_test, strict=True) if not held_out], paths)
    test = _dataset([phrase for phrase, held_out in zip(phrases, is_test, strict=True) if held_out], paths)
    about = About(
        source=f"{PACKAGE} {importlib.metadata.version(PACKAGE)}",
        seed=seed,
        test_fraction=test_fraction,
        train_texts=len(train),
        test_texts=len(test),
        labels=train.n_labels,
    )
    with write_folder_atomically(folder) as new:
        train.write(new / TRAIN)
        test.write(new / TEST)
        _write_json(new / NAMES, {_label(code): icd.get_description(code) for code in codes})
        _write_json(new / ABOUT, asdict(about))
    return about


def _check_target(folder: Path) -> None:
    """Only a new folder, an empty one, or one that was built here before may be replaced."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise DataError(f"{folder}: is a file; the data set needs a folder.")
    found = {path.name for path in folder.iterdir()}
    if not found or (found == {TRAIN, TEST, NAMES, ABOUT} and _created_here(folder / ABOUT)):
        return
    raise DataError(f"{folder}: is not empty and would be overwritten. Choose a new folder, or empty it first.")


def _created_here(about: Path) -> bool:
    try:
        source = msgspec.json.decode(about.read_bytes(), type=dict[str, Any]).get("source")
    except (OSError, msgspec.DecodeError):
        return False
    return str(source).startswith(PACKAGE)


def _label(code: str) -> str:
    return f"chapter {code}" if code.isdigit() else code


def _phrases(codes: list[str]) -> list[_Phrase]:
    """All distinct phrases in the order of the classification, each in its first spelling."""
    phrases: dict[str, _Phrase] = {}
    for code in codes:
        for text, is_description in _texts_of(code):
            phrase = phrases.setdefault(_normalized(text), _Phrase(text, [], False))
            phrase.is_description |= is_description
            if code not in phrase.codes:
                phrase.codes.append(code)
    return list(phrases.values())


def _texts_of(code: str) -> Iterator[tuple[str, bool]]:
    """The texts of a code, and whether each is a description."""
    # A block that consists of one category shares its code; block and category may have different texts.
    for as_block in (True, False):
        description = icd.get_description(code, as_block)
        if icd.is_chapter_or_block(code):
            # Drop the range of codes at the end, "(A00-B99)": nobody would write it.
            description = re.sub(r"\s*\([A-Z]\d\w(-[A-Z]\d\w)?\)$", "", description)
        yield description, True
        for term in icd.get_inclusion_term(code, as_block):
            yield term, False


def _normalized(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def _sample_test(phrases: list[_Phrase], test_fraction: float, seed: int) -> np.ndarray:
    """A mask over the phrases: True for those of the test part."""
    terms = [i for i, phrase in enumerate(phrases) if not phrase.is_description]
    sample = np.random.default_rng(seed).permutation(terms)[: round(test_fraction * len(terms))]
    return np.isin(np.arange(len(phrases)), sample)


def _dataset(phrases: list[_Phrase], paths: dict[str, list[str]]) -> Dataset:
    labels = [list(dict.fromkeys(label for code in phrase.codes for label in paths[code])) for phrase in phrases]
    return Dataset.from_lists([phrase.text for phrase in phrases], labels)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    """Indented, so that people can look things up."""
    with write_atomically(path) as file:
        file.write(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")


if __name__ == "__main__":
    build(sys.argv[1])
