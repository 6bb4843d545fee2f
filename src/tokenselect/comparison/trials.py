"""Trials: train a recipe if it is to be trained, test the model at some plans, write the results.

    python -m tokenselect.comparison.trials TRIAL.json

runs one in a process of its own, so that none can break another. A result is a file that is there
when it is whole: a trial that was stopped goes on from its last checkpoint, and one that is
finished does nothing.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tokenselect.checkpoints import load_model
from tokenselect.comparison.oracle import GUIDED, guide_clips, guide_model
from tokenselect.data.synthetic import SyntheticActions
from tokenselect.inference.memory import keep_freed_memory
from tokenselect.insertion import selectors_of
from tokenselect.locking import write_whole
from tokenselect.measure.accuracy import count_answers
from tokenselect.measure.cost import be_silent, count_macs
from tokenselect.measure.recall import measure_recall
from tokenselect.selectors.selector import FrameMerger, TokenMerger
from tokenselect.training.build import build_model
from tokenselect.training.data import ClipSet, build_test_set
from tokenselect.training.distributed import choose_device
from tokenselect.training.recipe import DataRecipe, recipe_from_dict
from tokenselect.training.run import train

BATCH = 16
SKIPPED = "-"  # in place of 0 or 1: the clip has no label, or its video cannot be read


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What is trained and where it is tested."""

    key: str  # follows from all that the result depends on
    title: str  # for people
    recipe: dict[str, Any]  # plain values of the run, its folder named by the key
    results: dict[str, str] = field(default_factory=dict)  # plan of a test to its result's file
    is_trained: bool = True  # else the starting weights are tested
    is_oracle: bool = False  # the selection is told the truth
    needs: str | None = None  # key of the trial whose weights this one starts from
    views: str = "1x1"  # clips x crops of a test
    refusal: str | None = None  # why a site cannot have the method; such a trial is not run

    @property
    def is_done(self) -> bool:
        """Tell whether all results are there that can be."""
        return bool(self.refusal) or all(Path(path).is_file() for path in self.results.values())


def run_trial(trial: Trial) -> None:
    """Train and test; what is there already is not done again."""
    if trial.is_done:
        return
    recipe = recipe_from_dict(trial.recipe)
    if recipe.threads is not None:
        torch.set_num_threads(recipe.threads)
    start = time.perf_counter()
    if trial.is_trained:
        train(recipe, resume=True, changes=GUIDED if trial.is_oracle else None)
    minutes = (time.perf_counter() - start) / 60
    for plan, path in trial.results.items():
        if not Path(path).is_file():
            model, clips = prepare_test(trial, plan)
            torch.manual_seed(recipe.seed)  # random selection draws anew in every pass
            found = measure_model(model, clips, recipe.data, is_guided=trial.is_oracle)
            about = {"key": trial.key, "title": trial.title, "plan": plan, "seed": recipe.seed}
            write_json(path, {**about, "minutes": minutes, **found, "recipe": trial.recipe})


def prepare_test(trial: Trial, plan: str) -> tuple[nn.Module, ClipSet]:
    """Build the model as it is tested at a plan, and the clips."""
    recipe = recipe_from_dict(trial.recipe)
    clips = build_test_set(recipe.data, "test", views=trial.views)
    if trial.is_trained:
        model = load_model(recipe.folder / "last", plan=plan)
    else:
        torch.manual_seed(recipe.seed)
        shape = {"frames": recipe.data.frames, "size": recipe.data.size}
        asked = replace(recipe.model, plan=plan)
        model, _ = build_model(asked, class_names=clips.class_names, **shape)
    if trial.is_oracle:
        guide_model(model)
        clips = guide_clips(clips)
    return model.eval(), clips


