"""What a user might pick instead: merging alike tokens (as ToMe does), dropping what repeats (RLT).

All keep the same number of tokens at the same place, so that multiply-adds are nearly equal.
"""

import torch
from torch import nn

from benchmarks.speed.timing import Row, make_clips, medians, speed_up, time_forwards
from benchmarks.torchvision_import import import_torchvision
from tokenselect import create_model, insert_selectors
from tokenselect.measure.cost import count_macs

WAYS = {  # of about 970 of the 1568 tokens of 8 × 14 × 14 kept: plan and method
    "frames scored (ours)": ("T0=5", "stts"),
    "regions scored (ours)": ("S0=11x11", "stts"),
    "tokens merged (ToMe)": ("S0=11x11", "merge"),
    "tokens dropped (RLT)": ("S0=11x11", "rlt"),
    "frames merged (ToMe)": ("T0=5", "merge"),
    "frames dropped (RLT)": ("T0=5", "rlt"),
}
MVIT_WAYS = tuple(way for way in WAYS if way.startswith("frames"))  # its blocks need a grid


def build_videomae() -> nn.Module:
    """Build a plain ViT-B over 16 frames of 224², with random weights."""
    import_torchvision("torchvision")  # transformers wants it, and has no way around a broken one
    import transformers

    config = transformers.VideoMAEConfig(use_mean_pooling=True)
    return transformers.VideoMAEForVideoClassification(config)


def measure_alternatives(repeats: int, device: torch.device) -> list[Row]:
    """Compare ways of dropping tokens on a plain ViT-B and on MViT-B16."""
    mvit = create_model("mvit_b16")
    clips = make_clips(mvit, 1, device)
    rows = compare(build_videomae, tuple(WAYS), clips.transpose(1, 2), repeats)
    rows = [{"model": "VideoMAE ViT-B"} | row for row in rows]
    found = compare(lambda: create_model("mvit_b16"), MVIT_WAYS, clips, repeats)
    return rows + [{"model": "mvit_b16"} | row for row in found]


def compare(build, ways: tuple[str, ...], video: torch.Tensor, repeats: int) -> list[Row]:
    """Time a model with each way of selecting, and dense."""
    models = {"dense": build()}
    for way in ways:
        plan, method = WAYS[way]
        models[way] = insert_selectors(build(), plan, method=method)
    models = {way: model.eval().to(video.device) for way, model in models.items()}
    gmacs = {way: count_macs(model, *video.shape).gmacs for way, model in models.items()}
    rounds = time_forwards(models, video, repeats)
    seconds = medians(rounds)
    return [
        {"way": way, "GMACs": gmacs[way], "seconds": seconds[way]}
        | {"speed-up": speed_up(rounds, "dense", way)}
        | {"realised": speed_up(rounds, "dense", way) * gmacs[way] / gmacs["dense"]}
        for way in models
    ]
