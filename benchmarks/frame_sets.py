"""How good is each set of k token frames? The dense weights answer, nothing is trained.

    python -m benchmarks.frame_sets --root ROOT --dense runs/lsa20_mvit_dense/last --keep 3

Prints where the evenly spread set stands among all sets, by accuracy and by mean loss, and how many
clips have a set that is right: what a choice that ignores the clip can reach, and what one that
knows it could.
"""

import argparse
from itertools import combinations
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader

from tokenselect.selectors.spread import middles
from tokenselect.training.build_data import build_test_set
from tokenselect.training.recipe import read_recipe
from tokenselect.training.trained import load_trained

RECIPES = Path(__file__).parents[1] / "recipes"
RESULTS = Path(__file__).parent / "results"
SHOWN = 5


def main() -> None:
    """Test every set and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="lsa20", choices=["synthetic", "lsa20", "gestures5"])
    parser.add_argument("--root", help="folder of the videos")
    parser.add_argument("--dense", required=True, help="run of a dense MViT")
    parser.add_argument("--part", default="test", choices=["val", "test"])
    parser.add_argument("--keep", type=int, default=3)
    settings = parser.parse_args()
    root = ["--data.root", settings.root] if settings.root else []
    recipe = read_recipe(RECIPES / f"{settings.data}_mvit_dense.yaml", root)
    clips = build_test_set(recipe.data, settings.part)
    model = load_trained(settings.dense).model
    batches = DataLoader(clips.dataset, batch_size=20, collate_fn=clips.collate)
    sets = list(combinations(range(recipe.data.frames // 2), settings.keep))
    losses, answers = try_sets(model, batches, sets)
    text = describe(sets, losses, answers)
    command = f"python -m benchmarks.frame_sets --data {settings.data} --part {settings.part}"
    text = f"{command} --keep {settings.keep}\n\n{text}"
    name = f"frame_sets_{settings.data}_{settings.part}_{settings.keep}.txt"
    (RESULTS / name).write_text(text)
    print(text)


@torch.inference_mode()
def try_sets(
    model: torch.nn.Module, batches: DataLoader, sets: list[tuple[int, ...]]
) -> tuple[Tensor, Tensor]:
    """Give the loss and whether it is right, of each clip with each set: (clips, sets) both."""
    losses, answers = [], []
    for views, labels in batches:
        grid = model.embed(views.flatten(0, views.ndim - 5))
        rows = []
        for frames in sets:
            kept = grid.with_patches(grid.patches[:, list(frames)])
            for block in model.blocks:
                kept = block(kept)
            rows.append(model.head(kept))
        logits = torch.stack(rows, dim=1)  # (b, sets, classes)
        wanted = labels[:, None].expand(-1, len(sets))
        losses.append(F.cross_entropy(logits.movedim(-1, 1), wanted, reduction="none"))
        answers.append((logits.argmax(dim=-1) == wanted).float())
    return torch.cat(losses), torch.cat(answers)


def describe(sets: list[tuple[int, ...]], losses: Tensor, answers: Tensor) -> str:
    """Write where the even set stands among all, by loss."""
    loss, right = losses.mean(dim=0), 100 * answers.mean(dim=0)
    even = sets.index(tuple(middles(max(map(max, sets)) + 1, len(sets[0]))))
    order = loss.argsort().tolist()
    shown = [*order[:SHOWN], order[-1]]
    lines = [
        f"{len(sets)} sets of {len(sets[0])} token frames, {len(losses)} clips",
        f"mean of all sets        top-1 {right.mean():5.1f} %  loss {loss.mean():.3f}",
        f"evenly spread {sets[even]} top-1 {right[even]:5.1f} %  loss {loss[even]:.3f}  "
        f"rank by loss {order.index(even) + 1}",
        f"a right set for a clip  {100 * answers.amax(dim=1).mean():5.1f} % of the clips have one",
        "best by loss, and the worst:",
        *(f"  {sets[i]} top-1 {right[i]:5.1f} %  loss {loss[i]:.3f}" for i in shown),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
