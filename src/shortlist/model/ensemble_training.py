"""Training of ensembles: the same recipe with one seed after the other, or several at once in processes of their own.

Every member is saved as a model as soon as it is trained, and all are loaded in the end. So no more than one is in
memory while another is trained, one that was trained by another process is no different, and a training that is
resumed has lost none that was finished.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from multiprocessing import connection, resource_tracker
from pathlib import Path
from typing import Any

import numba
import numpy as np

from shortlist.data.dataset import Dataset
from shortlist.data.read_report import ReadReport
from shortlist.errors import DataError, ModelError, OptionError, ShortlistError, Stopped
from shortlist.lazy import sparse
from shortlist.model.base import Model
from shortlist.model.ensemble import EnsembleModel
from shortlist.model.folder import open_model
from shortlist.model.options import PASSING
from shortlist.progress import Progress
from shortlist.training import memory
from shortlist.training.checkpoints import FACTS, Checkpoints

log = logging.getLogger("shortlist")

MEMBER, FINISHED, MODEL = "member-", "finished", "model"


def train_ensemble(model_class: Any, dataset: Dataset, options: Any, n_members: int, parallel: int = 1) -> Model:
    """Train members with the seeds `options.seed`, `options.seed + 1`, …, `parallel` of them at once."""
    checkpoints, at_once = getattr(options, "checkpoints", ""), min(parallel, n_members)
    if at_once > 1 and getattr(options, "threads", 1) is None:
        cores: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
        options = replace(options, threads=max(1, cores // at_once))
    side_by_side = f", {at_once} at once" if at_once > 1 else ""
    log.info("training %s × %d, seeds from %d on%s", model_class.recipe, n_members, options.seed, side_by_side)
    with contextlib.ExitStack() as stack:
        folder = Path(checkpoints or stack.enter_context(tempfile.TemporaryDirectory(prefix="shortlist-")))
        data = _fingerprint(dataset)
        members = [_Member.of(number, model_class, options, folder, data) for number in range(n_members)]
        if checkpoints and not options.resume:
            for member in members:
                member.finished.refuse_to_overwrite()
        left = [member for member in members if not member.is_finished()]
        if at_once == 1:
            for member in left:
                member.train(dataset)
        else:
            try:
                _train_at_once(left, dataset, at_once)
            except KeyboardInterrupt:
                kept = f"the checkpoints are in {checkpoints}. To go on: --resume"
                none = "there was no folder for checkpoints, so nothing is kept"
                raise Stopped(f"stopped; {kept if checkpoints else none}") from None
        return EnsembleModel.of([member.load() for member in members])


def refuse_other_kind(checkpoints: str, ensemble: bool) -> None:
    """Refuse a folder of checkpoints of one model where an ensemble is to be trained, and the other way round.

    Neither knows the files of the other; they would be taken for waste in the end.
    """
    for facts in Path(checkpoints).rglob(FACTS):
        if facts.relative_to(checkpoints).parts[0].startswith(MEMBER) != ensemble:
            there, wanted = ("one model", "an ensemble") if ensemble else ("an ensemble", "one model")
            raise DataError(
                f"{checkpoints} holds an unfinished training of {there}, and this is one of {wanted}. Go on with the "
                "same options, or remove the folder to start over."
            )


@dataclass(frozen=True)
class _Member:
    """A member: how it is trained, and the folder with its checkpoints and in the end its model."""

    name: str
    model_class: Any
    options: Any
    folder: Path
    finished: Checkpoints

    @staticmethod
    def of(number: int, model_class: Any, options: Any, folder: Path, data: str) -> _Member:
        name = f"{MEMBER}{number}"
        options = replace(options, seed=options.seed + number)
        if getattr(options, "checkpoints", ""):
            options = replace(options, checkpoints=str(folder / name))
        given = {option: value for option, value in asdict(options).items() if option not in PASSING}
        identity = {"recipe": model_class.recipe, **given, "data": data}
        return _Member(name, model_class, options, folder / name, Checkpoints(folder / name / FINISHED, identity))

    def is_finished(self) -> bool:
        """Whether its model is there; an error if it is one of another training."""
        finished = self.finished.load() is not None
        if finished:
            log.info("%s is trained already", self.name)
        return finished

    def train(self, dataset: Dataset) -> None:
        """Train it, and leave the model in its folder."""
        log.info("training %s, seed %d", self.name, self.options.seed)
        model = self.model_class.train(dataset, self.options)
        shutil.rmtree(self.finished.folder, ignore_errors=True)  # a model without the mark: killed here before
        model.save(self.finished.folder / MODEL, bits=32)  # how the ensemble is stored is for later
        self.finished.save({}, {})  # the mark
        for facts in list(self.folder.rglob(FACTS)):
            if facts.parent.parent != self.finished.folder:
                shutil.rmtree(facts.parent)  # checkpoints are larger than models, and this is done; its curves stay

    def load(self) -> Model:
        return self.model_class.from_reader(open_model(self.finished.folder / MODEL))


def _fingerprint(dataset: Dataset) -> str:
    """Of all that a recipe may learn from."""
    texts, labels = dataset.texts, dataset.labels
    arrays = [texts.buffer[texts.offsets[0] : texts.offsets[-1]], texts.sizes, labels.indptr, labels.values]
    if labels.weights is not None:
        arrays.append(labels.weights)
    for matrix in (dataset.features, dataset.label_features):
        if matrix is not None:
            rows = sparse.csr_array(matrix)
            arrays += [rows.indptr, rows.indices, rows.data]
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{len(array)};".encode())
        digest.update(np.ascontiguousarray(array).data)
    for name in dataset.label_names:
        digest.update(f"{name}\n{dataset.display_name(name)}\n".encode())
    return digest.hexdigest()[:16]


def _train_at_once(members: list[_Member], dataset: Dataset, at_once: int) -> None:
    """Train members in processes of their own; if one fails, or Ctrl-C comes, all are stopped in an orderly way."""
    dataset = replace(dataset, report=ReadReport())  # what reading noticed is of no use there
    waiting = list(members)
    running: list[_Process] = []
    begin_together = min(at_once, len(waiting))
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(_Process(waiting.pop(0)))
                running[-1].start(dataset, begin_together)
            begin_together = 1
            ready = connection.wait([process.answers for process in running])
            for process in [process for process in running if process.answers in ready]:
                running.remove(process)
                process.result()
    finally:
        _stop(running)


class _Process:
    """A process that trains one member."""

    def __init__(self, member: _Member) -> None:
        self.member = member
        self._context = multiprocessing.get_context("spawn")
        self.answers, self._answer = self._context.Pipe(duplex=False)
        self.process: Any = None

    def start(self, dataset: Dataset, begin_together: int) -> None:
        arguments = (self.member, dataset, begin_together, log.getEffectiveLevel(), self._answer)
        self.process = self._context.Process(target=_train_member, args=arguments, daemon=True)
        try:
            with _without_ctrl_c():
                self.process.start()
        except BrokenPipeError:
            pass  # it ended before it had heard what to do; `result` will say so
        self._answer.close()

    def result(self) -> None:
        """Nothing, once it has trained its member; the error with which it ended otherwise."""
        try:
            error = self.answers.recv()
        except EOFError:
            error = self._died()
        self.join()
        if error is not None:
            raise error

    def join(self) -> None:
        if self.process is not None and self.process.pid is not None:
            self.process.join()

    def interrupt(self) -> None:
        if self.process is not None and self.process.is_alive():
            os.kill(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        if self.process is not None and self.process.is_alive():
            self.process.kill()

    def _died(self) -> ShortlistError:
        self.join()
        code = self.process.exitcode
        if code is not None and code < 0:
            return ShortlistError(
                f"the process of {self.member.name} was ended by {signal.Signals(-code).name}. If there was not enough "
                "memory, train fewer at once (parallel)."
            )
        return ShortlistError(
            f"the process of {self.member.name} ended before it was done; it may have said above why. A script that "
            'trains several at once must do so under `if __name__ == "__main__":`, for each process imports it.'
        )


def _stop(running: list[_Process]) -> None:
    """Ctrl-C for all that still run; they put their work away. A second Ctrl-C meanwhile ends them at once."""
    try:
        for process in running:
            process.interrupt()
        for process in running:
            process.join()
    finally:
        for process in running:
            process.kill()


@contextlib.contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Ctrl-C waits until the end of the block, and in a process that is started here until it is ready for it."""
    resource_tracker.ensure_running()  # multiprocessing starts it when first needed, and lets signals in after that
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _train_member(member: _Member, dataset: Dataset, begin_together: int, level: int, answer: Any) -> None:
    """What the process does: it trains the member, and answers with None or with the error that came between."""
    os.setpgid(0, 0)  # Ctrl-C on a terminal is for the parent, who passes it on: it should not come twice
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logging.basicConfig(format=f"{member.name}: %(message)s", level=level, stream=sys.stderr)
    Progress.bars, memory.side_by_side = False, begin_together
    error: BaseException | None = None
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # one started in the background would be deaf to it
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        member.train(dataset)
    except BaseException as caught:  # noqa: BLE001 - handed to the parent, who raises it
        error = _for_parent(caught)
    answer.send(error)


def _end_with_parent() -> None:
    """A parent that is killed cannot stop anybody, and the next one will want to go on with the same checkpoints."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _for_parent(error: BaseException) -> BaseException:
    """The error in a form that can go from process to process."""
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt()
    if isinstance(error, OSError):
        return OSError(error.errno, error.strerror, error.filename)
    for kind in (DataError, OptionError, ModelError, ShortlistError, MemoryError):
        if isinstance(error, kind):
            return kind(str(error))
    return RuntimeError("".join(traceback.format_exception(error)))
