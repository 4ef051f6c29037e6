"""A real data set without a download: the wordings of ICD-10-CM, the classification of diseases.

Each code of the classification has an official description, and many have inclusion terms, other ways of
saying the same thing ("Classical cholera" for A00.0, "Cholera due to Vibrio cholerae 01, biovar cholerae").
These are the texts. Their labels are the code and all above it, up to the chapter.

The task is the one a coder faces: find the code for a wording that is not the book's heading. So the test part
is a share of the inclusion terms, and every description stays in training. That makes each test label one that
can be learnt, and no test text one that was seen, whatever its case, punctuation and spacing; nor do the label
names, which are the descriptions, give a test text away. Descriptions are not held out because that would make
a poor test: the code itself could mostly not be learnt, for few have a second wording, and all above it would be
too easy, since codes for the same injury on the other side or at a later visit differ in a word.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from shortlist.data.dataset import Dataset
from shortlist.errors import DataError, MissingExtraError, OptionError
from shortlist.files import write_atomically, write_folder_atomically

TRAIN, TEST, NAMES, ABOUT = "train.jsonl.gz", "test.jsonl.gz", "label_names.json", "about.json"
MADE_BY = "shortlist data icd10"
PACKAGE = "simple-icd-10-cm"


@dataclass(frozen=True)
class Built:
    """What was built, and from what; also kept in the folder, as `about.json`."""

    made_by: str
    source: str
    seed: int
    test_share: float
    train_texts: int
    test_texts: int
    labels: int


@dataclass
class _Wording:
    """A text, the codes that it is a wording of (mostly one), and whether it is the description of any."""

    text: str
    codes: list[str]
    is_description: bool


def build(folder: str | Path, seed: int = 0, test_share: float = 0.2) -> Built:
    """Write the data set to a folder: `train.jsonl.gz`, `test.jsonl.gz`, `label_names.json`, `about.json`.

    Labels are written as in the classification ("A00.0", "A00", "A00-A09"), chapters, which are only
    numbered there, as "chapter 1". A block of one category has the category's name and is one label with it.
    Identical texts are merged and have the labels of all their codes. `test_share` is the share of inclusion
    terms that are held out; the same seed gives the same bytes.
    """
    if not 0 < test_share < 1:
        raise OptionError(f"test_share is {test_share}; it must lie between 0 and 1, such as 0.2.")
    folder = Path(folder).resolve()
    _check_target(folder)
    icd = _import_icd()
    codes = list(dict.fromkeys(icd.get_all_codes()))
    wordings = _wordings_of(icd, codes)
    held_out = _choose_test(wordings, test_share, seed)
    paths = {code: list(dict.fromkeys(map(_label, [code, *icd.get_ancestors(code)]))) for code in codes}
    train = _dataset([w for w, held in zip(wordings, held_out, strict=True) if not held], paths)
    test = _dataset([w for w, held in zip(wordings, held_out, strict=True) if held], paths)
    built = Built(
        made_by=MADE_BY,
        source=f"{PACKAGE} {importlib.metadata.version(PACKAGE)}",
        seed=seed,
        test_share=test_share,
        train_texts=len(train),
        test_texts=len(test),
        labels=train.n_labels,
    )
    with write_folder_atomically(folder) as new:
        train.write(new / TRAIN)
        test.write(new / TEST)
        _write_json(new / NAMES, {_label(code): icd.get_description(code) for code in codes})
        _write_json(new / ABOUT, asdict(built))
    return built


def _check_target(folder: Path) -> None:
    """Only a new folder, an empty one, or one that was built here before may be replaced."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise DataError(f"{folder}: is a file; a folder is needed for the data set.")
    found = {path.name for path in folder.iterdir()}
    if not found or (found == {TRAIN, TEST, NAMES, ABOUT} and _made_here(folder / ABOUT)):
        return
    raise DataError(f"{folder}: is not empty and would be overwritten. Choose a new folder, or empty it first.")


def _made_here(about: Path) -> bool:
    try:
        return msgspec.json.decode(about.read_bytes(), type=dict[str, Any]).get("made_by") == MADE_BY
    except (OSError, msgspec.DecodeError):
        return False


def _import_icd() -> Any:
    try:
        import simple_icd_10_cm
    except ImportError:
        raise MissingExtraError("the ICD-10 demo data", "icd10") from None
    return simple_icd_10_cm


def _label(code: str) -> str:
    return f"chapter {code}" if code.isdigit() else code


def _wordings_of(icd: Any, codes: list[str]) -> list[_Wording]:
    """Every distinct wording, spelt as it first comes, in the order of the classification."""
    wordings: dict[str, _Wording] = {}
    for code in codes:
        for text, is_description in _texts_of(icd, code):
            wording = wordings.setdefault(_folded(text), _Wording(text, [], False))
            wording.is_description |= is_description
            if code not in wording.codes:
                wording.codes.append(code)
    return list(wordings.values())


def _texts_of(icd: Any, code: str) -> Iterator[tuple[str, bool]]:
    """A code's texts, and for each whether it is a description."""
    # A block of one category and that category share a code; each may have a wording of its own.
    for as_block in (True, False):
        description = icd.get_description(code, as_block)
        if icd.is_chapter_or_block(code):
            # These end in the codes they span, "(A00-B99)", which nobody would write.
            description = re.sub(r"\s*\([A-Z]\d\w(-[A-Z]\d\w)?\)$", "", description)
        yield description, True
        for term in icd.get_inclusion_term(code, as_block):
            yield term, False


def _folded(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def _choose_test(wordings: list[_Wording], test_share: float, seed: int) -> np.ndarray:
    """True for the wordings to hold out."""
    terms = [i for i, wording in enumerate(wordings) if not wording.is_description]
    chosen = np.random.default_rng(seed).permutation(terms)[: round(test_share * len(terms))]
    return np.isin(np.arange(len(wordings)), chosen)


def _dataset(wordings: list[_Wording], paths: dict[str, list[str]]) -> Dataset:
    labels = [list(dict.fromkeys(label for code in w.codes for label in paths[code])) for w in wordings]
    return Dataset.from_lists([w.text for w in wordings], labels)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    """Indented: one entry a line, for people to look things up in."""
    with write_atomically(path) as file:
        file.write(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
