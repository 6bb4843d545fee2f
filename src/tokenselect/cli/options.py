"""Options that several commands share, and the parser that sets them beside a command's own."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

import torch
from jsonargparse import ArgumentParser
from torch import nn

from tokenselect.checkpoints import info_of, load_model
from tokenselect.cli.terminal import telling
from tokenselect.data.sources import SAMPLE_NAME
from tokenselect.measure.cost import be_silent
from tokenselect.threads import set_threads
from tokenselect.weights import fetch_public, public_weights

if TYPE_CHECKING:
    from tokenselect.measure.accuracy import Runner
    from tokenselect.training.data import ClipSet

PUBLIC_CHOICE = ("video_swin_t", "kinetics400", "T0_0.6", "uniform")  # the smallest download
THREADS = "threads of torch on the CPU; by default, as many as there are idle cores"
LIST_TYPES = (list[str], "list[str]")  # the annotation of a list, as written and as read


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model answers, and what it keeps.

    Attributes:
        model: name of a model, for example mvit_b16; its weights are random unless given.
        checkpoint: run folder or .safetensors file of a trained model; without model and
            checkpoint, a public one of Kinetics-400, and for samples the small one of the package.
        weights: of the named model: a file of any known layout, or public ones by name, for
            example kinetics400.
        plan: what to keep, for example T0_0.6-S4_0.9, in place of the checkpoint's own.
        method: how to select, for example motion, in place of the checkpoint's own.
        class_names: file with the names of the classes, if the checkpoint does not know them.
        device: for example cpu or cuda; the accelerator if there is one and none is given.
    """

    model: str | None = None
    checkpoint: str | None = None
    weights: str | None = None
    plan: str | None = None
    method: str | None = None
    class_names: str | None = None
    device: str | None = None

    def load(self, videos: Sequence[str], **changes: str | None) -> nn.Module:
        """Load the model for some videos, with some of the options changed."""
        chosen = replace(self, **changes)
        source = choose_source(self.model, self.checkpoint)
        if source is None and not any(map(SAMPLE_NAME.fullmatch, videos)):
            source, weights, plan, method = PUBLIC_CHOICE
            chosen = replace(chosen, weights=weights, method=chosen.method or method)
            chosen = replace(chosen, plan=chosen.plan or plan) if "plan" not in changes else chosen
        if chosen.weights is not None and source is not None:
            tell_download(source, chosen.weights, is_default=self.model is None)
        how = asdict(chosen) | {"device": chosen.device or best_device()}
        return load_model(source, **{k: how[k] for k in how.keys() - {"model", "checkpoint"}})


@dataclass(frozen=True, kw_only=True)
class ClipOptions:
    """Which clips a trained model is measured on or taught with, and where it runs.

    Attributes:
        root: folder of the videos.
        where: what other columns of a table of videos must hold, as {"signer": "9-10"}.
        workers: processes that load data.
        device: for example cpu or cuda; the accelerator if there is one and none is given.
    """

    root: str | None = None
    where: dict[str, str] | None = None
    workers: int = 2
    device: str | None = None

    def load(self, checkpoint: str, **options: str | None) -> nn.Module:
        """Load a checkpoint; `options` are those of `load_model`."""
        device = self.device or best_device()
        with telling("loading the model"):
            return load_model(checkpoint, device=device, **options)  # type: ignore[arg-type]

    def find(self, model: nn.Module, dataset: str, *, views: str = "1x1") -> ClipSet:
        """Find the clips that a name or a path stands for, cut and labelled as in training."""
        from tokenselect.inference.predict import check_known
        from tokenselect.training.build import recipe_of
        from tokenselect.training.data import PARTS, build_test_set
        from tokenselect.training.sections import PartRecipe

        data, names = recipe_of(model).data, info_of(model).class_names
        if dataset == "synthetic":
            return build_test_set(replace(data, source="synthetic"), "test", views=views)
        if self.root is not None:
            data = replace(data, root=self.root)
        if dataset in PARTS:
            part, name = getattr(data, dataset), dataset
        else:
            path = Path(dataset).absolute()
            part, name = PartRecipe(annotations=str(path)), "test"
            base = path if path.is_dir() else path.parent
            data = replace(data, source="videos", root=self.root or str(base))
            if path.is_dir():  # of class folders, whatever the training videos were listed in
                data = replace(data, table=None, format=None)
        if self.where is not None:
            part = replace(part, where=self.where)
        data = replace(data, **{name: part})
        clips = build_test_set(data, name, views=views, class_names=names)
        check_known(model, (sample.path for sample in getattr(clips.dataset, "samples", ())))
        return clips


