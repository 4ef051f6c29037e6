"""`compare`: runs each entry in its own process and stores it when it is done. Stored entries do not run again."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from shortlist.compare import runner
from shortlist.compare.ablations import N_CLUSTERS
from shortlist.compare.job import CHECKPOINTS, MODEL, Job, Measured, read_measured, read_predictions
from shortlist.compare.machine import machine_facts, peer_versions
from shortlist.compare.measure import Convention, measure
from shortlist.compare.peers.run_peer import CANNOT_RUN
from shortlist.compare.plan import ALL, DEFAULT_RECIPES, EntryPlan, plan
from shortlist.compare.results import DATA, MACHINE, Entry, Store
from shortlist.compare.splits import PERTURBATIONS, Splits, write_peer_data
from shortlist.compare.summary import summarise
from shortlist.errors import DataError, OptionError, Stopped
from shortlist.files import lock_folder
from shortlist.recipes import get_recipe
from shortlist.training.memory import free_memory

log = logging.getLogger("shortlist")

OnSummary = Callable[[dict[str, Any]], None]

GB = 1e9
DEFAULT_MEMORY_FRACTION = 0.9  # of the free memory
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "RAYON_NUM_THREADS",
)


@dataclass(frozen=True)
class Settings:
    """What to compare, on which data, and how.

    source         a folder with train and test, or anything that `shortlist.read` reads, to be split by the seed
    out            folder for the results; a comparison on the same data in it is resumed
    entries        what to compare; see `plan`
    minutes        time limit per entry
    memory_gb      memory limit per entry; None: nine tenths of the free memory
    threads        threads for training and bulk prediction; None: all cores
    robustness     whether to predict perturbed test texts as well
    rerun          names of entries to run again; "all" for all of them
    peers_python   the Python that has the other tools
    latency_texts  number of test texts to predict one at a time
    convention     how predictions are measured
    keep_models    whether to keep the recipes' models in OUT/models
    reading        options of `shortlist.read`
    drop_leaks     whether to leave out test texts that also occur in the training part
    """

    source: str
    out: str
    entries: list[EntryPlan] = field(default_factory=lambda: plan(DEFAULT_RECIPES, ALL, str))
    seed: int = 0
    minutes: float = 60.0
    memory_gb: float | None = None
    threads: int | None = None
    robustness: bool = False
    rerun: tuple[str, ...] = ()
    peers_python: str | None = None
    latency_texts: int = 1000
    convention: Convention = field(default_factory=Convention)
    keep_models: bool = False
    reading: dict[str, Any] = field(default_factory=dict)
    drop_leaks: bool = False


def compare(settings: Settings, on_summary: OnSummary = lambda summary: None) -> dict[str, Any]:
    """Run the entries that are not stored yet and return the summary of all.

    `on_summary` is called with the summary so far after each entry, and at the end.
    """
    if not settings.entries:
        raise OptionError("nothing to compare: name recipes (--recipes), other tools (--peers) or --ablations.")
    for name in settings.rerun:
        if name != ALL and name not in {entry.name for entry in settings.entries}:
            raise OptionError(f"cannot rerun {name!r}: it is not among the compared entries.")
    splits = Splits.read(settings.source, settings.seed, settings.reading, settings.drop_leaks)
    packages = [entry.peer.package for entry in settings.entries if entry.peer is not None]
    versions = peer_versions(settings.peers_python, packages) if packages else {}
    store = Store(settings.out)
    with lock_folder(store.folder):
        try:
            return _Comparison(settings, versions, splits, store, on_summary).run()
        except KeyboardInterrupt:
            n_done = len(store.load_all())
            raise Stopped(
                f"stopped; {settings.out} has {n_done} finished entries. Run the same command to resume."
            ) from None


class _Comparison:
    def __init__(
        self, settings: Settings, versions: dict[str, str], splits: Splits, store: Store, on_summary: OnSummary
    ) -> None:
        self.settings, self.peer_versions, self.splits = settings, versions, splits
        self.store, self.on_summary = store, on_summary
        self.machine = machine_facts()
        self.threads = settings.threads or int(self.machine["cores"])
        self.limits = {"minutes": settings.minutes, "memory_gb": settings.memory_gb or 0.0}
        self.perturbations = PERTURBATIONS if settings.robustness and splits.test.features is None else ()
        facts = splits.facts(settings.convention.unseen)
        self.data_fingerprint = facts["fingerprint"]
        stored = store.read_json(DATA)
        if stored is not None and stored.get("fingerprint") != self.data_fingerprint:
            raise DataError(f"{store.folder} holds a comparison on other data. Choose another folder (--out).")
        store.write_json(DATA, facts)
        known = (store.read_json(MACHINE) or {}).get("peers_versions", {})
        run_with = {"threads": self.threads, "seed": settings.seed, "peers_versions": known | versions}
        store.write_json(MACHINE, self.machine | run_with)

    def run(self) -> dict[str, Any]:
        self._measure_stored_entries()
        plans = self.settings.entries
        for number, planned in enumerate(plans, 1):
            progress = f"[{number}/{len(plans)}] {planned.name}"
            fingerprint = self._fingerprint(planned)
            if self._is_stored(planned, fingerprint):
                log.info("%s: already stored", progress)
                continue
            log.info("%s …", progress)
            entry = self._run_entry(planned, fingerprint)
            self.store.save(planned.file_name, entry)
            log.info("%s: %s", progress, _one_line(entry))
            self._summarise()
        summary = self._summarise()
        shutil.rmtree(self.store.work, ignore_errors=True)
        return summary

    def _summarise(self) -> dict[str, Any]:
        order = [entry.file_name for entry in self.settings.entries]
        summary = summarise(self.store, self.splits, order, self.settings.seed)
        self.on_summary(summary)
        return summary

    def _options(self, planned: EntryPlan) -> dict[str, Any]:
        if planned.labels_per_cluster is None:
            return planned.options
        return {N_CLUSTERS: -(-self.splits.train.n_labels // planned.labels_per_cluster)} | planned.options

    def _fingerprint(self, planned: EntryPlan) -> str:
        """A hash of everything that determines what an entry measures."""
        versions = self.machine["versions"]
        if planned.peer is not None:
            versions = {"shortlist": versions["shortlist"], "peer": self.peer_versions.get(planned.peer.package)}
        identity = {
            "data": self.data_fingerprint,
            "entry": [planned.kind, planned.recipe or planned.name, planned.ensemble, self._options(planned)],
            "seed": self.settings.seed,
            "threads": self.threads,
            "texts": self.settings.latency_texts,
            "machine": [self.machine["cpu"], self.machine["cores"]],
            "versions": versions,
        }
        return hashlib.sha256(msgspec.json.encode(identity, order="deterministic")).hexdigest()[:16]

    def _is_stored(self, planned: EntryPlan, fingerprint: str) -> bool:
        """Whether the entry need not run: it is done, or it failed within the same limits."""
        entry = self.store.load(planned.file_name)
        if entry is None or entry.fingerprint != fingerprint or {ALL, planned.name} & set(self.settings.rerun):
            return False
        if entry.status == "done":
            return set(self.perturbations) <= set(entry.robustness)
        return entry.status == "failed" and entry.limits == self.limits

    def _run_entry(self, planned: EntryPlan, fingerprint: str) -> Entry:
        entry = Entry(
            name=planned.name,
            kind=planned.kind,
            title=planned.title,
            status="skipped",
            note=self._why_skipped(planned),
            fingerprint=fingerprint,
            limits=self.limits,
            run_with={"threads": self.threads, "seed": self.settings.seed, "processor": self.machine["cpu"]},
            options=self._options(planned),
        )
        if entry.note:
            return entry
        work = self.store.work / planned.file_name
        seconds_before = self._write_job(planned, work, fingerprint)
        outcome = self._run_process(planned, work, seconds_before)
        entry.status, entry.note = _verdict(outcome, self.store.log_file(planned.file_name), self.limits)
        if entry.status == "done":
            try:
                self._collect(entry, planned.file_name, work, outcome.peak_bytes, seconds_before)
            except DataError as error:
                entry.status, entry.note = "failed", str(error)
        shutil.rmtree(work, ignore_errors=True)
        return entry

    def _why_skipped(self, planned: EntryPlan) -> str:
        """Why an entry cannot run; empty if it can."""
        peer, train = planned.peer, self.splits.train
        needs_text = get_recipe(planned.recipe).takes == ("texts",) if peer is None else peer.needs_text
        if needs_text and train.features is not None:
            return "it needs texts, but the data has features"
        if peer is None:
            return ""
        if self.settings.peers_python is None:
            return "no Python for the other tools: run `make peers`, or name one with --peers-python"
        if peer.package not in self.peer_versions:
            return f"{peer.package} is not installed for {self.settings.peers_python}"
        if peer.needs and peer.needs not in planned.options:
            return f"it needs an option: --peers {peer.name}:{peer.needs}=..."
        pairs = train.n_labels * len(train)
        if pairs > peer.max_pairs:
            return f"too large: {pairs:.1e} labels times texts (limit {peer.max_pairs:.0e})"
        return ""

    def _write_job(self, planned: EntryPlan, work: Path, fingerprint: str) -> float:
        """Write the job; return how many seconds an interrupted run has already taken."""
        mark, seconds_before = work / "fingerprint", 0.0
        resume = mark.exists() and mark.read_text() == fingerprint and (work / CHECKPOINTS).exists()
        if resume:
            with contextlib.suppress(OSError, ValueError):
                seconds_before = float((work / "seconds").read_text())
        else:
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            mark.write_text(fingerprint)
            self.store.log_file(planned.file_name).unlink(missing_ok=True)
        settings = self.settings
        job = Job(
            folder=str(work),
            seed=settings.seed,
            threads=self.threads,
            k=self.splits.k,
            perturbations=list(self.perturbations),
            latency_texts=settings.latency_texts,
            source=settings.source,
            reading=settings.reading,
            drop_leaks=settings.drop_leaks,
            fingerprint=self.data_fingerprint,
            recipe=planned.recipe,
            ensemble=planned.ensemble,
            options=self._options(planned),
            resume=resume,
        )
        if planned.peer is not None:
            variant = "-".join(map(str, [*self.perturbations, settings.latency_texts, settings.seed]))
            data = self.store.work / f"peer-data-{variant}"
            write_peer_data(data, self.splits, self.perturbations, settings.latency_texts, settings.seed)
            job.peer_data = str(data)
        (work / "job.json").write_bytes(msgspec.json.encode(job))
        return seconds_before

    def _run_process(self, planned: EntryPlan, work: Path, seconds_before: float) -> runner.Outcome:
        job = str(work / "job.json")
        command = [sys.executable, "-m", "shortlist.compare.run_recipe", job]
        if planned.peer is not None:
            assert self.settings.peers_python is not None
            command = [self.settings.peers_python, str(planned.peer.script), planned.peer.name, job]

        def note_seconds(seconds: float) -> None:
            (work / "seconds").write_text(f"{seconds_before + seconds:.1f}")

        limit = self.settings.memory_gb
        return runner.run(
            command,
            self.store.log_file(planned.file_name),
            environment=dict.fromkeys(THREAD_VARIABLES, str(self.threads)) | {"PYTHONUNBUFFERED": "1"},
            seconds=max(60 * self.settings.minutes - seconds_before, 1),
            memory=DEFAULT_MEMORY_FRACTION * free_memory() if limit is None else limit * GB,
            can_stop=planned.peer is None,
            on_check=note_seconds,
        )

    def _collect(self, entry: Entry, file_name: str, work: Path, peak_bytes: int, seconds_before: float) -> None:
        """Check the results of a process, measure its predictions, and store them."""
        measured = read_measured(work)
        n_texts, n_labels = len(self.splits.test), self.splits.train.n_labels
        predictions = read_predictions(work, n_texts, n_labels, self.perturbations)
        for name in Measured.__struct_fields__:
            setattr(entry, name, getattr(measured, name))
        entry.peak_memory_bytes = max(peak_bytes, measured.peak_memory_bytes or 0) or None
        if seconds_before:
            assert measured.train_seconds is not None
            entry.train_seconds = measured.train_seconds + seconds_before
            entry.note = "was interrupted and resumed; its training time includes work that was done twice"
        self.store.save_arrays(f"{file_name}.predictions", predictions)
        self._measure(entry, file_name, predictions)
        if self.settings.keep_models and (work / MODEL).exists():
            kept = self.store.folder / "models" / file_name
            kept.parent.mkdir(exist_ok=True)
            shutil.rmtree(kept, ignore_errors=True)
            (work / MODEL).rename(kept)

    def _measure(self, entry: Entry, file_name: str, predictions: dict[str, np.ndarray]) -> None:
        resampled = measure(entry, predictions, self.splits, self.settings.convention)
        self.store.save_arrays(f"{file_name}.resamples", resampled)

    def _measure_stored_entries(self) -> None:
        """Measure stored predictions again if the convention has changed; remove entries with damaged files."""
        for file_name, entry in self.store.load_all().items():
            if entry.status != "done":
                continue
            try:
                predictions = self.store.load_arrays(f"{file_name}.predictions")
                self.store.load_arrays(f"{file_name}.resamples")
                if entry.measured_with != msgspec.to_builtins(self.settings.convention):
                    self._measure(entry, file_name, predictions)
                    self.store.save(file_name, entry)
            except (DataError, KeyError) as error:
                log.info("%s has damaged files and is discarded (%s)", entry.name, error)
                (self.store.entries / f"{file_name}.json").unlink()


def _verdict(outcome: runner.Outcome, log_file: Path, limits: dict[str, float]) -> tuple[Any, str]:
    """The status of an entry, and a note."""
    lines = [line.strip() for line in log_file.read_text(errors="replace").splitlines() if line.strip()]
    last_line = lines[-1] if lines else ""
    if outcome.end == "time":
        return "failed", f"exceeded the time limit of {limits['minutes']:g} minutes"
    if outcome.end == "memory":
        return "failed", f"exceeded the memory limit: {outcome.peak_bytes / GB:.1f} GB"
    if outcome.code == CANNOT_RUN:
        return "skipped", last_line
    if outcome.code < 0:
        name = signal.Signals(-outcome.code).name
        return "failed", f"was ended by {name}" + (f"; last output: {last_line}" if last_line else "")
    if outcome.code:
        return "failed", last_line or f"ended with exit code {outcome.code}"
    return "done", ""


def _one_line(entry: Entry) -> str:
    if entry.status != "done":
        return f"{entry.status}: {entry.note}"
    scores = ", ".join(f"{metric} {entry.scores[metric]:.2f}" for metric in ("P@1", "P@5", "PSP@1"))
    latency = "" if entry.ms_p50 is None else f", {entry.ms_p50:.3f} ms per text"
    return f"{scores}, trained in {entry.train_seconds or 0:,.1f} s{latency}"
