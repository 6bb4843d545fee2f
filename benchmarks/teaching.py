"""What selectors reach with dense weights as they are: taught ones against untaught ones.

    tokenselect train recipes/synthetic_mvit_dense.yaml
    python -m benchmarks.teaching --dense runs/synthetic_mvit_dense/last --plan T0_0.25

Each target teaches new scorers with the training clips of the dense model's recipe; the validation
clips decide how far they are trusted, and all methods answer the same test clips. p is that of the
paired test against uniform selection. The table lands in `benchmarks/results`.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from tokenselect.checkpoints import load_model
from tokenselect.insertion import insert_selectors, remove_selectors
from tokenselect.measure.significance import compare_answers
from tokenselect.training.build import recipe_of
from tokenselect.training.data import ClipSet, build_test_set, build_train_set
from tokenselect.training.recipe import Recipe, recipe_from_dict
from tokenselect.training.teach import Shuffled, teach_selectors

RESULTS = Path(__file__).parent / "results"
UNTAUGHT = ("uniform", "random", "motion", "novelty")
TAUGHT = ("choices", "choices-unlabelled")
BATCH = 20


def main() -> None:
    """Test every method and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dense", required=True, help="checkpoint of a dense model")
    parser.add_argument("--plan", default="T0_0.25")
    parser.add_argument("--root", help="folder of the videos")
    parser.add_argument(
        "--targets",
        nargs="*",
        default=["choices", "choices-unlabelled"],
        choices=TAUGHT,
    )
    parser.add_argument("--clips", type=int, default=1000, help="to learn from, at most")
    parser.add_argument("--seeds", type=int, default=3, help="of the scorers")
    settings = parser.parse_args()
    model = load_model(settings.dense, plan="dense")
    recipe = with_root(recipe_of(model), settings.root)
    test = build_test_set(recipe.data, "test")
    dense = answer(model, test)
    lines = [f"{'dense':30}{100 * share(dense):5.1f} %"]
    uniform = ""
    for method in UNTAUGHT:
        torch.manual_seed(0)
        insert_selectors(model, settings.plan, method=method)
        found = answer(model, test)
        remove_selectors(model)
        uniform = uniform or found
        lines.append(describe(method, [found], [uniform]))
    for target in settings.targets:
        lines += teach_and_test(model, recipe, test, uniform, target, settings)
    told = f"--plan {settings.plan} --targets {' '.join(settings.targets)} --clips {settings.clips}"
    text = f"python -m benchmarks.teaching --dense runs/{recipe.name}/last {told}\n\n"
    text += f"{len(test)} test clips, scorer's seeds 0 to {settings.seeds - 1}\n" + "\n".join(lines)
    (RESULTS / f"teaching_{recipe.name}_{settings.plan}.txt").write_text(text + "\n")
    print(text)


def teach_and_test(
    model: nn.Module,
    recipe: Recipe,
    test: ClipSet,
    uniform: str,
    target: str,
    settings: argparse.Namespace,
) -> list[str]:
    """Teach with every seed, test, and write the line of a target."""
    train = build_train_set(recipe.data, recipe.augmentation, seed=0)
    val = build_test_set(recipe.data, "val")
    answers, lessons, start = [], [], time.perf_counter()
    for seed in range(settings.seeds):
        torch.manual_seed(seed)
        shown, held_out = (
            Shuffled(clips, at_most=settings.clips, batch_size=BATCH, workers=0, seed=seed)
            for clips in (train, val)
        )
        lessons += teach_selectors(
            model,
            shown,
            plan=settings.plan,
            held_out=held_out,
            uses_labels=not target.endswith("-unlabelled"),
            seed=seed,
        )
        answers.append(answer(model, test))
        remove_selectors(model)
    shares = ", ".join(f"{lesson.site} {lesson.evenness:g}" for lesson in lessons)
    minutes = (time.perf_counter() - start) / 60 / settings.seeds
    line = describe(f"taught by {target}", answers, [uniform] * settings.seeds)
    return [line, f"    evenness: {shares}; {minutes:.1f} minutes a seed, test included"]


def with_root(recipe: Recipe, root: str | None) -> Recipe:
    """Say where a recipe's videos are."""
    values = recipe.to_dict()
    values["data"] |= {"root": root, "workers": 0}
    return recipe_from_dict(values)


@torch.no_grad()
def answer(model: nn.Module, clips: ClipSet) -> str:
    """Answer all clips: 1 where right, 0 elsewhere."""
    model.eval()
    found = []
    for videos, labels in batches_of(clips):
        found.append((model(videos).argmax(dim=1) == labels).int())
    return "".join(map(str, torch.cat(found).tolist()))


def batches_of(clips: ClipSet) -> Iterator[tuple[Tensor, Tensor]]:
    """Give batches of clips of one view."""
    for videos, labels in clips.batches(BATCH):
        yield videos.flatten(0, videos.ndim - 5), labels


def describe(name: str, found: list[str], uniform: list[str]) -> str:
    """Write a line: accuracy, and how far above uniform selection."""
    shares = torch.tensor([share(one) for one in found])
    spread = f" ± {100 * shares.std():.1f}" if len(found) > 1 else ""
    line = f"{name:30}{100 * shares.mean():5.1f}{spread} %"
    if found == uniform:
        return line
    gain = compare_answers(found, uniform)
    return f"{line}   {100 * gain.difference:+.1f} over uniform (p {gain.p:.1g})"


def share(answers: str) -> float:
    """Give the share of right answers."""
    return answers.count("1") / len(answers)


if __name__ == "__main__":
    main()
