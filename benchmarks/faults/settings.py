"""Damaged checkpoints, hostile recipes, lists of videos, plans and results."""

import copy
import json
import random
import shutil
import string
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import safe_open
from safetensors.torch import save_file

from benchmarks.faults.isolation import Case, run_command
from benchmarks.faults.mutations import HOSTILE, mutate
from benchmarks.faults.videos import Bench
from tokenselect.checkpoints import load_model
from tokenselect.data import read_annotations
from tokenselect.plan import SelectionPlan
from tokenselect.training.recipe import recipe_from_dict

RECIPE = {
    "name": "hostile",
    "data": {"frames": 8, "size": 32, "train_clips": 8, "val_clips": 4, "workers": 0},
    "augmentation": {"mixup": 0.8, "cutmix": 1.0},
    "model": {"name": "mvit_mini", "plan": "T0_0.5-S4_0.5"},
    "schedule": {"epochs": 1, "warmup_epochs": 0.5, "batch_size": 4, "lr": 1e-4, "ema": 0.9},
    "device": "cpu",
    "threads": 1,
}
LARGE = ("seed", "threads", "checkpoint_steps", "validate_every", "schedule.batch_size")
LISTS = {
    "list.txt": "a b/one.mp4 0\nb/two.mp4 1\nb/three.mp4 2\n",
    "frames.txt": "a/one 12 0\na/two 9 1\n",
    "kinetics.csv": "label,youtube_id,time_start,time_end\nrun,abc,1,11\nsit,xyz,0,10\n",
    "ssv2.json": '[{"id": "1", "template": "Put [something]"}, {"id": "2", "template": "Push"}]',
    "ucf101.txt": "Archery/v_Archery_g01_c01.avi 1\nBiking/v_Biking_g02_c03.avi 2\n",
    "table.tsv": "path\tlabel\tsigner\na.mp4\tup\t1\nb.mp4\tdown\t2\n",
    "names.json": '{"Put something": "0", "Push": "1", "Pull": "2"}',
}
EXTREMES = (
    "\ufeff", "\0", " " * 30_000, "\t" * 5_000, "," * 5_000, " 20000000", "\u2028", "\r", '"', "-1",
    "9" * 5_000, "{}[]", "\ud800", "\U0001f600", "../" * 500,
)  # fmt: skip


