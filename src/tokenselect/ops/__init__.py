"""Pure tensor functions: nothing here knows of grids, models or training."""

from tokenselect.ops.topk import choose_method, gumbel_topk, perturbed_topk
from tokenselect.ops.topk_hard import hard_topk, one_hot_topk

__all__ = ["choose_method", "gumbel_topk", "hard_topk", "one_hot_topk", "perturbed_topk"]
