"""A model is a folder of plain files, checked when read, written all or nothing.

`config.json` lists the stages of the model, and every other file with its size and checksum. Arrays are safetensors,
one file per stage, which are mapped into memory, not read: processes with the same model share it. Words and labels are
text. Nothing in a model folder is ever executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET

from shortlist.arrays import Arrays
from shortlist.errors import DataError, ModelError, OptionError
from shortlist.files import recover_folder, write_folder_atomically, write_safetensors
from shortlist.labels.hierarchy import Hierarchy
from shortlist.model.format import (
    CARD,
    CONFIG,
    CURVES,
    DISPLAY_NAMES,
    FORMAT,
    FORMAT_VERSION,
    HIERARCHY,
    KEPT_TEXTS,
    LABELS,
    LISTS,
    README,
    FileFacts,
    ModelConfig,
    StageConfig,
    StoredHierarchy,
    arrays_of,
    checksum,
    config_checksum,
    escaped,
    identity,
    is_model,
    join_shards,
    lines_of,
    mapped,
    read_config,
    read_contents,
    require_own_files,
    shard_name,
    shards_of,
    split_rows,
)
from shortlist.model.model import Model
from shortlist.model.readme import readme
from shortlist.recipes.recipe import UnknownEncoderError, load_encoder
from shortlist.stages.calibration import Calibration
from shortlist.stages.candidates import CANDIDATES
from shortlist.stages.classifier import CLASSIFIERS
from shortlist.stages.columns import Columns
from shortlist.stages.encoders import ENCODERS
from shortlist.stages.network_reranker import NetworkReranker
from shortlist.stages.pipeline import Pipeline
from shortlist.stages.reranker import Reranker
from shortlist.stages.stage import Stage, without_prefix
from shortlist.stages.tail import TailRanking
from shortlist.stages.thresholds import Thresholds
from shortlist.text import Vocabulary
from shortlist.text.texts import Texts

MAX_ATTEMPTS = 3  # to open a folder that is being replaced
SHARDED = ("candidates", "classifier")  # the stages that have a row per label
StageType = TypeVar("StageType", bound=Stage)


def save_model(model: Model, folder: str | Path, bits: int = 8, n_shards: int = 1) -> None:
    """Write a model folder. An older model there is replaced in one move; anything else there is left alone.

    With several shards, what has a row per label is in several files, which `load` joins in memory.
    """
    from shortlist import __version__

    check_bits(bits)
    folder = Path(folder)
    check_replaceable(folder)
    if bits == 8:
        model = model.quantized()
    with write_folder_atomically(folder) as beside:
        _write_strings(beside / LABELS, model.label_names)
        if model.display_names:
            _write_strings(beside / DISPLAY_NAMES, [model.display_names.get(label, "") for label in model.label_names])
        if model.lists:
            _write_json(beside / LISTS, model.lists)
        if model.hierarchy:
            own = model.hierarchy
            _write_json(beside / HIERARCHY, StoredHierarchy(own.pairs, own.names, own.inclusive))
        if model.kept_texts:
            (beside / KEPT_TEXTS).write_bytes(model.kept_texts)
        if model.records:
            # Without the times: the same training leaves the same files.
            curves = [{name: value for name, value in record.items() if name != "seconds"} for record in model.records]
            (beside / CURVES).write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in curves))
        _write_json(beside / CARD, _card(model, bits))
        alone = len(model.pipelines) == 1
        members = [
            _write_pipeline(pipeline, beside, "" if alone else f"{i}.", n_shards)
            for i, pipeline in enumerate(model.pipelines)
        ]
        behind = {"calibration": model.calibration, "thresholds": model.thresholds, "tail": model.tail_ranking}
        calibration, thresholds, tail = (
            None if stage is None else _write_stage(name, stage, beside, "") for name, stage in behind.items()
        )
        files = {path.name: _file_facts(path) for path in sorted(beside.iterdir())}
        about = (FORMAT, FORMAT_VERSION, __version__, model.recipe, model.options, model.n_labels)
        config = ModelConfig(
            *about, members, calibration, thresholds, tail, files, text_fields=model.text_fields or UNSET
        )
        _write_json(beside / CONFIG, msgspec.structs.replace(config, xxh3=config_checksum(config)))
        # Without a checksum: people may edit it, and model hubs do.
        (beside / README).write_text(readme({**model.card, **_card(model, bits)}), encoding="utf-8")


def _card(model: Model, bits: int) -> dict[str, Any]:
    """What training found out; of the cost of 8 bits only if it was paid."""
    facts = {name: value for name, value in model.facts.items() if name not in ("size_bytes", "created")}
    storage = facts.get("storage", {})
    bits = min(bits, storage.get("bits", bits))
    return {**facts, "storage": {**storage, "bits": bits} if bits == 8 else {"bits": bits}}


def _write_pipeline(pipeline: Pipeline, folder: Path, prefix: str, n_shards: int = 1) -> list[StageConfig]:
    stages = []
    if isinstance(pipeline.vocabulary, Columns):
        stages.append(StageConfig("vocabulary", "columns", pipeline.vocabulary.to_config()))
    elif pipeline.vocabulary is not None:
        pipeline.vocabulary.save(folder / f"{prefix}vocabulary.txt")
        stages.append(StageConfig("vocabulary", "words", pipeline.vocabulary.to_config()))
    names = ("encoder", "candidates", "classifier")
    stages += [_write_stage(name, getattr(pipeline, name), folder, prefix, n_shards) for name in names]
    if pipeline.reranker is not None:
        stages.append(_write_stage("reranker", pipeline.reranker, folder, prefix))
    if isinstance(pipeline.reranker, Reranker):
        subwords = pipeline.reranker.subwords
        subwords.save(folder / f"{prefix}reranker.txt")
        stages[-1].config = {**stages[-1].config, "subwords": subwords.to_config()}
    return stages


def _write_stage(name: str, stage: Stage, folder: Path, prefix: str, n_shards: int = 1) -> StageConfig:
    arrays = {key: np.ascontiguousarray(array) for key, array in stage.arrays().items()}
    file = f"{prefix}{name}.safetensors"
    if n_shards > 1 and name in SHARDED:
        for shard, own in enumerate(split_rows(arrays, n_shards)):
            write_safetensors(folder / shard_name(file, shard, n_shards), own)
    elif arrays:
        write_safetensors(folder / file, arrays)
    for file, content in stage.files().items():
        (folder / f"{prefix}{file}").write_bytes(content)
    return StageConfig(name, stage.kind, stage.config())


def _write_strings(path: Path, strings: Sequence[str]) -> None:
    path.write_bytes("".join(f"{escaped(string)}\n" for string in strings).encode())


def _write_json(path: Path, content: Any) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


def _file_facts(path: Path) -> FileFacts:
    with path.open("rb") as file:
        return FileFacts(path.stat().st_size, checksum(mapped(file)))


def check_bits(bits: int) -> None:
    if bits not in (8, 32):
        raise OptionError(f"bits is {bits!r}; it can be 8 or 32")


def check_replaceable(folder: Path, overwrite: bool = True) -> None:
    """Refuse to replace a folder that holds anything but a model: it may be someone's only copy.

    Without `overwrite`, refuse to replace a model, too.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not is_model(folder):
        raise ModelError(f"{folder} exists and is not a model: nothing was written. Choose another folder.")
    if not overwrite:
        raise ModelError(f"{folder} holds a model already. Add --overwrite to replace it, or choose another folder.")
    try:
        config, _ = read_config(folder)
    except ModelError as error:
        raise ModelError(f"{error} Nothing was written; choose another folder.") from None
    require_own_files(folder, {path.name for path in folder.iterdir()}, config)


