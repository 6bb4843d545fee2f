"""Which loses, the choice or the weights? Models of learned selection, tested with the uniform one.

    python -m benchmarks.swap_choice S2_0.3 --data lsa20 --root ROOT

Takes the cells of a plan that `benchmarks.tables` trained with learned and with uniform selection.
The weights of the learned ones are tested with both choices: what uniform selection makes of them,
beside what it makes of its own, is lost in the weights, the rest in the choice.
"""

import argparse
from pathlib import Path

from rich.progress import track
from torch import nn

from tokenselect import insert_selectors, remove_selectors
from tokenselect.checkpoints import load_model
from tokenselect.comparison.trials import measure_model
from tokenselect.training.data import build_test_set
from tokenselect.training.recipe import read_recipe

RECIPES = Path(__file__).parents[1] / "recipes"
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Test every seed and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plan")
    parser.add_argument("--data", default="lsa20", choices=["synthetic", "lsa20", "gestures5"])
    parser.add_argument("--root", help="folder of the videos")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("runs/tables"))
    settings = parser.parse_args()
    root = ["--data.root", settings.root] if settings.root else []
    recipe = read_recipe(RECIPES / f"{settings.data}_mvit_T0_0.5-S4_0.5.yaml", root)
    clips = build_test_set(recipe.data, "test")
    runs = settings.work / f"{settings.data}_mvit" / "runs"
    text = f"python -m benchmarks.swap_choice {settings.plan} --data {settings.data}\n\n"
    text += "top-1 %\nweights  choice   " + " ".join(f"seed {i}" for i in range(settings.seeds))
    for weights, choice in (("learned", "learned"), ("learned", "uniform"), ("uniform", "uniform")):
        text += f"\n{weights}  {choice}  "
        for seed in track(range(settings.seeds), f"{weights}, {choice}", transient=True):
            model = load_cell(runs, settings.plan, weights, seed)
            if choice != weights:
                remove_selectors(model)
                insert_selectors(model, settings.plan, method=choice)
            found = measure_model(model.eval(), clips, recipe.data)
            text += f" {100 * found['top1']:6.1f}"
    (RESULTS / f"swap_choice_{settings.data}_{settings.plan}.txt").write_text(text + "\n")
    print(text)


def load_cell(runs: Path, plan: str, weights: str, seed: int) -> nn.Module:
    """Load the newest cell of that kind."""
    method = "stts-exact" if weights == "learned" else weights
    pattern = f"{plan.replace('=', '')}.{method}.s{seed}-*"
    found = sorted(runs.glob(pattern), key=lambda run: run.stat().st_mtime)
    if not found:
        raise FileNotFoundError(f"no {pattern} in {runs}: run the table with this plan first")
    return load_model(found[-1] / "last")


if __name__ == "__main__":
    main()
