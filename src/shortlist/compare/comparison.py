"""`compare`: row after row, each in a process of its own, stored as it comes; what is stored is not run again."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from shortlist.compare import runner
from shortlist.compare.ablations import AblationPlan
from shortlist.compare.job import CHECKPOINTS, MODEL, Job
from shortlist.compare.machine import machine_facts, peers_versions
from shortlist.compare.measure import Convention, calibration_on_test, disturbed_scores, intervals_of, scores_of
from shortlist.compare.parts import Parts, write_peers_data
from shortlist.compare.peers.run_peer import CANNOT
from shortlist.compare.plan import ALL, RowPlan, peers, plan
from shortlist.compare.results import (
    DATA,
    LOCK,
    Measured,
    Row,
    Store,
    checked_predictions,
    read_arrays,
    read_measured,
)
from shortlist.compare.summary import summarise
from shortlist.errors import DataError, OptionError, Stopped
from shortlist.files import write_atomically
from shortlist.text.perturb import PERTURBATIONS
from shortlist.training.memory import free_memory

log = logging.getLogger("shortlist")

OnSummary = Callable[[dict[str, Any]], None]

GB = 1e9
# Of the memory that is free, so much may be taken where nothing else is said.
SHARE_OF_MEMORY = 0.9
PEERS_DATA = "peers-data"
SECONDS_BETWEEN_NOTES = 5.0
THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")


@dataclass(frozen=True)
class Settings:
    """What to compare on what, and how.

    source         the data: a folder with train and test, or anything else `shortlist.read` reads, cut by the seed
    out            folder for results; one with results on the same data is gone on with
    rows           what to compare; see `plan`
    ablations      variants to compare with each other; see `plan_ablations`
    minutes        a row may take so long, training and prediction
    memory_gb      and so much memory; None: nine tenths of what is free
    threads        in training and in bulk; None: as many as there are cores
    robustness     also predict for disturbed test texts
    again          names of rows to run again; all of them if "all" is among them
    peers_python   the Python that has the peers
    latency_texts  so many test texts are predicted one at a time
    """

    source: str
    out: str
    rows: list[RowPlan] = field(default_factory=lambda: plan("popular,centroid,astec", ALL, str))
    ablations: list[AblationPlan] = field(default_factory=list)
    seed: int = 0
    minutes: float = 60.0
    memory_gb: float | None = None
    threads: int | None = None
    robustness: bool = False
    again: tuple[str, ...] = ()
    peers_python: str | None = None
    latency_texts: int = 1000
    convention: Convention = field(default_factory=Convention)
    keep_models: bool = False
    reading: dict[str, Any] = field(default_factory=dict)


def compare(settings: Settings, on_summary: OnSummary = lambda summary: None) -> dict[str, Any]:
    """Run what is not stored yet, and give the summary of all; `on_summary` is given each summary on the way, too."""
    if not settings.rows and not settings.ablations:
        raise OptionError(
            "there is nothing to compare: name recipes (--recipes), other tools (--peers) or ablations (--ablations)."
        )
    parts = Parts.read(settings.source, settings.seed, settings.reading)
    rows = settings.rows + [row for one in settings.ablations for row in one.rows(parts.train.n_labels)]
    for name in settings.again:
        if name != ALL and name not in {row.name for row in rows}:
            raise OptionError(f"{name!r} is to be run again, but is not among what is compared.")
    packages = [peer.package for peer in peers().values()]
    has_peers = any(row.peer is not None for row in rows)
    versions = peers_versions(settings.peers_python, packages) if has_peers else {}
    store = Store(settings.out)
    with _alone(store):
        comparison = _Comparison(settings, rows, versions, parts, store, on_summary)
        try:
            return comparison.run()
        except KeyboardInterrupt:
            n_rows = len(store.all())
            raise Stopped(f"stopped; {n_rows} rows are in {settings.out}. The same command goes on.") from None


class _Comparison:
    def __init__(
        self,
        settings: Settings,
        rows: list[RowPlan],
        versions: dict[str, str],
        parts: Parts,
        store: Store,
        on_summary: OnSummary,
    ) -> None:
        self.settings, self.rows, self.peers_versions, self.parts = settings, rows, versions, parts
        self.store, self.on_summary = store, on_summary
        self.machine = machine_facts()
        self.threads = settings.threads or int(self.machine["cores"])
        self.ways = tuple(PERTURBATIONS) if settings.robustness and parts.test.features is None else ()
        facts = parts.facts()
        self.checksum = facts["checksum"]
        before = store.read_json(DATA)
        if before is not None and before.get("checksum") != self.checksum:
            raise DataError(f"{store.folder} holds a comparison on other data. Choose another folder (--out).")
        store.write_json(DATA, facts)
        known = (store.read_json("machine.json") or {}).get("peers_versions", {})
        machine = {"threads": self.threads, "seed": settings.seed, "peers_versions": known | self.peers_versions}
        store.write_json("machine.json", self.machine | machine)

    def run(self) -> dict[str, Any]:
        rows = self.rows
        self._measure_anew()
        for number, planned in enumerate(rows, 1):
            where = f"[{number}/{len(rows)}] {planned.name}"
            fingerprint = self._fingerprint(planned)
            if self._is_there(planned, fingerprint):
                log.info("%s: is there already", where)
                continue
            log.info("%s …", where)
            row = self._run_row(planned, fingerprint)
            self.store.save(planned.file_name, row)
            log.info("%s: %s", where, _in_short(row))
            self._summarise()
        summary = self._summarise()
        shutil.rmtree(self.store.work, ignore_errors=True)
        return summary

    def _summarise(self) -> dict[str, Any]:
        order = [row.file_name for row in self.rows]
        summary = summarise(self.store, self.parts, order, self.settings.seed)
        self.on_summary(summary)
        return summary

    def _fingerprint(self, planned: RowPlan) -> str:
        """Of all that decides what a row measures."""
        versions = self.machine["versions"]
        if planned.peer is not None:
            versions = {"shortlist": versions["shortlist"], "peer": self.peers_versions.get(planned.peer.package)}
        identity = {
            "data": self.checksum,
            "row": [planned.kind, planned.recipe or planned.name, planned.ensemble, planned.options],
            "seed": self.settings.seed,
            "threads": self.threads,
            "texts": self.settings.latency_texts,
            "machine": [self.machine["cpu"], self.machine["cores"]],
            "versions": versions,
        }
        return hashlib.sha256(msgspec.json.encode(identity, order="deterministic")).hexdigest()[:16]

    @property
    def _limits(self) -> dict[str, float]:
        return {"minutes": self.settings.minutes, "memory_gb": self.settings.memory_gb or 0.0}

    def _is_there(self, planned: RowPlan, fingerprint: str) -> bool:
        """Whether the row need not be run: it is done, or failed within the same limits."""
        row = self.store.load(planned.file_name)
        if row is None or row.fingerprint != fingerprint or {ALL, planned.name} & set(self.settings.again):
            return False
        if row.status == "done":
            return set(self.ways) <= set(row.robustness)
        return row.status == "failed" and row.limits == self._limits

    def _run_row(self, planned: RowPlan, fingerprint: str) -> Row:
        row = Row(
            planned.name,
            planned.kind,
            planned.title,
            "skipped",
            fingerprint=fingerprint,
            limits=self._limits,
            run_with={"threads": self.threads, "seed": self.settings.seed, "processor": self.machine["cpu"]},
            options=planned.options,
            ablation=planned.ablation,
            cells=list(planned.cells),
        )
        row.note = self._why_not(planned)
        if row.note:
            return row
        work = self.store.work / planned.file_name
        spent = self._make_ready(planned, work, fingerprint)
        outcome, last_line = self._watch(planned, work, spent)
        try:
            row.status, row.note = _verdict(outcome, last_line, self._limits)
            if row.status == "done":
                self._take_in(row, planned.file_name, work, outcome.peak_bytes, spent)
                if self.settings.keep_models and (work / MODEL).exists():
                    kept = self.store.folder / "models" / planned.file_name
                    kept.parent.mkdir(exist_ok=True)
                    shutil.rmtree(kept, ignore_errors=True)
                    (work / MODEL).rename(kept)
        except DataError as error:
            row.status, row.note = "failed", str(error)
        shutil.rmtree(work, ignore_errors=True)
        return row

    def _why_not(self, planned: RowPlan) -> str:
        """Why a row cannot be run, if so."""
        peer = planned.peer
        if (planned.ablation or (peer is not None and peer.needs_words)) and self.parts.train.features is not None:
            return "it reads texts, and the data has features instead"
        if peer is None:
            return ""
        if self.settings.peers_python is None:
            return "there is no Python for the peers: `make peers`, or --peers-python PATH"
        if peer.package not in self.peers_versions:
            return f"{peer.package} is not installed for {self.settings.peers_python}"
        pairs = self.parts.train.n_labels * len(self.parts.train)
        if pairs > peer.most_pairs:
            return f"{pairs:.1e} labels times texts are too many for it; {peer.most_pairs:.0e} are taken"
        return ""

    def _make_ready(self, planned: RowPlan, work: Path, fingerprint: str) -> float:
        """Put the job down; for how many seconds it has been worked on before it was stopped."""
        mark, spent, resume = work / "fingerprint", 0.0, False
        if mark.exists() and mark.read_text() == fingerprint and (work / CHECKPOINTS).exists():
            resume = True
            with contextlib.suppress(OSError, ValueError):
                spent = float((work / "spent").read_text())
        else:
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            mark.write_text(fingerprint)
            self.store.log_file(planned.file_name).unlink(missing_ok=True)
        common: dict[str, Any] = {
            "seed": self.settings.seed,
            "threads": self.threads,
            "places": self.parts.places,
            "ways": list(self.ways),
            "folder": str(work),
        }
        if planned.peer is not None:
            n_texts, seed = self.settings.latency_texts, self.settings.seed
            data = self.store.work / "-".join(map(str, [PEERS_DATA, *self.ways, n_texts, seed]))
            write_peers_data(data, self.parts, self.ways, n_texts, seed)
            (work / "job.json").write_bytes(msgspec.json.encode({"data": str(data), **common}))
            return 0.0
        job = Job(
            source=self.settings.source,
            reading=self.settings.reading,
            checksum=self.checksum,
            recipe=planned.recipe,
            ensemble=planned.ensemble,
            options=planned.options,
            latency_texts=self.settings.latency_texts,
            resume=resume,
            **common,
        )
        (work / "job.json").write_bytes(msgspec.json.encode(job))
        return spent

    def _watch(self, planned: RowPlan, work: Path, spent: float) -> tuple[runner.Outcome, str]:
        """Run the process of a row; how it ended, and the last line that it said."""
        job = str(work / "job.json")
        command = [sys.executable, "-m", "shortlist.compare.child", job]
        if planned.peer is not None:
            assert self.settings.peers_python is not None
            command = [self.settings.peers_python, str(planned.peer.script), planned.peer.name, job]
        noted = 0.0

        def note(seconds: float) -> None:
            nonlocal noted
            if seconds - noted >= SECONDS_BETWEEN_NOTES:
                noted = seconds
                with write_atomically(work / "spent") as file:
                    file.write(f"{spent + seconds:.1f}".encode())

        memory = self.settings.memory_gb * GB if self.settings.memory_gb else SHARE_OF_MEMORY * free_memory()
        log_file = self.store.log_file(planned.file_name)
        outcome = runner.run(
            command,
            log_file,
            environment=dict.fromkeys(THREADS, str(self.threads)) | {"PYTHONUNBUFFERED": "1"},
            seconds=max(60 * self.settings.minutes - spent, 1),
            memory=memory,
            can_stop=planned.peer is None,
            on_look=note,
        )
        said = [line for line in log_file.read_text(errors="replace").splitlines() if line.strip()]
        return outcome, said[-1].strip() if said else ""

    def _take_in(self, row: Row, file_name: str, work: Path, peak: int, spent: float) -> None:
        """Look at what a process has left, measure its predictions, and store them."""
        measured = read_measured(work)
        arrays, n_texts = read_arrays(work / "predictions.npz"), len(self.parts.test)
        predictions: dict[str, Any] = {}
        for prefix in ("", *(f"{way}." for way in self.ways)):
            predictions |= checked_predictions(arrays, n_texts, self.parts.train.n_labels, prefix)
        for name in Measured.__struct_fields__:
            setattr(row, name, getattr(measured, name))
        row.peak_memory_bytes = max(peak, measured.peak_memory_bytes or 0) or None
        if spent:
            row.train_seconds = measured.train_seconds + spent
            row.note = "was stopped and went on; its training time holds what had to be done twice"
        self.store.save_arrays(f"{file_name}.predictions", predictions)
        self._measure(row, file_name, predictions)

    def _measure(self, row: Row, file_name: str, predictions: dict[str, Any]) -> None:
        convention = self.settings.convention
        row.scores, resampled, row.by_quantile = scores_of(predictions["ids"], self.parts, convention)
        row.calibration = (row.calibration or {}) | calibration_on_test(predictions, self.parts)
        row.intervals = intervals_of(resampled)
        row.robustness = {
            way: disturbed_scores(predictions[f"{way}.ids"], self.parts, convention)
            for way in PERTURBATIONS
            if f"{way}.ids" in predictions
        }
        row.measured_with = msgspec.to_builtins(convention)
        self.store.save_arrays(f"{file_name}.resamples", resampled)

    def _measure_anew(self) -> None:
        """Rows that were measured by another convention, from the predictions that are stored; damaged ones go."""
        for file_name, row in self.store.all().items():
            if row.status != "done":
                continue
            try:
                predictions = self.store.load_arrays(f"{file_name}.predictions")
                self.store.load_arrays(f"{file_name}.resamples")
                if row.measured_with != msgspec.to_builtins(self.settings.convention):
                    self._measure(row, file_name, predictions)
                    self.store.save(file_name, row)
            except (DataError, KeyError) as error:
                log.info("%s cannot be used any more (%s)", row.name, error)
                (self.store.rows / f"{file_name}.json").unlink()


def _verdict(outcome: runner.Outcome, last_line: str, limits: dict[str, float]) -> tuple[Any, str]:
    """The status of a row and the note that goes with it."""
    if outcome.end == "time":
        return "failed", f"took more than {limits['minutes']:g} minutes"
    if outcome.end == "memory":
        return "failed", f"took more memory than allowed: {outcome.peak_bytes / GB:.1f} GB"
    if outcome.code == CANNOT:
        return "skipped", last_line
    if outcome.code < 0:
        name = signal.Signals(-outcome.code).name
        return "failed", f"was ended by {name}" + (f" after saying: {last_line}" if last_line else "")
    if outcome.code:
        return "failed", last_line or f"ended with exit code {outcome.code}"
    return "done", ""


def _in_short(row: Row) -> str:
    if row.status != "done":
        return f"{row.status}: {row.note}"
    latency = "" if row.ms_p50 is None else f", {row.ms_p50:.3f} ms a text"
    return (
        f"P@1 {row.scores['P@1']:.2f}, P@5 {row.scores['P@5']:.2f}, PSP@1 {row.scores['PSP@1']:.2f}, "
        f"trained in {row.train_seconds or 0:,.1f} s{latency}"
    )


@contextlib.contextmanager
def _alone(store: Store) -> Iterator[None]:
    """No two comparisons in one folder at a time."""
    with (store.folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise OptionError(
                f"another comparison is at work in {store.folder}. Wait for it, or choose --out."
            ) from None
        yield