def paths_of(values: Mapping[str, Any], above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """List the keys of nested values, sections included."""
    found = []
    for key, value in values.items():
        found.append((*above, key))
        if isinstance(value, Mapping):
            found += paths_of(value, (*above, key))
    return found


def damage_values(values: Mapping[str, Any], draw: random.Random) -> tuple[str, dict[str, Any]]:
    """Replace one value somewhere by a hostile one, or take it out."""
    damaged = copy.deepcopy(dict(values))
    *above, last = draw.choice(paths_of(damaged))
    place = damaged
    for key in above:
        place = place[key]
    if draw.random() < 0.15:
        del place[last]
        return f"no {'.'.join((*above, last))}", damaged
    place[last] = draw.choice(HOSTILE)
    return f"{'.'.join((*above, last))} = {place[last]!r}", damaged


def checkpoint_cases(bench: Bench, numbers: range, *, seed: int) -> Iterator[Case]:
    """Damage the bytes of a checkpoint, or what it says about its model; then load it."""
    whole = (
        bench.checkpoint.read_bytes()
        if bench.checkpoint.is_file()
        else next(bench.checkpoint.rglob("*.safetensors")).read_bytes()
    )
    source = bench.folder / "whole.safetensors"
    source.write_bytes(whole)
    with safe_open(source, framework="pt") as file:
        metadata = {key: json.loads(text) for key, text in (file.metadata() or {}).items()}
        weights = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    torch.save(weights, bench.folder / "whole.pth")
    pickled = (bench.folder / "whole.pth").read_bytes()
    folder = bench.folder / "checkpoints"
    folder.mkdir(exist_ok=True)
    for number in numbers:
        draw = random.Random(f"{seed} checkpoint {number}")
        kind = ("bytes", "values", "tensors", "pth")[number % 4]
        path = folder / f"{number:05d}.{'pth' if kind == 'pth' else 'safetensors'}"
        if kind in ("bytes", "pth"):
            how, content = mutate(*((pickled, whole) if kind == "pth" else (whole, pickled)), draw)
            path.write_bytes(content)
        elif kind == "values":
            how, values = damage_values(metadata, draw)
            save_file(weights, path, metadata={key: dump(value) for key, value in values.items()})
        else:
            how, tensors = damage_tensors(weights, draw)
            save_file(tensors, path, metadata={key: dump(metadata[key]) for key in metadata})
        yield Case("checkpoints", f"{number}: {kind}, {how}", loader(path, kind), (str(path),))


def dump(value: object) -> str:
    """Write JSON that also holds what JSON cannot."""
    return json.dumps(value)


def loader(path: Path, kind: str) -> Callable[[], object]:
    """Give what loads a checkpoint and removes it."""

    def load() -> None:
        try:
            if kind == "pth":
                load_model("mvit_mini", weights=path, size=32)
            else:
                load_model(path)(torch.zeros(1, 3, 4, 32, 32))
        finally:
            path.unlink()

    return load


def damage_tensors(
    weights: Mapping[str, torch.Tensor], draw: random.Random
) -> tuple[str, dict[str, torch.Tensor]]:
    """Drop, rename, reshape or spoil one tensor."""
    tensors = dict(weights)
    name = draw.choice(sorted(tensors))
    how = draw.choice(("gone", "renamed", "transposed", "shorter", "nan", "integers", "empty"))
    value = tensors.pop(name)
    changed: dict[str, Callable[[], torch.Tensor]] = {
        "renamed": lambda: value,
        "transposed": lambda: value.unsqueeze(-1).transpose(0, -1).contiguous(),
        "shorter": lambda: value.flatten()[: max(1, value.numel() // 2)].clone(),
        "nan": lambda: torch.full_like(value, float("nan")),
        "integers": lambda: value.to(torch.int64),
        "empty": lambda: value.flatten()[:0].clone(),
    }
    if how != "gone":
        tensors[f"{name}.x" if how == "renamed" else name] = changed[how]()
    return f"{name} {how}", tensors


def recipe_cases(bench: Bench, numbers: range, *, seed: int) -> Iterator[Case]:
    """Put one hostile value into a recipe, or damage its text; then train by it."""
    folder = bench.folder / "recipes"
    folder.mkdir(exist_ok=True)
    whole = recipe_from_dict(RECIPE).to_dict()
    del whole["model"]["compile"]  # which takes minutes
    text = yaml.safe_dump(RECIPE)
    for number in numbers:
        draw = random.Random(f"{seed} recipe {number}")
        path = folder / f"{number:05d}.yaml"
        if number % 4 == 3:
            how, content = mutate(text.encode(), text.encode()[::-1], draw)
            path.write_bytes(content)
        elif number % 16 == 0:
            how = f"{draw.choice(LARGE)} = {2**70}"
            values = copy.deepcopy(whole)
            section, _, key = how.split(" ")[0].rpartition(".")
            (values[section] if section else values)[key] = 2**70
            path.write_text(yaml.safe_dump(values))
        else:
            how, values = damage_values(whole, draw)
            if isinstance(values.setdefault("data", {}), dict):  # whose defaults train for hours
                values["data"] = {**RECIPE["data"], **values["data"]}
            path.write_text(yaml.safe_dump(values), encoding="utf-8", errors="surrogatepass")
        words = ["train", str(path), "--runs", str(folder / f"runs-{number}")]
        call = lambda words=words: run_command(words)  # noqa: E731
        names = (str(path), str(folder), *recipe_words(how))
        yield Case("recipes", f"{number}: {how}", call, names)


def recipe_words(how: str) -> tuple[str, ...]:
    """Give the words by which an error may name what is wrong with a recipe."""
    key = how.removeprefix("no ").split(" = ")[0].split(".")[-1]
    return (key, "plan", "model", "device", "weights") if key else ()


def list_cases(bench: Bench, numbers: range, *, seed: int) -> Iterator[Case]:
    """Damage lists of videos, and read them."""
    folder = bench.folder / "lists"
    for number in numbers:
        draw = random.Random(f"{seed} list {number}")
        name = draw.choice(list(LISTS))
        content = LISTS[name].encode()
        path = folder / f"{number:05d}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if draw.random() < 0.5:
            extreme, place = draw.choice(EXTREMES), draw.randrange(len(content))
            how = f"{extreme[:8]!r}… at {place}"
            content = content[:place] + extreme.encode("utf-8", "surrogatepass") + content[place:]
        else:
            how, content = mutate(content, LISTS[draw.choice(list(LISTS))].encode(), draw)
        path.write_bytes(content)
        yield Case("lists", f"{number}: {name}, {how}", reader(path), (str(path.parent),))


def reader(path: Path) -> Callable[[], object]:
    """Give what reads a list, or the names that another list is read with."""

    def read() -> None:
        try:
            if path.name != "names.json":
                read_annotations(path)
                return
            other = path.with_name("list.txt")
            other.write_text(LISTS["list.txt"])
            read_annotations(other, class_names=path)
        finally:
            shutil.rmtree(path.parent)

    return read


def plan_cases(numbers: range, *, seed: int) -> Iterator[Case]:
    """Damage the text of plans, and read them; what is read must be written as itself."""
    whole = ["T0_0.6-S4_0.9", "T0=5-S4=13x13", "MViT-B16-T^0_{0.4}-S^4_{0.6}", "dense", "T0_0.5"]
    letters = "TS0123456789_=-x.^{} " + string.punctuation + "é\u2028\0"

    def read(text: str) -> None:
        plan = SelectionPlan.parse(text)
        assert str(SelectionPlan.parse(str(plan))) == str(plan)

    for number in numbers:
        draw = random.Random(f"{seed} plan {number}")
        text = list(draw.choice(whole))
        for _ in range(draw.randint(1, 4)):
            place = draw.randrange(len(text) + 1)
            text[place : place + draw.randrange(3)] = draw.choices(letters, k=draw.randrange(3))
        if draw.random() < 0.05:
            text *= 500
        plan = "".join(text)
        call = lambda plan=plan: read(plan)  # noqa: E731
        yield Case("plans", f"{number}: {plan[:80]!r}", call, ("plan", "site", "ratio"))
