"""Pure tensor functions: nothing here knows of grids, models or training."""

from tokenselect.ops.perturbed_topk import choose_method, perturbed_topk
from tokenselect.ops.topk_gumbel import gumbel_topk
from tokenselect.ops.topk_hard import hard_topk, one_hot_topk

__all__ = ["choose_method", "gumbel_topk", "hard_topk", "one_hot_topk", "perturbed_topk"]
