"""Training of ensembles: one recipe with consecutive seeds, one model after the other or several at once in processes.

Every member is saved as soon as it is trained, and all are loaded in the end. So no more than one is in memory while
another is trained, and a resumed training has lost none that was finished.
"""

from __future__ import annotations

import contextlib
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
from dataclasses import dataclass, replace
from multiprocessing import connection, resource_tracker
from pathlib import Path
from pickle import PicklingError
from typing import Any

from shortlist.data.dataset import Dataset
from shortlist.data.records import ReadReport
from shortlist.errors import DataError, OptionError, ShortlistError, Stopped
from shortlist.model.folder import load
from shortlist.model.model import Model
from shortlist.progress import Progress
from shortlist.recipes.options import Options
from shortlist.recipes.recipe import Recipe
from shortlist.stages.calibration import Calibration
from shortlist.training import memory
from shortlist.training.checkpoints import FACTS, Checkpoints
from shortlist.training.interrupts import SIGNALS
from shortlist.training.train import train_one

log = logging.getLogger("shortlist")

MEMBER, FINISHED, MODEL = "member-", "finished", "model"


def train_ensemble(recipe: Recipe, dataset: Dataset, options: Options, n_members: int, parallel: int = 1) -> Model:
    """Train members with the seeds `options.seed`, `options.seed + 1`, …, `parallel` of them at the same time."""
    if recipe.is_baseline:
        raise OptionError(
            f"nothing in recipe {recipe.name!r} is random: an ensemble of it would be {n_members} times the same "
            "model. Leave ensemble out, or choose another recipe."
        )
    at_once = min(parallel, n_members)
    if at_once > 1:
        options = options.replace(threads=max(1, options.threads // at_once))
    options = options.replace(minutes=options.get("minutes", 0.0) * at_once / n_members)
    in_parallel = f", {at_once} at once" if at_once > 1 else ""
    log.info("training %s × %d, seeds from %d on%s", recipe.name, n_members, options.seed, in_parallel)
    with contextlib.ExitStack() as stack:
        checkpoint_dir = options.checkpoint_dir
        folder = Path(checkpoint_dir or stack.enter_context(tempfile.TemporaryDirectory(prefix="shortlist-")))
        fingerprint = dataset.fingerprint()
        members = [_Member.of(i, recipe, options, folder, fingerprint) for i in range(n_members)]
        if checkpoint_dir and not options.resume:
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
                kept = f"the checkpoints are in {checkpoint_dir}. To continue, rerun with --resume"
                lost = "nothing is saved, because there was no checkpoint_dir"
                raise Stopped(f"stopped; {kept if checkpoint_dir else lost}") from None
        return combine([member.load() for member in members])


def combine(models: list[Model]) -> Model:
    """The ensemble of models that were trained on the same data."""
    first = models[0]
    facts = {name: fact for name, fact in first.facts.items() if name in ("data", "examples")}
    # All members know the same frequencies. The smallest of their tails costs none of them too much.
    rankings = [model.tail_ranking for model in models if model.tail_ranking is not None]
    tails = [ranking.auto for ranking in rankings if ranking.auto is not None]
    ensemble = Model(
        first.recipe,
        {**first.options, "ensemble": len(models)},
        [pipeline for model in models for pipeline in model.pipelines],
        first.label_names,
        first.display_names,
        Calibration.mean([model.calibration for model in models]),
        facts,
        first.records,
        tail_ranking=rankings[0].with_auto(min(tails, default=None)) if rankings else None,
    )
    ensemble.kept_texts = first.kept_texts
    return ensemble


def refuse_other_kind(checkpoint_dir: str, ensemble: bool) -> None:
    """Refuse checkpoints of a single model where an ensemble is trained, and the other way round.

    Neither knows the files of the other, and would remove them in the end.
    """
    for facts in Path(checkpoint_dir).rglob(FACTS):
        if facts.relative_to(checkpoint_dir).parts[0].startswith(MEMBER) != ensemble:
            there, wanted = ("a single model", "an ensemble") if ensemble else ("an ensemble", "a single model")
            raise DataError(
                f"{checkpoint_dir} holds an interrupted training of {there}, and this is one of {wanted}. Resume with "
                "the same options, or remove the folder to start over."
            )


@dataclass(frozen=True)
class _Member:
    """A member: how it is trained, and the folder with its checkpoints and, in the end, its model.

    recipe  without its options, which are resolved: their defaults may be functions that cannot be sent to a process
    """

    name: str
    recipe: Recipe
    options: Options
    folder: Path
    finished: Checkpoints

    @staticmethod
    def of(number: int, recipe: Recipe, options: Options, folder: Path, fingerprint: str) -> _Member:
        name = f"{MEMBER}{number}"
        options = options.replace(seed=options.seed + number)
        if options.checkpoint_dir:
            options = options.replace(checkpoint_dir=str(folder / name))
        identity = {"recipe": recipe.name, **options.model_options(), "data": fingerprint}
        finished = Checkpoints(folder / name / FINISHED, identity)
        return _Member(name, replace(recipe, options=(), published={}), options, folder / name, finished)

    def is_finished(self) -> bool:
        """Whether its model is there; an error if it belongs to another training."""
        finished = self.finished.load() is not None
        if finished:
            log.info("%s is trained already", self.name)
        return finished

    def train(self, dataset: Dataset) -> None:
        """Train it, and leave the model in its folder."""
        log.info("training %s, seed %d", self.name, self.options.seed)
        model = train_one(self.recipe, dataset, self.options)
        shutil.rmtree(self.finished.folder, ignore_errors=True)  # a model without the mark: killed here before
        model.save(self.finished.folder / MODEL, bits=32)  # the ensemble decides later how it is stored
        self.finished.save({}, {})  # the mark
        for facts in list(self.folder.rglob(FACTS)):
            if facts.parent.parent != self.finished.folder:
                shutil.rmtree(facts.parent)  # checkpoints are larger than models; the curves stay

    def load(self) -> Model:
        return load(self.finished.folder / MODEL)


def _train_at_once(members: list[_Member], dataset: Dataset, at_once: int) -> None:
    """Train members in processes of their own. If one fails, or on Ctrl-C, all are stopped in an orderly way."""
    dataset = replace(dataset, report=ReadReport())  # the other processes have no use for it
    waiting, n_starting = list(members), min(at_once, len(members))
    running: dict[Any, tuple[_Member, Any]] = {}  # a member and its process, by the pipe that the answer comes through
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                with _without_ctrl_c():
                    answers, process = _start(waiting[0], dataset, n_starting)
                    running[answers] = waiting.pop(0), process
            n_starting = 1
            for answers in connection.wait(list(running)):
                _raise_error(answers, *running.pop(answers))
    finally:
        _stop([process for _, process in running.values()])


def _start(member: _Member, dataset: Dataset, n_starting: int) -> tuple[Any, Any]:
    """The pipe through which the process of a member will answer, and the process."""
    context = multiprocessing.get_context("spawn")
    answers, answer = context.Pipe(duplex=False)
    arguments = (member, dataset, n_starting, log.getEffectiveLevel(), answer)
    process = context.Process(target=_train_member, args=arguments, daemon=True)
    try:
        process.start()
    except BrokenPipeError:
        pass  # it ended before it knew what to do; its missing answer says so
    except (PicklingError, AttributeError) as error:
        raise OptionError(
            f"recipe {member.recipe.name!r} cannot be sent to another process ({error}). Define its encoder at the top "
            "level of a module, or leave parallel out."
        ) from None
    answer.close()
    return answers, process


def _raise_error(answers: Any, member: _Member, process: Any) -> None:
    """Raise the error with which the process of a member ended, if there was one."""
    try:
        error = answers.recv()
        process.join()
    except EOFError:
        error = _ended_early(member, process)
    if error is not None:
        raise error


def _ended_early(member: _Member, process: Any) -> ShortlistError:
    if process.pid is not None:
        process.join()
    if process.exitcode is not None and process.exitcode < 0:
        return ShortlistError(
            f"the process of {member.name} was killed by {signal.Signals(-process.exitcode).name}. If memory was "
            "short, train fewer members at the same time (parallel)."
        )
    return ShortlistError(
        f"the process of {member.name} ended early; its messages above may say why. A script that trains in "
        'parallel must do so under `if __name__ == "__main__":`, because each process imports it.'
    )


def _stop(processes: list[Any]) -> None:
    """Interrupt all that still run, so that they save their work. A second Ctrl-C meanwhile kills them."""
    alive = [process for process in processes if process.is_alive()]
    try:
        for process in alive:
            os.kill(process.pid, signal.SIGINT)
        for process in alive:
            process.join()
    finally:
        for process in alive:
            process.kill()


@contextlib.contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back until the end of the block, and in a process started here until it is ready."""
    resource_tracker.ensure_running()  # starting it later would let signals in
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _train_member(member: _Member, dataset: Dataset, n_starting: int, level: int, answer: Any) -> None:
    """The work of the process: train the member, and answer with None or with the error."""
    os.setpgid(0, 0)  # a terminal's Ctrl-C goes to the parent, which passes it on: it must not come twice
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logging.basicConfig(format=f"{member.name}: %(message)s", level=level, stream=sys.stderr)
    Progress.bars, memory.n_parallel = False, n_starting
    error: BaseException | None = None
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a process started in the background ignores it
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        member.train(dataset)
    except BaseException as caught:  # noqa: BLE001 - the parent raises it
        error = _for_parent(caught)
    answer.send(error)


def _end_with_parent() -> None:
    """A killed parent cannot stop its children, and the next one will want to resume from the same checkpoints."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _for_parent(error: BaseException) -> BaseException:
    """The error in a form that can be sent to another process."""
    if isinstance(error, ShortlistError | OSError | MemoryError | KeyboardInterrupt):
        return error
    return RuntimeError("".join(traceback.format_exception(error)))