class ModelReader:
    """The contents of a model's files, opened once, with checksums compared."""

    def __init__(self, folder: Path, config: ModelConfig, contents: dict[str, Any], written: float) -> None:
        """`contents`: bytes by file name, or a memory map of it; `written`: when, in seconds since 1970."""
        self.folder, self.config, self._contents, self._written = folder, config, contents, written

    def model(self) -> Model:
        labels = self._strings(LABELS)
        names: Sequence[str] = self._strings(DISPLAY_NAMES) if DISPLAY_NAMES in self._contents else []
        if len(labels) != self.config.n_labels or len(names) not in (0, len(labels)):
            raise self._damaged(f"it does not have {self.config.n_labels:,} labels, as its config says")
        if not len(labels):
            raise self._damaged("it has no labels")
        config, alone = self.config, len(self.config.members) == 1
        try:
            pipelines = [
                self._pipeline(stages, "" if alone else f"{i}.", len(labels)) for i, stages in enumerate(config.members)
            ]
            if not pipelines:
                raise ModelError("it has no stages")
            calibration = self._stage(Calibration, config.calibration)
            thresholds = self._stage(Thresholds, config.thresholds, n_labels=len(labels))
            tail_ranking = self._stage(TailRanking, config.tail, n_labels=len(labels))
        except (KeyError, TypeError, AttributeError, ValueError, IndexError, OverflowError, DataError) as error:
            raise self._damaged(f"{error!r}" if isinstance(error, KeyError) else str(error)) from None
        except UnknownEncoderError as error:
            raise ModelError(f"{self.folder}: {error}") from None
        except ModelError as error:
            raise self._damaged(str(error)) from None
        facts = self._json(CARD) | self._file_facts() if CARD in self._contents else self._file_facts()
        examples = facts.get("examples", [])
        if not isinstance(examples, list) or not all(isinstance(text, str) for text in examples):
            raise self._damaged(f"the examples in {CARD} are not a list of texts")
        self._check_config()
        records = self._json_lines(CURVES) if CURVES in self._contents else []
        about = calibration, facts, records, thresholds, tail_ranking
        given = self._lists(labels), self._hierarchy(), config.text_fields or None
        model = Model(config.recipe, config.options, pipelines, labels, names, *about, *given)
        model.kept_texts = bytes(self._contents.get(KEPT_TEXTS, b""))
        return model

    def _lists(self, labels: Sequence[str]) -> dict[str, list[str]]:
        """The named lists of labels, if the model has any."""
        if LISTS not in self._contents:
            return {}
        lists = self._json(LISTS)
        try:
            lists = msgspec.convert(lists, dict[str, list[str]])
        except msgspec.ValidationError as error:
            raise self._damaged(f"{LISTS}: {error}") from None
        unknown = {label for own in lists.values() for label in own}.difference(labels)
        if unknown:
            raise self._damaged(f"{LISTS} has {min(unknown)!r:.60}, which is not a label")
        return lists

    def _hierarchy(self) -> Hierarchy | None:
        if HIERARCHY not in self._contents:
            return None
        try:
            stored = msgspec.json.decode(self._content(HIERARCHY), type=StoredHierarchy)
            return Hierarchy(((HIERARCHY, *pair) for pair in stored.pairs), stored.names, (), stored.inclusive)
        except (ValueError, RecursionError, DataError) as error:
            raise self._damaged(f"{HIERARCHY}: {error}") from None

    def _stage(self, kind: type[StageType], stage: StageConfig | None, **sizes: int) -> StageType | None:
        """A stage behind the pipelines, if the model has it."""
        if stage is None:
            return None
        return kind.from_arrays(self._arrays(f"{stage.stage}.safetensors"), stage.config, **sizes)

    def _pipeline(self, stages: list[StageConfig], prefix: str, n_labels: int) -> Pipeline:
        by_name = {stage.stage: stage for stage in stages}
        vocabulary: Vocabulary | Columns | None = None
        sizes = {"n_labels": n_labels}
        if "vocabulary" in by_name:
            words = by_name["vocabulary"]
            vocabulary = (
                Columns.from_config(words.config)
                if words.kind == "columns"
                else self._vocabulary(f"{prefix}vocabulary.txt", words.config)
            )
        encoder, candidates, classifier = (by_name[name] for name in ("encoder", "candidates", "classifier"))
        n_words = 0 if vocabulary is None else vocabulary.n_learnt
        arrays = [self._arrays(f"{prefix}{stage.stage}.safetensors") for stage in (encoder, candidates, classifier)]
        pipeline = Pipeline(
            vocabulary,
            load_encoder(
                encoder.kind, self.config.recipe, arrays[0], self._encoder_config(encoder, prefix), n_words=n_words
            ),
            CANDIDATES[candidates.kind].from_arrays(arrays[1], candidates.config, **sizes),
            CLASSIFIERS[classifier.kind].from_arrays(arrays[2], classifier.config, **sizes),
        )
        if "reranker" in by_name and vocabulary is not None:
            pipeline.reranker = self._reranker(by_name["reranker"], prefix, vocabulary, n_labels)
        return pipeline

    def _reranker(
        self, stage: StageConfig, prefix: str, vocabulary: Vocabulary | Columns, n_labels: int
    ) -> Reranker | NetworkReranker:
        config, arrays = stage.config, self._arrays(f"{prefix}reranker.safetensors")
        if stage.kind == "words":
            subwords = self._vocabulary(f"{prefix}reranker.txt", config["subwords"])
            return Reranker.from_arrays(arrays, config, vocabulary, subwords, n_labels)
        if stage.kind != "network":
            raise ModelError(f"there is no re-ranker {stage.kind!r:.60}")
        own, kind = without_prefix("encoder", arrays), config["encoder"]["kind"]
        encoder = load_encoder(kind, self.config.recipe, own, config["encoder"]["config"], n_words=vocabulary.n_learnt)
        return NetworkReranker.from_arrays(arrays, config, encoder, n_labels)

    def _encoder_config(self, encoder: StageConfig, prefix: str) -> dict[str, Any]:
        """Its config, with the contents of its own files if it has any."""
        names = ENCODERS[encoder.kind].file_names if encoder.kind in ENCODERS else ()
        files = {name: self._content(f"{prefix}{name}") for name in names}
        return {**encoder.config, "files": files} if files else encoder.config

    def _vocabulary(self, name: str, config: dict[str, Any]) -> Vocabulary:
        return Vocabulary.from_bytes(self._content(name), self.folder / name, config)

    def _arrays(self, name: str) -> Arrays:
        """The arrays of a stage, from one file or from shards; none where the stage has no file."""
        if name in self._contents:
            return arrays_of(self._content(name), self.folder / name)
        shards = shards_of(name, self._contents)
        return join_shards([arrays_of(self._content(shard), self.folder / shard) for shard in shards])

    def _json_lines(self, name: str) -> list[dict[str, Any]]:
        try:
            return msgspec.json.Decoder(dict[str, Any]).decode_lines(self._content(name))
        except (ValueError, RecursionError) as error:  # as msgspec's own are, and Unicode's
            raise self._damaged(f"{name} is not JSON lines: {error}") from None

    def _strings(self, name: str) -> Texts:
        content = self._content(name)
        try:
            content.decode()
        except UnicodeDecodeError as error:
            raise self._damaged(f"{name} is not UTF-8 at byte {error.start}") from None
        return lines_of(content)

    def _json(self, name: str) -> dict[str, Any]:
        try:
            return msgspec.json.decode(self._content(name), type=dict[str, Any])
        except (ValueError, RecursionError) as error:
            raise self._damaged(f"{name} is not JSON: {error}") from None

    def _file_facts(self) -> dict[str, Any]:
        """The size of the files, and when they were written."""
        size = sum(facts.bytes for facts in self.config.files.values())
        written = datetime.fromtimestamp(self._written, timezone.utc)
        return {"size_bytes": size, "created": written.isoformat(timespec="seconds")}

    def _content(self, name: str) -> Any:
        if name not in self._contents:
            raise ModelError(f"{self.folder}: the model has no file {name}; it is incomplete. Train or fetch it again.")
        return self._contents[name]

    def _check_config(self) -> None:
        """Refuse a config that is not the one that was saved. What else is wrong with it says more, and comes first."""
        if self.config.xxh3 and self.config.xxh3 != config_checksum(self.config):
            raise ModelError(
                f"{self.folder}: {CONFIG} is not the file that was saved (checksum differs). Fetch it again."
            )

    def _damaged(self, what: str) -> ModelError:
        return ModelError(f"{self.folder}: the model is damaged; train or fetch it again ({what:.300}).")


def load(folder: str | Path) -> Model:
    """Load a model that `model.save` wrote. Its files are checked first.

    If the folder is replaced meanwhile, the result is the old model or the new one, never a mixture.

    >>> import shortlist, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     shortlist.train(["red shoes", "blue hat"], ["shoes", "hats"]).save(f"{folder}/model")
    ...     load(f"{folder}/model").predict("a hat")[0].label
    'hats'
    """
    folder = Path(folder)
    for _ in range(MAX_ATTEMPTS - 1):
        before = identity(folder)
        try:
            return _open(folder).model()
        except ModelError:
            if identity(folder) == before:
                raise
    return _open(folder).model()


def _open(folder: Path) -> ModelReader:
    folder = recover_folder(folder)
    if not folder.is_dir():
        raise ModelError(f"{folder}: there is no such model folder. Check the path, or train one first.")
    if not (folder / CONFIG).is_file():
        raise ModelError(f"{folder}: not a model folder: there is no {CONFIG} in it.")
    config, written = read_config(folder)
    return ModelReader(folder, config, read_contents(folder, config), written)
