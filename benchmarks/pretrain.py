"""Pretrain a small model on generated video alone, and keep the weights.

    python -m benchmarks.pretrain mvit_mini --out runs/generated_mvit_mini

A model learns the class of each clip, and where its limbs are in each frame: the class alone says
too little to begin with. MViT's class token names the places of their ends. The tokens of Video
Swin have no place of their own, so each of them draws the limbs that cross its part of the picture.
Every clip is new (`benchmarks.generated_video`); the first
half of the run goes from plain to busy pictures. Clips are short and small, 8×48×48, because many
of them teach more than few large ones; tables of places are fitted to other sizes when the weights
are loaded. A checkpoint is written every few minutes, and the same command goes on from it. What
is kept in the end, all but the classifier, goes into `src/tokenselect/assets`.
"""

import argparse
import json
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from einops import rearrange
from safetensors.torch import save_file
from torch import Tensor, nn

from benchmarks.generated_video import NUM_CLASSES, PARTS, Body, GeneratedVideo, measure_depth
from tokenselect import create_model, list_models
from tokenselect.backbones.preset import Backbone
from tokenselect.inference.memory import keep_freed_memory
from tokenselect.models import GENERATED
from tokenselect.plan import THW
from tokenselect.training.optimizer import LrSchedule, build_optimizer, set_lr
from tokenselect.weights.load import HEAD

FRAMES, SIZE = 8, 48
MEAN, STD = 0.45, 0.225  # of the Kinetics models, as recipes have them
BATCH = 16
ENDS = (FRAMES, PARTS, 2, 2)  # of the limbs: both ends, x and y
CELL = (2, PARTS, 4, 4)  # what a token of Video Swin draws: frames, limbs, rows, columns
ENDS_WEIGHT, MAPS_WEIGHT = 5.0, 10.0  # of the losses of places
REPORT = 250  # steps from line to line
TEST_CLIPS = 480
PAUSE = 120.0  # seconds from checkpoint to checkpoint


def main() -> None:
    """Train from where the folder stands to the number of clips asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=[name for name in list_models() if "mini" in name])
    parser.add_argument("--clips", type=int, default=110_000)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--out", type=Path, required=True)
    settings = parser.parse_args()
    keep_freed_memory()
    torch.manual_seed(0)
    outputs = NUM_CLASSES + math.prod(ENDS)  # as many as a cell has
    model = create_model(settings.model, num_classes=outputs, frames=FRAMES, size=SIZE)
    assert isinstance(model, Backbone)
    pretrain(model, settings.out, steps=settings.clips // BATCH, lr=settings.lr)
    print(f"{measure(model):.1%} of {TEST_CLIPS} generated clips", flush=True)
    weights = {name: w for name, w in model.state_dict().items() if not name.startswith(HEAD)}
    save_file(weights, settings.out / f"{GENERATED}_{settings.model}.safetensors")


def pretrain(model: Backbone, folder: Path, *, steps: int, lr: float) -> None:
    """Train `steps` steps, or what is left of them."""
    folder.mkdir(parents=True, exist_ok=True)
    optimizer = build_optimizer(model, backbone_factor=1.0, weight_decay=0.05)
    rates = LrSchedule(total_steps=steps, warmup_steps=200, peak=lr, end=1e-6)
    first = resume(folder, model, optimizer)
    saved = time.monotonic()
    losses: list[Tensor] = []  # since the last line
    for step in range(first, steps):
        clutter = min(1.0, 2 * step / steps)  # from easy clips to busy ones
        video = GeneratedVideo(frames=FRAMES, size=SIZE, seed=1 + step, clutter=clutter)
        drawn = video.draw(BATCH)
        set_lr(optimizer, rates.at(step))
        loss = loss_of(model, *drawn)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
        if (step + 1) % REPORT == 0:
            line = {
                "clips": (step + 1) * BATCH,
                "loss": round(float(torch.stack(losses).mean()), 4),
            }
            print(json.dumps(line | {"top1": round(measure(model), 4)}), flush=True)
            losses.clear()
        if time.monotonic() - saved > PAUSE:
            keep(folder, model, optimizer, step + 1)
            saved = time.monotonic()


def loss_of(model: Backbone, clips: Tensor, labels: Tensor, body: Body) -> Tensor:
    """Give the loss of the class, and of where the limbs are."""
    grid = model.embed((clips - MEAN) / STD)
    for block in model.blocks:
        grid = block(grid)
    if grid.num_prefix:
        outputs = model.head(grid)
        places = ENDS_WEIGHT * loss_of_ends(outputs[:, NUM_CLASSES:], body)
    else:
        cells = model.classifier(model.norm(grid.tokens))  # (b, n, outputs)
        outputs = cells.mean(dim=1)  # what the head gives
        places = MAPS_WEIGHT * loss_of_maps(cells[..., NUM_CLASSES:], grid.thw, body)
    return F.cross_entropy(outputs[:, :NUM_CLASSES], labels, label_smoothing=0.1) + places


def loss_of_ends(outputs: Tensor, body: Body) -> Tensor:
    """Give the distance of (b, 256) outputs to both ends of each limb that can be seen."""
    ends = outputs.unflatten(1, ENDS)
    is_seen = (body.radii > 0)[..., None, None].expand_as(ends)  # (b, t, PARTS, 2, 2)
    return F.smooth_l1_loss(ends[is_seen], body.ends[is_seen], beta=0.1)


def loss_of_maps(cells: Tensor, thw: THW, body: Body) -> Tensor:
    """Compare (b, n, 256) cells, drawn by the tokens of a grid, with the limbs themselves."""
    (t, h, w), (f, p, i, j) = thw, CELL
    maps = rearrange(
        cells,
        "b (t h w) (f p i j) -> b (t f) p (h i) (w j)",
        **{"t": t, "h": h, "w": w, "f": f, "p": p, "i": i, "j": j},
    )
    rows = maps.shape[-1]
    side = (2 * torch.arange(rows) + 1) / rows - 1  # the middles of the squares of a map
    depths = [measure_depth(body, part, side) for part in range(PARTS)]
    cover = (torch.stack(depths, dim=2) * (rows / 2) + 0.5).clamp(0, 1)
    return F.binary_cross_entropy_with_logits(maps, cover)


def keep(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Write a checkpoint that replaces the last one when it is whole."""
    unfinished = folder / ".state.pt"
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, unfinished)
    unfinished.replace(folder / "state.pt")


def resume(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Take up the last checkpoint, if there is one, and give its step."""
    if not (folder / "state.pt").exists():
        return 0
    state = torch.load(folder / "state.pt", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


@torch.inference_mode()
def measure(model: nn.Module) -> float:
    """Give the share of clips, never trained on, that get their class."""
    model.eval()
    right = 0
    video = GeneratedVideo(frames=FRAMES, size=SIZE, seed=0)
    for _ in range(TEST_CLIPS // BATCH):
        clips, labels, _ = video.draw(BATCH)
        answers = model((clips - MEAN) / STD)[:, :NUM_CLASSES].argmax(dim=1)
        right += int((answers == labels).sum())
    model.train()
    return right / TEST_CLIPS


if __name__ == "__main__":
    main()
