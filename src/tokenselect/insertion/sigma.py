"""σ of the smoothed Top-K, for a whole model at once."""

from torch import nn

from tokenselect.selectors.relaxation import PerturbedTopK


def set_sigma(model: nn.Module, sigma: float) -> None:
    """Set the noise of every smoothed Top-K; at 0 training selects hard (section 3.2)."""
    for module in model.modules():
        if isinstance(module, PerturbedTopK):
            module.set_sigma(sigma)
