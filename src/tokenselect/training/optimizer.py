"""AdamW with the paper's two rates: selectors learn fast, the pretrained backbone slowly."""

from typing import Any

from torch import Tensor, nn
from torch.optim import AdamW

SELECTORS = "token_selectors."  # what insertion calls the child module that it adds
TABLES = ("position", "pos_embed", "pos_encoding", "bias_table", "class_token", "cls_token")


def is_decayed(name: str, parameter: Tensor) -> bool:
    """Tell whether weight decay applies: not to vectors, biases, norms and learned tables."""
    is_table = any(word in name for word in TABLES)
    return parameter.ndim > 1 and not name.endswith(".bias") and not is_table


def group_parameters(
    model: nn.Module, *, weight_decay: float, backbone_factor: float
) -> list[dict[str, Any]]:
    """Sort parameters into at most four groups, by rate and by weight decay.

    Args:
        model: its parameters that need no gradient are left out; it may name more of them to
            spare from decay in a method `no_weight_decay_names`.
        weight_decay: of the parameters that are decayed.
        backbone_factor: rate of the backbone as a multiple of the selectors' (paper: 0.01).

    Returns:
        Groups for a torch optimizer; "factor" multiplies the scheduled rate.
    """
    groups: dict[tuple[bool, bool], dict[str, Any]] = {}
    name_spared = getattr(model, "no_weight_decay_names", set)
    spared = set(name_spared())
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        is_selector = name.startswith(SELECTORS)
        decays = is_decayed(name, parameter) and name not in spared
        group = groups.setdefault(
            (is_selector, decays),
            {
                "params": [],
                "factor": 1.0 if is_selector else backbone_factor,
                "weight_decay": weight_decay if decays else 0.0,
            },
        )
        group["params"].append(parameter)
    return list(groups.values())


def build_optimizer(
    model: nn.Module,
    *,
    weight_decay: float = 0.05,
    backbone_factor: float = 0.01,
    betas: tuple[float, float] = (0.9, 0.999),
) -> AdamW:
    """Build AdamW over `model`; the rate is set by `set_rate` before each step."""
    groups = group_parameters(model, weight_decay=weight_decay, backbone_factor=backbone_factor)
    if not groups:
        raise ValueError("the model has no parameter to train")
    # fused: one pass over all parameters, which matters where they are small and many
    return AdamW(groups, lr=0.0, betas=betas, fused=True)


def set_rate(optimizer: AdamW, rate: float) -> None:
    """Set the selectors' rate; the backbone's follows by its factor."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["factor"]
