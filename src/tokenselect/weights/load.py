"""Weights from a file or a state dict into a model."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tokenselect.plan import SELECTORS
from tokenselect.weights.files import read_weights, unwrap
from tokenselect.weights.formats import convert, is_scorer

Shape = tuple[int, ...]

HEAD = "classifier."
NUM_LISTED = 5

logger = logging.getLogger(__name__)


class MismatchError(ValueError):
    """The weights are of another model; the message lists what fits and what does not."""


@dataclass(frozen=True)
class LoadedWeights:
    """What `load_weights` did."""

    layout: str  # who named the weights so
    resized: list[str]  # tables that were interpolated to the model's input size or window
    initial: list[str]  # parameters left as they were: a classifier of other classes, new selectors
    unused: list[str]  # weights that the model has no place for: selectors of other sites


def load_weights(
    model: nn.Module,
    source: str | Path | Mapping[str, Tensor],
    *,
    title: str | None = None,
    class_names: Sequence[str] | None = None,
) -> LoadedWeights:
    """Load weights of ours or of another framework into one of our models, in place.

    The framework is told from the names and shapes in it (`tokenselect.weights.formats.LAYOUTS`).
    Tables of positions and relative biases are interpolated to the model's size. A classifier of
    other classes, and selectors that the weights do not have, stay as they are; both are told to
    the log. Anything else that does not fit is an error.

    Args:
        model: dense or with selectors; on any device.
        source: a file, a folder as `find_checkpoint` takes it, or a state dict.
        title: what messages call the weights, if not by their file.
        class_names: of the model. Weights that name other ones, or the same in another order, are
            of other classes.
    """
    metadata: Mapping[str, Any] = {}
    if isinstance(source, Mapping):
        title, state = title or "the state dict", unwrap(source)
    else:
        title, (state, metadata) = title or str(source), read_weights(source)
    try:
        layout, given, resized = convert(state, model)
    except ValueError as error:
        raise MismatchError(f"{title} cannot be loaded: {error}") from error
    own = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    unused = sorted(name for name in given if name not in own and _may_lack(name, own))
    left_out = {*unused, *_other_classes(given, own)}
    if differ_in_names(metadata.get("class_names"), class_names):
        left_out |= {name for name in given if name.startswith(HEAD)}
    given = {name: value for name, value in given.items() if name not in left_out}
    initial = sorted(name for name in own if name not in given and _may_lack(name, given))
    _check(f"{title} ({layout})", given, own, set(initial))
    check_finite(given, title)
    model.load_state_dict(given, strict=False)
    _tell(title, initial, unused)
    return LoadedWeights(layout, resized, initial, unused)


def _may_lack(name: str, others: Mapping[str, object]) -> bool:
    """Tell whether one side may have a parameter that the other has not."""
    if name.startswith(HEAD) or is_scorer(name):
        return True
    if not name.startswith(SELECTORS):
        return False
    site = ".".join(name.split(".")[:2]) + "."
    return not any(other.startswith(site) for other in others)


def differ_in_names(theirs: Sequence[str] | None, ours: Sequence[str] | None) -> bool:
    """Tell whether names that say what the classes are differ; bare numbers do not say it."""
    if not theirs or not ours or any(all(map(str.isdecimal, names)) for names in (theirs, ours)):
        return False
    return list(theirs) != list(ours)


def _other_classes(given: Mapping[str, Tensor], own: Mapping[str, Shape]) -> list[str]:
    """List the classifier's parameters if they differ in the number of classes only."""
    head = [name for name in own if name.startswith(HEAD) and name in given]
    shapes = [(tuple(given[name].shape), own[name]) for name in head]
    is_other = any(theirs[0] != ours[0] for theirs, ours in shapes)
    is_alike = all(theirs[1:] == ours[1:] for theirs, ours in shapes)
    return head if is_other and is_alike else []


def _check(
    title: str,
    given: Mapping[str, Tensor],
    own: Mapping[str, Shape],
    initial: set[str],
) -> None:
    """Raise `MismatchError` unless the rest fits exactly."""
    wrong = [n for n in own if n in given and given[n].shape != own[n]]
    missing = [name for name in own if name not in given and name not in initial]
    unknown = [name for name in given if name not in own]
    if not (wrong or missing or unknown):
        return
    fitting = len(own) - len(wrong) - len(missing) - len(initial)
    lines = [f"{title} does not fit the model: of its {len(own)} parameters {fitting} fit"]
    shapes = [f"{n} ({_sides(given[n].shape)}, the model's is {_sides(own[n])})" for n in wrong]
    for what, names in (
        ("of another shape", shapes),
        ("missing", missing),
        ("unknown to the model", unknown),
    ):
        if names:
            more = f" and {len(names) - NUM_LISTED} more" if len(names) > NUM_LISTED else ""
            lines.append(f"  {what}: {', '.join(names[:NUM_LISTED])}{more}")
    if any("scoring.network.embed" in name for name in unknown):
        lines.append(
            '  its selectors are those of the authors\' code: build with scorer="released"'
        )
    raise MismatchError("\n".join(lines))


def check_finite(weights: Mapping[str, Tensor], title: str) -> None:
    """Refuse weights that would make every answer NaN."""
    for name, value in weights.items():
        if not value.is_meta and not value.isfinite().all():
            raise ValueError(f"{title} holds NaN or infinite values in {name}: it cannot be used")


def _sides(shape: Shape) -> str:
    return "×".join(map(str, shape)) or "a number"


def _tell(title: str, initial: list[str], unused: list[str]) -> None:
    """Log what a user should know of."""
    if any(name.startswith(HEAD) for name in initial):
        logger.warning("%s: no classifier for these classes: the model's starts untrained", title)
    for what, names in (
        ("the model's selectors %s start untrained: they are not in the weights", initial),
        ("its selectors %s are not used: the model has no such sites", unused),
    ):
        selectors = [n for n in names if not n.startswith(HEAD)]
        sites = sorted({".".join(n.split(".")[:2]).removeprefix(SELECTORS) for n in selectors})
        if sites:
            logger.warning("%s: " + what, title, ", ".join(sites))
