"""The models that the page offers, opened when they are first wanted and kept ready."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from weakref import WeakKeyDictionary

from torch import nn

from tokenselect.checkpoints import info_of, load_model, plan_of, with_plan
from tokenselect.checkpoints.model import DEFAULT_PLAN, sites_of
from tokenselect.measure.accuracy import Runner
from tokenselect.measure.cost import layer_costs
from tokenselect.models import list_models
from tokenselect.plan import THW, SelectionPlan
from tokenselect.visualization.explanation import Layer
from tokenselect.web.guard import Missing
from tokenselect.weights import public_weights

OPEN_MODELS = 2  # large ones take half a gigabyte each
OPEN_PLANS = 16  # of one model; all share its backbone's weights
Place = tuple[str, str | None]  # a plan and how it selects


@dataclass(frozen=True)
class Offer:
    """A model on the list."""

    title: str  # as shown
    open: Callable[[], nn.Module]  # builds it


class Catalogue:
    """Models by key, and under any plan; a client names keys, never files.

    `open_run` gives what runs a model in its place: its file in a runtime.
    """

    def __init__(
        self, offers: Mapping[str, Offer], *, open_run: Callable[[nn.Module], Runner] | None = None
    ) -> None:
        self.offers = dict(offers)
        self._open_run = open_run
        self._runners: WeakKeyDictionary[nn.Module, Runner] = WeakKeyDictionary()
        # by key, then by plan and method; a model's own plan is under None
        self._opened: OrderedDict[str, OrderedDict[Place | None, nn.Module]] = OrderedDict()
        self._layers: WeakKeyDictionary[nn.Module, list[Layer]] = WeakKeyDictionary()
        self._lock = threading.RLock()

    def open(self, key: str) -> nn.Module:
        """Give a model under its own plan."""
        if key not in self.offers:
            raise Missing(f"no model {key!r}; there are {', '.join(self.offers)}")
        with self._lock:
            if key not in self._opened:
                self._opened[key] = OrderedDict({None: self.offers[key].open()})
            self._opened.move_to_end(key)
            while len(self._opened) > OPEN_MODELS:
                self._opened.popitem(last=False)
            return self._opened[key][None]

    def with_plan(self, key: str, plan: SelectionPlan, *, method: str | None) -> nn.Module:
        """Give a model under a plan; the same one again is there at once."""
        place = (str(plan), method if plan else None)
        with self._lock:
            model, plans = self.open(key), self._opened[key]
            if place not in plans:
                plans[place] = with_plan(model, plan, method=method)
            plans.move_to_end(place)
            plans.move_to_end(None)
            while len(plans) > OPEN_PLANS:
                plans.popitem(last=False)
            return plans[place]

    def run(self, model: nn.Module) -> Runner:
        """Give what runs a model; it is opened once."""
        if model not in self._runners and self._open_run is not None:
            self._runners[model] = self._open_run(model)
        return self._runners.get(model, model)

    def count_layers(
        self, model: nn.Module, grids: list[THW], shape: tuple[int, ...]
    ) -> list[Layer]:
        """Count multiply-adds once a model: its input and plan fix them, whatever the clip."""
        if model not in self._layers:
            self._layers[model] = layer_costs(model, grids, shape)
        return self._layers[model]


def list_offers(
    *,
    model: str | None = None,
    checkpoint: str | None = None,
    weights: str | None = None,
    plan: str | None = None,
    method: str | None = None,
    class_names: str | None = None,
    device: str = "cpu",
) -> dict[str, Offer]:
    """List what was asked for, with its plan, method and names of classes, then all others.

    `checkpoint` may be several with commas between.
    """
    offers: dict[str, Offer] = {}
    how = {"plan": plan, "method": method, "class_names": class_names}
    load: Callable[..., nn.Module] = partial(load_model, device=device, **how)  # type: ignore[arg-type]
    for path in checkpoint.split(",") if checkpoint else []:
        if not Path(path).exists():
            raise FileNotFoundError(f"checkpoint {path} does not exist")
        offers[f"checkpoint-{len(offers) + 1}"] = Offer(Path(path).name, partial(load, path))
    if model is not None:
        build = partial(load, model, weights=weights)
        offers["given"] = Offer(f"{model}, {weights or 'random weights'}", build)
    elif weights is not None:
        raise ValueError(f"weights {weights!r} need the name of their model, --model")
    title = "small model of the package (eight synthetic actions)"
    offers["small"] = Offer(title, partial(load_model, device=device))
    for name in list_models():
        file, public, title = public_weights(name).get("kinetics400"), None, "random weights"
        if file is not None and file.megabytes:
            public, title = "kinetics400", "Kinetics-400"
            if not file.path.is_file():
                title += f", a download of {file.megabytes} MB from {file.publisher}"
        build = partial(load_model, name, weights=public, device=device)
        offers[name] = Offer(f"{name}, {title}", build)
    return offers


def own_sites(model: nn.Module) -> list[str] | None:
    """List the sites that have a trained selector; None where any block will do."""
    trained = info_of(model).trained
    return sites_of(trained).split(", ") if trained else None


def own_method(model: nn.Module) -> str | None:
    """Give the method to begin with: of a dense checkpoint one that needs no training."""
    trained = info_of(model).trained
    return "motion" if trained is not None and not trained else None


def own_plan(model: nn.Module) -> str:
    """Give the plan to begin with."""
    return str(plan_of(model) or DEFAULT_PLAN)
