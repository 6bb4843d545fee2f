"""Pretrain a small model on generated video alone, and keep the weights.

    python -m benchmarks.pretrain mvit_mini --clips 400000 --out runs/generated_mvit_mini

Every clip is new (`benchmarks.generated_video`). A checkpoint is written every few minutes, and the
same command goes on from it. No weights of it are shipped: what they give over a start from scratch
is not measured yet.
"""

import argparse
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.generated_video import NUM_CLASSES, GeneratedVideo
from tokenselect import create_model, list_models, save_model
from tokenselect.inference.memory import keep_freed_memory
from tokenselect.training.optimizer import LrSchedule, build_optimizer, set_lr

MEAN, STD = 0.45, 0.225  # of the Kinetics models, as recipes have them
BATCH = 16
TEST_CLIPS = 480
PAUSE = 120.0  # seconds from checkpoint to checkpoint


def main() -> None:
    """Train from where the folder stands to the number of clips asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=[name for name in list_models() if "mini" in name])
    parser.add_argument("--clips", type=int, default=400_000)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--out", type=Path, required=True)
    settings = parser.parse_args()
    keep_freed_memory()
    torch.manual_seed(0)
    model = create_model(settings.model, num_classes=NUM_CLASSES, frames=16, size=64)
    pretrain(model, settings.out, steps=settings.clips // BATCH, lr=settings.lr)
    print(f"{measure(model):.1%} of {TEST_CLIPS} generated clips", flush=True)
    save_model(model.eval(), settings.out / "model")


def pretrain(model: nn.Module, folder: Path, *, steps: int, lr: float) -> None:
    """Train `steps` steps, or what is left of them."""
    folder.mkdir(parents=True, exist_ok=True)
    optimizer = build_optimizer(model, backbone_factor=1.0, weight_decay=0.05)
    rates = LrSchedule(total_steps=steps, warmup_steps=500, peak=lr, end=1e-6)
    first = resume(folder, model, optimizer)
    saved = time.monotonic()
    loss_sum = torch.zeros(())
    for step in range(first, steps):
        clips, labels = GeneratedVideo(seed=1 + step).draw(BATCH)
        set_lr(optimizer, rates.at(step))
        loss = F.cross_entropy(model((clips - MEAN) / STD), labels, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss_sum += loss.detach()
        if (step + 1) % 250 == 0:
            line = {"clips": (step + 1) * BATCH, "loss": round(loss_sum.item() / 250, 4)}
            print(json.dumps(line | {"top1": round(measure(model), 4)}), flush=True)
            loss_sum.zero_()
        if time.monotonic() - saved > PAUSE:
            keep(folder, model, optimizer, step + 1)
            saved = time.monotonic()


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
    video = GeneratedVideo(seed=0)
    for _ in range(TEST_CLIPS // BATCH):
        clips, labels = video.draw(BATCH)
        right += int((model((clips - MEAN) / STD).argmax(dim=1) == labels).sum())
    model.train()
    return right / TEST_CLIPS


if __name__ == "__main__":
    main()
