"""What data cost while a tiny model trains: the wait in a step, and the work behind it.

Claim: with two workers, waiting is under 10 % of a step; with clips cached and the augmentation
for small sets, reading and augmenting also take under 10 % of the processor time.

    PYTHONPATH=src:. python benchmarks/data_loading.py --save benchmarks/results/data_loading.md

Without arguments it writes 340×256 videos of its own; `--dataset lsa64/clips.tsv` takes the
training part of LSA-20 instead. The model is mvit_mini on 16×64² clips, 16 a step.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tokenselect import create_model
from tokenselect.data import (
    AUGMENTATIONS,
    ClipCache,
    Sample,
    SegmentSampler,
    TableLayout,
    VideoDataset,
    collate_clips,
    open_video,
    read_annotations,
    seeded_generator,
    write_video,
)
from tokenselect.data.transforms import resize

SIZE, FRAMES, BATCH = 64, 16, 16
EPOCH = 700  # training clips of LSA-20
LSA_20 = TableLayout(names="sign", classes="23-61:2", where={"signer": "1-7"})


def write_samples(folder: Path, number: int = 48) -> list[Sample]:
    """Write short videos of drifting texture at the size of a resized Kinetics clip."""
    samples = []
    for index in range(number):
        coarse = torch.randint(0, 256, (1, 3, 20, 30), generator=seeded_generator(index)).byte()
        scene = resize(coarse, (256, 500))[0]
        frames = torch.stack([scene[..., t : t + 340] for t in range(120)])
        write_video(folder / f"{index}.mp4", frames, options={"preset": "veryfast"})
        samples.append(Sample(str(folder / f"{index}.mp4"), index % 5))
    return samples


def endless(loader: DataLoader) -> Iterator[tuple[Tensor, Tensor]]:
    """Go through the data again and again, drawing anew each time."""
    epoch = 0
    while True:
        loader.dataset.set_epoch(epoch)
        yield from loader
        epoch += 1


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, video: Tensor, y: Tensor
) -> None:
    """Take one plain training step."""
    loss = nn.functional.cross_entropy(model(video), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def measure(dataset: VideoDataset, model: nn.Module, *, workers: int, steps: int) -> dict:
    """Return seconds of a step: waiting, computing, and processor time without any loader."""
    loader = DataLoader(
        dataset,
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        collate_fn=collate_clips,
    )
    optimizer = torch.optim.AdamW(model.parameters())
    batches = endless(loader)
    waits, computes, alone = [], [], []
    for step in range(steps + 3):
        start = time.perf_counter()
        batch = next(batches)
        ready = time.perf_counter()
        train_step(model, optimizer, *batch)
        if step >= 3:  # the workers have filled their queues
            waits.append(ready - start)
            computes.append(time.perf_counter() - ready)
    del batches, loader
    for _ in range(steps // 2):
        start = time.process_time()
        train_step(model, optimizer, *batch)
        alone.append(time.process_time() - start)
    return {"wait": sum(waits) / steps, "compute": sum(computes) / steps,
            "alone": statistics.median(alone)}  # fmt: skip


def data_cost(dataset: VideoDataset, clips: int = 48) -> float:
    """Return the processor milliseconds of one clip in a single thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    start = time.process_time()
    for index in range(clips):
        dataset[index]
    torch.set_num_threads(threads)
    return 1e3 * (time.process_time() - start) / clips


def write_rows(samples: list[Sample], cache: ClipCache, steps: int) -> list[str]:
    """Measure each way of reading and augmenting."""
    rows = [
        "| reading | augmentation | waiting | an epoch of 700 clips, s "
        "| CPU ms a clip: data | model | data's share |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for sample in samples:
        cache.open(sample.path).close()
    for reading, opener in (("cached", cache.open), ("decoded", open_video)):
        for name in ("small", "mvit_kinetics"):
            torch.manual_seed(0)
            model = create_model("mvit_mini", num_classes=20, frames=FRAMES, size=SIZE).train()
            dataset = VideoDataset(
                samples,
                sampler=SegmentSampler(FRAMES),
                transform=AUGMENTATIONS[name](size=SIZE),
                is_training=True,
                open_source=opener,
            )
            cost = data_cost(dataset)
            took = measure(dataset, model, workers=2, steps=steps)
            step = took["wait"] + took["compute"]
            waiting, epoch = took["wait"] / step, step * EPOCH / BATCH
            model_cost = 1e3 * took["alone"] / BATCH
            rows.append(
                f"| {reading} | {name} | {waiting:.1%} | {epoch:.1f} | {cost:.1f} "
                f"| {model_cost:.1f} | {cost / (cost + model_cost):.1%} |"
            )
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Measure, print and, if asked, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", help="clips.tsv of LSA64")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2, help="of the model")
    parser.add_argument("--save", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.dataset:
            samples = read_annotations(arguments.dataset, table=LSA_20).samples
        else:
            samples = 15 * write_samples(Path(folder))  # an epoch as long as that of LSA-20
        rows = write_rows(
            samples, ClipCache(Path(folder) / "cache", short_side=72), arguments.steps
        )
    if arguments.save:
        data = "LSA-20" if arguments.dataset else "340×256 files"
        machine = f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"
        head = [
            f"# Waiting for data: {data}",
            "",
            f"`python {' '.join(sys.argv)}`",
            "",
            machine,
            "",
        ]
        arguments.save.parent.mkdir(parents=True, exist_ok=True)
        arguments.save.write_text("\n".join([*head, *rows]) + "\n")


if __name__ == "__main__":
    main()
