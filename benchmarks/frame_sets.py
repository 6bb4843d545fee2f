"""How good is each set of k token frames? The dense weights answer, nothing is trained.

    python -m benchmarks.frame_sets --root ROOT --dense runs/lsa20_mvit_dense/last --keep 3

Prints where the evenly spread set stands among all sets, by accuracy and by mean loss, and how many
clips have a set that is right: what a choice that ignores the clip can reach, and what one that
knows it could. `--learn` asks how much of that can be learnt at all: a scorer is told the loss of
every set of every training clip, and so needs no gradient through a choice.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.progress import track
from torch import Tensor, nn

from tokenselect.checkpoints import load_model
from tokenselect.grid import TokenGrid
from tokenselect.selectors.scoring import ReleasedScorer, ReleasedScoring, middles
from tokenselect.training.data import ClipSet, build_test_set, build_train_set
from tokenselect.training.recipe import read_recipe

RECIPES = Path(__file__).parents[1] / "recipes"
RESULTS = Path(__file__).parent / "results"
SHOWN = 5
VIEWS = 2  # augmented ones of each training clip
STEPS, BATCH, RATE = 600, 64, 1e-3  # of the scorer

FrameSets = list[tuple[int, ...]]


@dataclass(frozen=True)
class Tried:
    """What became of every clip with every set.

    Attributes:
        features: (clips, t, 2c) average and maximum of each frame's tokens.
        losses: (clips, sets).
        answers: (clips, sets), 1 where right.
    """

    features: Tensor
    losses: Tensor
    answers: Tensor


def main() -> None:
    """Test every set and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="lsa20", choices=["synthetic", "lsa20", "gestures5"])
    parser.add_argument("--root", help="folder of the videos")
    parser.add_argument("--model", default="mvit", choices=["mvit", "swin"])
    parser.add_argument("--dense", required=True, help="run of that dense model")
    parser.add_argument("--keep", type=int, default=3)
    parser.add_argument("--learn", action="store_true", help="teach a scorer the loss of every set")
    parser.add_argument("--seeds", type=int, default=3, help="of the scorer")
    settings = parser.parse_args()
    root = ["--data.root", settings.root] if settings.root else []
    recipe = read_recipe(RECIPES / f"{settings.data}_{settings.model}_dense.yaml", root)
    sets = list(combinations(range(recipe.data.frames // 2), settings.keep))
    model = load_model(settings.dense)
    tested = try_sets(model, build_test_set(recipe.data, "test"), sets)
    text = f"python -m benchmarks.frame_sets --data {settings.data} --model {settings.model}"
    text += f" --keep {settings.keep}"
    text += " --learn" * settings.learn + "\n\n" + describe(sets, tested)
    if settings.learn:
        clips = build_train_set(recipe.data, recipe.augmentation, seed=0)
        taught = try_sets(model, clips, sets, views=VIEWS)
        for seed in range(settings.seeds):
            text += describe_learnt(sets, taught, tested, seed)
    name = f"frame_sets_{settings.data}_{settings.model}_{settings.keep}.txt"
    (RESULTS / name).write_text(text)
    print(text)


@torch.inference_mode()
def try_sets(model: nn.Module, clips: ClipSet, sets: FrameSets, *, views: int = 1) -> Tried:
    """Run each clip with each set, `views` times anew."""
    seen = ReleasedScoring(nn.Identity())  # what its network would be given
    features, losses, answers = [], [], []
    batches = clips.batches(20)
    for view in range(views):
        clips.dataset.set_epoch(view)
        for videos, labels in track(batches, f"view {view + 1} of {views}", transient=True):
            grid = model.embed(videos.flatten(0, videos.ndim - 5))
            logits = torch.stack([run_frames(model, grid, frames) for frames in sets], dim=1)
            wanted = labels[:, None].expand(-1, len(sets))
            features.append(seen.frame_features(grid))
            losses.append(F.cross_entropy(logits.movedim(-1, 1), wanted, reduction="none"))
            answers.append((logits.argmax(dim=-1) == wanted).float())
    return Tried(torch.cat(features), torch.cat(losses), torch.cat(answers))


def run_frames(model: nn.Module, grid: TokenGrid, frames: Sequence[int]) -> Tensor:
    """Run the blocks on some frames of the embedded clips: (b, classes)."""
    kept = grid.with_patches(grid.patches[:, list(frames)])
    for block in model.blocks:
        kept = block(kept)
    return model.head(kept)


def describe(sets: FrameSets, tried: Tried) -> str:
    """Write where the even set stands among all, by loss."""
    loss, right = tried.losses.mean(dim=0), 100 * tried.answers.mean(dim=0)
    even = even_set(sets)
    order = loss.argsort().tolist()
    shown = [*order[:SHOWN], order[-1]]
    lines = [
        f"{len(sets)} sets of {len(sets[0])} token frames, {len(tried.losses)} clips",
        f"mean of all sets        top-1 {right.mean():5.1f} %  loss {loss.mean():.3f}",
        f"evenly spread {sets[even]} top-1 {right[even]:5.1f} %  loss {loss[even]:.3f}  "
        f"rank by loss {order.index(even) + 1}",
        f"a right set for a clip  {100 * tried.answers.amax(dim=1).mean():5.1f} % have one",
        "best by loss, and the worst:",
        *(f"  {sets[i]} top-1 {right[i]:5.1f} %  loss {loss[i]:.3f}" for i in shown),
    ]
    return "\n".join(lines) + "\n"


def describe_learnt(sets: FrameSets, taught: Tried, tested: Tried, seed: int) -> str:
    """Teach a scorer and write what its choices reach beside the even set."""
    choose = teach(sets, taught, seed)
    even = even_set(sets)
    text = f"a scorer that was told the loss of every set, seed {seed}:\n"
    for name, tried in (("training clips", taught), ("test clips", tested)):
        chosen = choose(tried.features)[:, None]  # (clips, 1)
        loss, right = (values.gather(1, chosen) for values in (tried.losses, tried.answers))
        text += (
            f"  {name:14} loss {loss.mean():.3f} (even {tried.losses[:, even].mean():.3f})  "
            f"top-1 {100 * right.mean():.1f} % (even {100 * tried.answers[:, even].mean():.1f} %)\n"
        )
    return text


def teach(sets: FrameSets, taught: Tried, seed: int) -> Callable[[Tensor], Tensor]:
    """Fit scores whose sums over a set give its chance, by the expected loss; no sampling."""
    torch.manual_seed(seed)
    t, width = taught.features.shape[1:]
    members = torch.zeros(len(sets), t)
    for row, frames in zip(members, sets, strict=True):
        row[list(frames)] = 1
    mean, spread = taught.features.mean(dim=(0, 1)), taught.features.std(dim=(0, 1)) + 1e-6
    network, places = ReleasedScorer(width), nn.Parameter(torch.zeros(t))
    optimizer = torch.optim.AdamW([*network.parameters(), places], lr=RATE, weight_decay=0.05)

    def score_sets(features: Tensor) -> Tensor:
        return (network((features - mean) / spread) + places) @ members.t()  # (b, sets)

    for _ in range(STEPS):
        batch = torch.randint(len(taught.features), (BATCH,))
        chances = score_sets(taught.features[batch]).softmax(dim=1)
        optimizer.zero_grad()
        (chances * taught.losses[batch]).sum(dim=1).mean().backward()
        optimizer.step()
    return lambda features: score_sets(features).argmax(dim=1)


def even_set(sets: FrameSets) -> int:
    """Find the evenly spread set."""
    return sets.index(tuple(middles(max(map(max, sets)) + 1, len(sets[0]))))


if __name__ == "__main__":
    main()
