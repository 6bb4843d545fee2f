"""Which adapter fits a model: one dict from class path to adapter."""

from torch import nn

from tokenselect.adapters.adapter import Adapter
from tokenselect.adapters.own import OwnAdapter

ADAPTERS: dict[str, type[Adapter]] = {
    "tokenselect.backbones.mvit.model.MViT": OwnAdapter,
    "tokenselect.backbones.video_swin.model.VideoSwin": OwnAdapter,
}


def supported_models() -> list[str]:
    """List the class paths that selectors can be inserted into."""
    return sorted(ADAPTERS)


def find_adapter(model: nn.Module) -> Adapter:
    """Find the adapter of a model's class or of one it derives from."""
    for cls in type(model).__mro__:
        adapter = ADAPTERS.get(f"{cls.__module__}.{cls.__qualname__}")
        if adapter is not None:
            return adapter(model)
    name = f"{type(model).__module__}.{type(model).__qualname__}"
    raise TypeError(f"no adapter for {name}; supported: {', '.join(supported_models())}")
