"""Models with all that belongs to them: loaded, put under another plan, saved, shared."""

from tokenselect.checkpoints.files import load_model, load_selectors, save_model
from tokenselect.checkpoints.model import (
    ModelInfo,
    info_of,
    method_of,
    plan_of,
    remarks_of,
    weights_digest,
    with_plan,
)