@dataclass(frozen=True, kw_only=True)
class RuntimeOptions:
    """What runs the model.

    Attributes:
        runtime: torch, onnxruntime, openvino, or auto for the fastest on this machine.
    """

    runtime: Literal["torch", "onnxruntime", "openvino", "auto"] = "torch"

    def pick(
        self, model: nn.Module, *, batch: int = 1, tell: Callable[[str], object] = be_silent
    ) -> Callable[[nn.Module], Runner]:
        """Give what opens models in the runtime; "auto" measures, and says on the error stream."""
        if self.runtime == "torch":
            return lambda model: model
        from tokenselect.export import open_runtime, time_runtimes

        place, runtime = next(model.parameters()).device, str(self.runtime)
        if place.type != "cpu":
            raise ValueError(f"runtime {runtime} is for --device cpu, got {place}")
        if runtime == "auto":
            seconds = time_runtimes(model, batch=batch, tell=tell)
            shown = ", ".join(f"{name} {1e3 * value:.4g} ms" for name, value in seconds.items())
            runtime = next(iter(seconds))
            print(f"runtime {runtime} is the fastest here: {shown}", file=sys.stderr)
        return partial(open_runtime, runtime=runtime, tell=tell)


TORCH = RuntimeOptions()


def tell_download(model: str, weights: str, *, is_default: bool) -> None:
    """Fetch public weights that are not here yet, and say what comes from where."""
    file = public_weights(model).get(weights)
    if file is None or file.path.is_file():
        return
    size = f"{file.megabytes} MB" if file.megabytes else "size not known"
    where = f"{weights} weights of {model} from {file.publisher} ({size})"
    print(f"fetching the {where}: {file.url} → {file.path}", file=sys.stderr)
    try:
        fetch_public(file)
    except FileNotFoundError as error:
        if not is_default:
            raise
        raise FileNotFoundError(
            f"no model was given, and the {where} are not here: {error}. Or name your own model "
            "with --checkpoint (`tokenselect init FOLDER` shows how to train one), or try `sample`"
        ) from None


def choose_source(model: str | None, checkpoint: str | None) -> str | None:
    """Take the one of the two that was given, for `load_model`."""
    if model is not None and checkpoint is not None:
        raise ValueError(f"give a model or a checkpoint, got {model!r} and {checkpoint!r}")
    return model or checkpoint


def best_device() -> str:
    """Name the accelerator if there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def build_parser(function: Callable[..., Any], *, prog: str) -> ArgumentParser:
    """Build a command's parser: its own options, the shared ones and --threads."""
    shared = option_groups(function)
    about = (inspect.getdoc(function) or "").split("\n\nArgs:")[0]
    parser = ArgumentParser(prog=prog, description=about)
    parser.add_function_arguments(function, as_positional=True, skip=set(shared))
    for options in shared.values():
        parser.add_class_arguments(options)
    if "threads" not in inspect.signature(function).parameters:
        parser.add_argument("--threads", type=int | None, default=None, help=THREADS)
    return parser


def call(function: Callable[..., Any], words: list[str], *, prog: str) -> None:
    """Call a command with its words."""
    parser = build_parser(function, prog=prog)
    spelled, given = spell_words(function, words), {}
    first = next(iter(inspect.signature(function).parameters.values()))
    if first.annotation in LIST_TYPES and spelled and spelled[0].startswith("["):
        given[first.name] = json.loads(spelled[0])  # of any bytes, which the parser cannot read
        spelled[0] = "[]"
    values = vars(parser.instantiate(parser.parse_args(spelled))) | given
    for name, options in option_groups(function).items():
        values[name] = options(**{item.name: values.pop(item.name) for item in fields(options)})
    if "threads" not in inspect.signature(function).parameters:
        set_threads(values.pop("threads"))
    function(**values)


def option_groups(function: Callable[..., Any]) -> dict[str, Any]:
    """Find the parameters of a command that stand for options it shares with others."""
    return {name: kind for name, kind in get_type_hints(function).items() if is_dataclass(kind)}


def spell_words(function: Callable[..., Any], words: list[str]) -> list[str]:
    """Write `--json` as `--json=true`, `--target-ms=80` as it is called, and a list as JSON.

    The list, of a command that begins with one, is all words but options and their values.
    """
    parameters = list(inspect.signature(function).parameters.values())
    flags = {f"--{p.name}" for p in parameters if p.annotation in (bool, "bool")}
    groups = option_groups(function).values()
    names = [p.name for p in parameters] + [x.name for group in groups for x in fields(group)]
    hyphens = {f"--{name.replace('_', '-')}": f"--{name}" for name in names}
    takes_list, takes_value = parameters[0].annotation in LIST_TYPES, False
    listed, others = list[str](), list[str]()
    for word in words:
        name, equals, value = word.partition("=")
        word = hyphens.get(name, name) + equals + value
        word = f"{word}=true" if word in flags else word
        is_option = word.startswith("-") and len(word) > 1
        (listed if takes_list and not is_option and not takes_value else others).append(word)
        takes_value = is_option and "=" not in word and word not in ("-h", "--help")
    return [json.dumps(listed), *others] if listed else others
