"""The models that the page offers, opened when they are first wanted and kept ready."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
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
        self._lock = threading.Lock()
        self._opened = lru_cache(OPEN_MODELS)(self._open)
        self._layers: WeakKeyDictionary[nn.Module, list[Layer]] = WeakKeyDictionary()

    def _open(self, key: str) -> tuple[nn.Module, Callable[..., nn.Module]]:
        """Build a model, and what gives it under a plan and a method."""
        model = self.offers[key].open()
        return model, lru_cache(OPEN_PLANS)(partial(with_plan, model))

    def open(self, key: str) -> nn.Module:
        """Give a model under its own plan."""
        if key not in self.offers:
            raise Missing(f"no model {key!r}; there are {', '.join(self.offers)}")
        with self._lock:
            return self._opened(key)[0]

    def with_plan(self, key: str, plan: SelectionPlan, *, method: str | None) -> nn.Module:
        """Give a model under a plan; the same one again is there at once."""
        self.open(key)
        with self._lock:
            return self._opened(key)[1](str(plan), method=method if plan else None)

    def run(self, model: nn.Module) -> Runner:
        """Give what runs a model; it is opened once."""
        if model not in self._runners and self._open_run is not None:
            self._runners[model] = self._open_run(model)
        return self._runners.get(model, model)

    def layers_of(self, model: nn.Module, grids: list[THW], shape: tuple[int, ...]) -> list[Layer]:
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


def own_choice(model: nn.Module) -> tuple[list[str] | None, str, str | None]:
    """Give the sites with a trained selector, None for any, and the plan and method to begin with.

    The method is given for a dense checkpoint alone: one that needs no training.
    """
    trained = info_of(model).trained
    sites = sites_of(trained).split(", ") if trained else None
    method = "motion" if trained is not None and not trained else None
    return sites, str(plan_of(model) or DEFAULT_PLAN), method
