"""Pure tensor functions: nothing here knows of grids, models or training."""

from tokenselect.ops.perturbed_topk import perturbed_topk
from tokenselect.ops.topk_hard import hard_topk, one_hot_topk

__all__ = ["hard_topk", "one_hot_topk", "perturbed_topk"]