@torch.no_grad()
def measure_model(
    model: nn.Module, clips: ClipSet, data: DataRecipe, *, is_guided: bool = False
) -> dict[str, Any]:
    """Test a model on all clips; those without a label are skipped, as in `tokenselect evaluate`.

    A clip whose video cannot be read has no label; guided clips carry the truth, too. Gives top1
    and top5 of the labelled clips, `correct` (one character per clip: 1, 0 or `SKIPPED`),
    `skipped` (how many), `gmacs` of a view, and on synthetic actions `recall` by site.
    """
    device, correct = choose_device(), list[str]()

    def mark(scores: Tensor, labels: Tensor) -> None:
        pairs = zip(scores.argmax(dim=1).tolist(), labels.tolist(), strict=True)
        correct.extend(SKIPPED if y < 0 else str(int(x == y)) for x, y in pairs)

    batches, count = clips.batches(BATCH, workers=data.workers), len(clips.class_names)
    counter, _ = count_answers(
        model.to(device), batches, num_classes=count, device=device, on_batch=mark
    )
    skipped = correct.count(SKIPPED)
    if skipped == len(correct):
        raise ValueError(f"none of the {skipped} test clips has a label and can be read")
    accuracy = counter.result()
    shape = 1, 4 if is_guided else 3, data.frames, data.size, data.size
    kinds = {type(selector) for selector in (selectors_of(model) or {}).values()}
    drops = bool(kinds) and not kinds & {FrameMerger, TokenMerger}  # which keep a bit of all
    has_recall = drops and isinstance(clips.dataset, SyntheticActions)
    return {
        "top1": accuracy.top1,
        "top5": accuracy.top5,
        "correct": "".join(correct),
        "skipped": skipped,
        "gmacs": count_macs(model, *shape).gmacs,
        "recall": measure_recall(model, clips.dataset) if has_recall else {},  # type: ignore[arg-type]
    }


def write_json(path: str | Path, values: object) -> None:
    """Write a file whole or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(values, indent=1) + "\n")


OnDone = Callable[[Trial, str | None], object]  # told which one ended, and what went wrong


def run_trials(
    trials: Sequence[Trial], *, folder: Path, workers: int, on_done: OnDone = be_silent
) -> dict[str, str]:
    """Run all trials that are not done; one that fails stops only those that need it.

    `folder` is for logs; the others are those of `run_comparison`. Gives the errors by key.
    """
    errors: dict[str, str] = {}
    done = {trial.key for trial in trials if trial.is_done}
    waiting = [trial for trial in trials if trial.key not in done]
    running: dict[Future[str | None], Trial] = {}
    processes, pool = TrialProcesses(folder), ThreadPoolExecutor(max(workers, 1))
    run = processes.run if workers else run_here

    def finish(trial: Trial, error: str | None) -> None:
        if error is None:
            done.add(trial.key)
        else:
            errors[trial.key] = error
        on_done(trial, error)

    try:
        while waiting or running:
            for trial in [trial for trial in waiting if trial.needs in errors]:
                waiting.remove(trial)
                finish(trial, "not run: the model it starts from failed")
            ready = [trial for trial in waiting if trial.needs is None or trial.needs in done]
            for trial in ready[: max(workers, 1) - len(running)]:
                waiting.remove(trial)
                running[pool.submit(run, trial)] = trial
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                finish(running.pop(future), future.result())
    finally:
        processes.stop()
        pool.shutdown(cancel_futures=True)
    return errors


def run_here(trial: Trial) -> str | None:
    """Run a trial in this process; return what went wrong."""
    try:
        run_trial(trial)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


class TrialProcesses:
    """Starts processes and ends those that still run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lock, self.is_stopped = folder, threading.Lock(), False
        self.started: list[subprocess.Popen[bytes]] = []

    def run(self, trial: Trial) -> str | None:
        """Run a trial in a process of its own; return the end of its log if it fails."""
        path = self.folder / "jobs" / f"{trial.recipe['name']}.json"
        log = path.with_suffix(".log")
        write_json(path, asdict(trial))
        places = os.pathsep.join(part for part in sys.path if part)
        threads = str(trial.recipe["threads"] or 1)
        environment = {**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": threads}
        command = [sys.executable, "-m", "tokenselect.comparison.trials", str(path)]
        with log.open("w") as file:
            with self.lock:
                if self.is_stopped:
                    return "stopped"
                process = subprocess.Popen(
                    command, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file
                )
                self.started.append(process)
            code = process.wait()
        if code == 0 and trial.is_done:
            return None
        last = [line for line in log.read_text().splitlines() if line.strip()][-1:]
        return f"{last[0] if last else f'ended with code {code}'} (see {log})"

    def stop(self) -> None:
        """End what still runs; a later start goes on from its last checkpoint."""
        with self.lock:
            self.is_stopped = True
            for process in self.started:
                process.terminate()


def end_with(parent: int) -> None:
    """End this process when the one that started it is gone, so that none trains unseen."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=end_with, args=[os.getppid()], daemon=True).start()
    keep_freed_memory()
    run_trial(Trial(**json.loads(Path(sys.argv[1]).read_text())))
