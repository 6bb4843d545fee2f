"""`tokenselect evaluate CHECKPOINT DATASET --views 5x1`."""

import csv
import json
import math
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

from tokenselect.checkpoints import info_of, plan_of
from tokenselect.cli.options import TORCH, ClipOptions, RuntimeOptions
from tokenselect.cli.terminal import check_folder, counting, make_table
from tokenselect.data import VideoDataset, parse_views
from tokenselect.data.clips import SeenFrames
from tokenselect.data.synthetic import SyntheticActions
from tokenselect.inference.bulk import answer_batches, read_and_answer, read_batches
from tokenselect.inference.predict import lean_rule
from tokenselect.insertion import selectors_of
from tokenselect.locking import write_whole, writing
from tokenselect.measure.accuracy import AccuracyCounter, Runner
from tokenselect.measure.cost import count_macs
from tokenselect.measure.recall import measure_recall
from tokenselect.training.build import recipe_of
from tokenselect.training.data import ClipSet
from tokenselect.visualization.pictures import draw_confusion


def evaluate(
    checkpoint: str,
    dataset: str,
    *,
    options: ClipOptions,
    engine: RuntimeOptions = TORCH,
    views: str = "1x1",
    plan: str | None = None,
    method: str | None = None,
    batch_size: int = 8,
    output: str | None = None,
    predictions: str | None = None,
    confusion: str | None = None,
) -> None:
    """Test a trained model: accuracy, cost and time per video.

    Args:
        checkpoint: a run's folder (its best), a checkpoint's folder or its weights' file.
        dataset: "test", "val" or "train" of the model's recipe, "synthetic", or annotations (a
            file or a folder of class folders).
        options: how clips are found and read.
        engine: what runs the model.
        views: clips x crops of each video, averaged after the softmax: 5x1, 4x3, 1x3.
        plan: what to select, in place of the trained plan; "dense" selects nothing.
        method: how to select, in place of the trained method.
        batch_size: videos per forward pass.
        output: JSON file for the results.
        predictions: CSV file for the answer for each video.
        confusion: picture (.png) of which class was mistaken for which, and how often.
    """
    check_folder(output, predictions, confusion)
    model = options.load(checkpoint, plan=plan, method=method)
    clips = options.find(model, dataset, views=views)
    run = engine.pick(model, batch=batch_size)(model)
    results, scores, labels = measure(
        model, clips, views=views, batch_size=batch_size, workers=options.workers, run=run
    )
    results = {"checkpoint": checkpoint, "dataset": dataset, **results}
    print_results(results)
    if output is not None:
        write_whole(output, json.dumps(results, indent=2) + "\n")
    if predictions is not None:
        with writing(predictions) as unfinished:
            write_predictions(unfinished, clips, scores, labels)
    if confusion is not None:
        with writing(confusion) as unfinished:
            draw_confusion(results["confusion"], list(results["per_class"])).save(unfinished)
    if written := [file for file in (output, predictions, confusion) if file]:
        Console(soft_wrap=True).print("written: " + ", ".join(written), highlight=False)


def write_predictions(path: Path, clips: ClipSet, scores: Tensor, labels: Tensor) -> None:
    """Write the answer to each video as CSV, in the order of the data set; none to a broken one."""
    names, samples = clips.class_names, getattr(clips.dataset, "samples", None)
    broken = getattr(clips.dataset, "failures", {})  # another video was answered in their place
    with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["video", "label", "answer", "probability", "right"])
        for number, (row, label) in enumerate(zip(scores, labels.tolist(), strict=True)):
            answer, probability = int(row.argmax()), f"{float(row.max()):.4f}"
            truth = [names[label], int(label == answer)] if label >= 0 else ["", ""]
            name = number if samples is None else samples[number].path
            told = ["", ""] if name in broken else [names[answer], probability]
            writer.writerow([name, truth[0], *told, truth[1]])


def measure(
    model: nn.Module, clips: ClipSet, *, views: str, batch_size: int, workers: int, run: Runner
) -> tuple[dict[str, Any], Tensor, Tensor]:
    """Measure accuracy, multiply-adds and time, reading included; give scores and labels, too."""
    info, data = info_of(model), recipe_of(model).data
    if isinstance(clips.dataset, VideoDataset) and (seen := lean_rule(model).seen):
        clips.dataset.sampler = SeenFrames(clips.dataset.sampler, seen)
    workers = max(workers, torch.get_num_threads()) if workers else 0
    read = partial(read_batches, dataset=clips.dataset, collate=clips.collate, batch=batch_size)
    answer = partial(answer_batches, run=run, device=next(model.parameters()).device)
    how: dict[str, Any] = {"model": model, "workers": workers, "is_torch": run is model}
    numbers, answers = range(-(-len(clips) // batch_size)), []
    with counting("testing", len(clips)) as advance:
        gmacs = count_macs(model, 1, 3, data.frames, data.size, data.size).gmacs
        start = time.perf_counter()
        for answered in read_and_answer(numbers, read, answer, **how):
            answers.append(answered)
            advance(len(answered[2]))
    answers.sort(key=lambda answered: answered[0])
    scores, labels = (torch.cat([answered[n] for answered in answers]) for n in (1, 2))
    seconds = time.perf_counter() - start
    counter = AccuracyCounter(len(info.id2label))
    counter.add(scores, labels)
    accuracy = counter.result()
    shares = [None if share != share else share for share in accuracy.per_class.tolist()]
    results = {
        "model": info.name,
        "plan": str(plan_of(model)),
        "views": views,
        **{name: getattr(accuracy, name) for name in ("top1", "top5", "mean_class", "num_videos")},
        "per_class": dict(zip(info.class_names, shares, strict=True)),
        "confusion": accuracy.confusion.tolist(),
        "gmacs_per_view": gmacs,
        "gmacs_per_video": gmacs * math.prod(parse_views(views)),
        "seconds_per_video": seconds / len(clips),
        "replaced_videos": clips.count_replaced(),
    }
    if isinstance(clips.dataset, SyntheticActions) and selectors_of(model) is not None:
        results["recall"] = measure_recall(model, clips.dataset)
    return results, scores, labels


def print_results(results: dict[str, Any]) -> None:
    """Print the results, the classes from the worst on."""
    print(f"{results['model']}, plan {results['plan']}, {results['views']} views")
    table = make_table("figure", "value")
    formats = dict.fromkeys(("top1", "top5", "mean_class"), ".2%")
    formats |= dict.fromkeys(("num_videos", "replaced_videos"), "d")
    formats |= dict.fromkeys(("gmacs_per_view", "gmacs_per_video", "seconds_per_video"), ".4g")
    for name, form in formats.items():
        table.add_row(name, f"{results[name]:{form}}")
    for site, share in results.get("recall", {}).items():
        table.add_row(f"recall at {site}", f"{share:.2%}")
    Console().print(table)
    worst = sorted((s, n) for n, s in results["per_class"].items() if s is not None)
    print("weakest classes: " + ", ".join(f"{n} {s:.0%}" for s, n in worst[:5]))
