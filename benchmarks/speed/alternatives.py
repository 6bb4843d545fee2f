"""What a user might pick instead: merging alike tokens (as ToMe does), dropping what repeats (RLT).

All keep the same number of tokens at the same place, so that multiply-adds are nearly equal.
"""

import torch
from torch import nn

from benchmarks.speed.timing import Row, make_clips, time_forwards
from tokenselect import create_model, insert_selectors
from tokenselect.profiling import count_macs

WAYS = {  # label: plan, method, token by token
    "frames (stts)": ("T0=5", "stts", False),
    "regions (stts)": ("S4=11x11", "stts", False),
    "tokens merged (ToMe)": ("S4=11x11", "merge", True),
    "tokens dropped (RLT)": ("S4=11x11", "rlt", True),
    "frames merged": ("T0=5", "merge", False),
    "frames dropped (RLT)": ("T0=5", "rlt", False),
}
MVIT_WAYS = ("frames (stts)", "regions (stts)", "frames merged", "frames dropped (RLT)")


def build_videomae() -> nn.Module:
    """Build a plain ViT-B over 16 frames of 224², with random weights."""
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
        plan, method, is_tokenwise = WAYS[way]
        models[way] = insert_selectors(build(), plan, method=method, is_tokenwise=is_tokenwise)
    models = {way: model.eval().to(video.device) for way, model in models.items()}
    gmacs = {way: count_macs(model, *video.shape).gmacs for way, model in models.items()}
    seconds = time_forwards(models, video, repeats)
    return [
        {"way": way, "GMACs": gmacs[way], "seconds": seconds[way]}
        | {"speed-up": seconds["dense"] / seconds[way]}
        | {"realised": seconds["dense"] / seconds[way] * gmacs[way] / gmacs["dense"]}
        for way in models
    ]
