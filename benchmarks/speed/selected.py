"""Selected models: seconds saved against multiply-adds saved, in inference and in training."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.speed.timing import (
    CLOCK,
    Row,
    build,
    make_clips,
    medians,
    speed_up,
    time_forwards,
    time_rounds,
)
from tokenselect import TokenGrid, create_model
from tokenselect.backbones.video_swin import VideoSwin, video_swin_b
from tokenselect.inference.memory import keep_freed_memory
from tokenselect.measure.cost import count_macs

MVIT_PLANS = ("T0_0.6-S4_0.9", "T0_0.6", "S4_0.3")
PAPER = {  # Table 7: GFLOPs and videos a second on a GPU
    "dense": (70.5, 79.3),
    "T0_0.9-S4_0.9": (56.4, 96.5),
    "T0_0.8-S4_0.9": (47.2, 112.9),
    "T0_0.6-S4_0.9": (38.1, 129.7),
}
TRAINED = (("mvit_mini", 16), ("mvit_b16", 1), ("video_swin_mini", 8), ("video_swin_mini", 16))
WINDOWS = ((16, True), (13, True), (10, True), (8, True), (13, False), (10, False))


def measure_selected(repeats: int, device: torch.device) -> list[Row]:
    """Compare selected models with dense ones: seconds saved against multiply-adds saved."""
    return compare_plans("mvit_b16", MVIT_PLANS, 1, repeats, device)


def measure_batches(repeats: int, device: torch.device) -> list[Row]:
    """Compare them four clips at a time, and Video Swin-B."""
    rows = compare_plans("mvit_b16", MVIT_PLANS, 4, repeats, device)
    return rows + compare_plans("video_swin_b", ("T0_0.6",), 1, repeats // 2, device)


def measure_optimized(repeats: int, device: torch.device) -> list[Row]:
    """Compare them again after `keep_freed_memory`, which changes the whole process."""
    keep_freed_memory()
    return measure_selected(repeats, device)


def measure_throughput(repeats: int, device: torch.device) -> list[Row]:
    """Compare clips a second with the paper's Table 7, one clip at a time, memory kept."""
    keep_freed_memory()
    models = {plan: build("mvit_b16", plan, device) for plan in PAPER}
    video = make_clips(models["dense"], 1, device)
    rounds = time_forwards(models, video, 2 * repeats)
    seconds = medians(rounds)
    rows = []
    for plan, (gflops, throughput) in PAPER.items():
        gmacs = count_macs(models[plan], *video.shape).gmacs
        rows.append(
            {"plan": plan, "GMACs": gmacs, "clips a second": 1 / seconds[plan]}
            | {"speed-up": speed_up(rounds, "dense", plan)}
            | {"paper's GFLOPs": gflops, "paper's videos a second": throughput}
            | {"paper's speed-up": throughput / PAPER["dense"][1]}
        )
    return rows


def compare_plans(
    name: str, plans: tuple[str, ...], batch: int, repeats: int, device: torch.device
) -> list[Row]:
    """Time a model with each plan and without, all in turns."""
    models = {plan: build(name, plan, device) for plan in ("dense", *plans)}
    video = make_clips(models["dense"], batch, device)
    gmacs = {plan: count_macs(m, 1, *video.shape[1:]).gmacs for plan, m in models.items()}
    rounds = time_forwards(models, video, repeats if batch > 1 else 3 * repeats)
    seconds = medians(rounds)
    rows = []
    for plan in plans:
        ratio, macs = speed_up(rounds, "dense", plan), gmacs["dense"] / gmacs[plan]
        rows.append(
            {"model": name, "plan": plan, "batch": batch, "dense s": seconds["dense"]}
            | {"selected s": seconds[plan], "speed-up": ratio}
            | {"speed-up in MACs": macs, "realised": ratio / macs, "time": 1 / ratio}
            | {"selectors' share": selector_share(models[plan], video)}
        )
    return rows


def selector_share(model: nn.Module, video: Tensor, repeats: int = 3) -> float:
    """Give the selectors' share of the time of a forward."""
    spent: list[float] = []
    handles = []
    for selector in model.token_selectors.values():
        handles += [
            selector.register_forward_pre_hook(lambda *_: spent.append(-read_clock(video))),
            selector.register_forward_hook(lambda *_: spent.append(read_clock(video))),
        ]
    with torch.inference_mode():
        start = read_clock(video)
        for _ in range(repeats):
            model(video)
        total = read_clock(video) - start
    for handle in handles:
        handle.remove()
    return sum(spent) / total


def read_clock(video: Tensor) -> float:
    """Read the clock when all work is done."""
    if video.is_cuda:
        torch.cuda.synchronize()
    return CLOCK[0]()


class KeepFrames(nn.Module):
    """A model whose first token frames alone pass on to its blocks."""

    def __init__(self, model: VideoSwin, frames: int) -> None:
        super().__init__()
        self.model, self.frames = model, frames

    def forward(self, video: Tensor) -> Tensor:
        """Map clips to logits."""
        grid = TokenGrid.from_patches(self.model.embed(video).patches[:, : self.frames])
        for block in self.model.blocks:
            grid = block(grid)
        return self.model.head(grid)


def measure_windows(repeats: int, device: torch.device) -> list[Row]:
    """Compare what fewer frames save in Video Swin-B, windows fitted to them and padded."""
    fitted, padded = (video_swin_b(fit_windows=fit).eval().to(device) for fit in (True, False))
    models = {case: KeepFrames(fitted if case[1] else padded, case[0]) for case in WINDOWS}
    video = make_clips(fitted, 1, device)
    gmacs = {case: count_macs(model, *video.shape).gmacs for case, model in models.items()}
    seconds = medians(time_forwards({str(k): m for k, m in models.items()}, video, repeats))
    whole = (16, True)
    return [
        {"token frames": case[0], "windows": "fitted" if case[1] else "padded"}
        | {"GMACs": gmacs[case], "of dense": gmacs[case] / gmacs[whole]}
        | {"seconds": seconds[str(case)], "time": seconds[str(case)] / seconds[str(whole)]}
        for case in models
    ]


def measure_training(repeats: int, device: torch.device) -> list[Row]:
    """Compare a training step (forward, backward, optimizer) of a selected and a dense model."""
    rows = []
    for name, batch in TRAINED:
        steps = {}
        for plan in ("dense", "T0_0.6"):
            model = create_model(name, plan=plan).train().to(device)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)  # as we train
            video = make_clips(model, batch, device)
            labels = torch.zeros(batch, dtype=torch.long, device=device)
            steps[plan] = partial(train_step, model, optimizer, video, labels)
        rounds = time_rounds(steps, repeats, device)
        ratio = speed_up(rounds, "dense", "T0_0.6")
        rows.append({"model": name, "batch": batch, "speed-up": ratio, **medians(rounds)})
    return rows


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, video: Tensor, labels: Tensor
) -> None:
    """Take one step."""
    F.cross_entropy(model(video), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
