"""One job: train a recipe if it is to be trained, test the model at some plans, write the results.

    python -m tokenselect.comparison.job JOB.json

runs one in a process of its own. A result is a file that is there when it is whole, so a job that
was stopped goes on where its last checkpoint was written, and one that is finished does nothing.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from tokenselect.checkpoints import load_model
from tokenselect.comparison.oracle import GUIDED, guide_clips, guide_model
from tokenselect.data.synthetic import SyntheticActions
from tokenselect.inference.memory import keep_freed_memory
from tokenselect.insertion import selectors_of
from tokenselect.measure.accuracy import score_views
from tokenselect.measure.cost import count_macs
from tokenselect.measure.recall import measure_recall
from tokenselect.selectors.merging import FrameMerger, TokenMerger
from tokenselect.training.build import build_model
from tokenselect.training.data import ClipSet, build_test_set
from tokenselect.training.distributed import default_device
from tokenselect.training.recipe import DataRecipe, Recipe, recipe_from_dict
from tokenselect.training.run import train

BATCH = 16


@torch.no_grad()
def measure_model(
    model: nn.Module, clips: ClipSet, data: DataRecipe, *, is_guided: bool = False
) -> dict[str, Any]:
    """Test a model on all clips.

    Args:
        model: in evaluation mode.
        clips: to test on, in a fixed order.
        data: shapes of the clips, and how many processes load them.
        is_guided: the clips carry the truth in a further channel.

    Returns:
        top1 and top5, `correct` (a character a clip, 1 for right), `gmacs` of a view, and on
        synthetic actions `recall` by site.
    """
    device = default_device()
    model.to(device)
    loader: DataLoader[Any] = DataLoader(
        clips.dataset, batch_size=BATCH, num_workers=data.workers, collate_fn=clips.collate
    )
    correct: list[int] = []
    among = 0
    for video, labels in loader:
        scores = score_views(model, video.to(device)).cpu()  # (b, classes)
        best = scores.topk(min(5, scores.shape[1]), dim=1).indices
        correct += (best[:, 0] == labels).int().tolist()
        among += int((best == labels[:, None]).any(dim=1).sum())
    channels = 4 if is_guided else 3
    found: dict[str, Any] = {
        "top1": sum(correct) / len(correct),
        "top5": among / len(correct),
        "correct": "".join(map(str, correct)),
        "gmacs": count_macs(model, 1, channels, data.frames, data.size, data.size).gmacs,
        "recall": {},
    }
    if isinstance(clips.dataset, SyntheticActions) and drops_tokens(model):
        found["recall"] = measure_recall(model, clips.dataset)
    return found


def drops_tokens(model: nn.Module) -> bool:
    """Tell whether a model keeps some tokens and not others; merging keeps a bit of all."""
    selectors = selectors_of(model)
    mergers = (FrameMerger, TokenMerger)
    return selectors is not None and not any(isinstance(s, mergers) for s in selectors.values())


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is trained and where it is tested.

    Attributes:
        key: follows from all that the result depends on.
        title: for people.
        recipe: plain values of the run, its folder named by the key.
        results: plan of a test to the file of its result.
        is_trained: else the starting weights are tested.
        is_oracle: the selection is told the truth.
        needs: key of the job whose weights this one starts from.
        views: clips x crops of a test.
        refusal: why the method cannot be at a site of the plan; such a job is not run.
    """

    key: str
    title: str
    recipe: dict[str, Any]
    results: dict[str, str] = field(default_factory=dict)
    is_trained: bool = True
    is_oracle: bool = False
    needs: str | None = None
    views: str = "1x1"
    refusal: str | None = None

    @property
    def is_done(self) -> bool:
        """Tell whether all results are there that can be."""
        return bool(self.refusal) or all(Path(path).is_file() for path in self.results.values())


def run_job(job: Job) -> None:
    """Train and test; what is there already is not done again."""
    if job.is_done:
        return
    recipe = recipe_from_dict(job.recipe)
    if recipe.threads is not None:
        torch.set_num_threads(recipe.threads)
    start = time.perf_counter()
    if job.is_trained:
        train(recipe, resume=True, changes=GUIDED if job.is_oracle else None)
    minutes = (time.perf_counter() - start) / 60
    for plan, path in job.results.items():
        if Path(path).is_file():
            continue
        model, clips = prepare_test(job, plan)
        torch.manual_seed(recipe.seed)  # random selection draws anew in every pass
        found = measure_model(model, clips, recipe.data, is_guided=job.is_oracle)
        about = {"key": job.key, "title": job.title, "plan": plan, "seed": recipe.seed}
        write_json(path, {**about, "minutes": minutes, **found, "recipe": job.recipe})


def prepare_test(job: Job, plan: str) -> tuple[nn.Module, ClipSet]:
    """Build the model as it is tested at a plan, and the clips."""
    recipe = recipe_from_dict(job.recipe)
    clips = build_test_set(recipe.data, "test", views=job.views)
    if job.is_trained:
        model = load_model(recipe.folder / "last", plan=plan)
    else:
        model = build_untrained(recipe, plan, num_classes=len(clips.class_names))
    if job.is_oracle:
        guide_model(model)
        clips = guide_clips(clips)
    return model.eval(), clips


def build_untrained(recipe: Recipe, plan: str, *, num_classes: int) -> nn.Module:
    """Build the model of the starting weights with the selectors of a plan."""
    torch.manual_seed(recipe.seed)
    return build_model(
        replace(recipe.model, plan=plan),
        num_classes=recipe.data.num_classes or num_classes,
        frames=recipe.data.frames,
        size=recipe.data.size,
    )


def write_json(path: str | Path, values: object) -> None:
    """Write a file whole or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(values, indent=1) + "\n")
    os.replace(unfinished, path)


def save_job(job: Job, path: Path) -> None:
    """Write a job for a process of its own."""
    write_json(path, asdict(job))


def end_with_parent() -> None:
    """End this process when the one that started it is gone, so that none trains unseen."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main(path: str) -> None:
    """Run the job of a file."""
    end_with_parent()
    keep_freed_memory()
    run_job(Job(**json.loads(Path(path).read_text())))


if __name__ == "__main__":
    main(sys.argv[1])
