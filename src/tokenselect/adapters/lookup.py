"""Which adapter fits a model: a table from class paths to adapters."""

from dataclasses import dataclass

from torch import nn

from tokenselect.adapters.adapter import Adapter
from tokenselect.adapters.frame_towers import (
    ClipAdapter,
    FrameTowerAdapter,
    TimmAdapter,
    XClipAdapter,
)
from tokenselect.adapters.huggingface import (
    TimesformerAdapter,
    VideoMAEAdapter,
    VivitAdapter,
    VJEPA2Adapter,
)
from tokenselect.adapters.llava import LlavaAdapter
from tokenselect.adapters.multiscale import (
    OwnAdapter,
    PytorchvideoMViTAdapter,
    SlowFastMViTAdapter,
    TorchvisionMViTAdapter,
    TorchvisionSwinAdapter,
)
from tokenselect.adapters.published_code import (
    HieraAdapter,
    InternVideo2Adapter,
    VideoMAEv2Adapter,
)
from tokenselect.adapters.qwen_vl import QwenVLAdapter


@dataclass(frozen=True)
class Family:
    """Models of one adapter."""

    adapter: type[Adapter]  # reads and writes their blocks' arguments
    module: str  # where their classes are defined; "*." in front stands for any folder or package
    classes: tuple[str, ...]  # names of the classes there
    # what people call them; empty for the classes' own names at the top of the library
    names: tuple[str, ...] = ()
    versions: str = ""  # of the library that they were tested with; empty for our own

    @property
    def known_as(self) -> tuple[str, ...]:
        """List the names with their library."""
        library = self.module.partition(".")[0]
        return self.names or tuple(f"{library}.{name}" for name in self.classes)


def _hugging_face(adapter: type[Adapter], name: str, *classes: str, versions: str) -> Family:
    module = f"transformers.models.{name}.modeling_{name}"
    return Family(adapter, module, classes, versions=f"transformers {versions}")


def _classifier(adapter: type[Adapter], name: str, model: str, versions: str = "5") -> Family:
    classes = (f"{model}Model", f"{model}ForVideoClassification")
    return _hugging_face(adapter, name, *classes, versions=versions)


def _qwen(name: str, model: str, tower: str) -> Family:
    classes = (f"{model}ForConditionalGeneration", f"{model}Model", tower)
    return _hugging_face(QwenVLAdapter, name, *classes, versions="5.22")


TORCHVISION_VIDEO, VIT = "torchvision.models.video", "timm.models.vision_transformer"
# fmt: off
FAMILIES = (
    Family(OwnAdapter, "tokenselect.backbones.mvit.model", ("MViT",)),
    Family(OwnAdapter, "tokenselect.backbones.video_swin.model", ("VideoSwin",)),
    Family(
        TorchvisionMViTAdapter, f"{TORCHVISION_VIDEO}.mvit", ("MViT",),
        (f"{TORCHVISION_VIDEO}.mvit_v1_b", f"{TORCHVISION_VIDEO}.mvit_v2_s"), "torchvision 0.28"
    ),
    Family(
        TorchvisionSwinAdapter, f"{TORCHVISION_VIDEO}.swin_transformer", ("SwinTransformer3d",),
        tuple(f"{TORCHVISION_VIDEO}.swin3d_{size}" for size in "tsb"), "torchvision 0.28"
    ),
    _classifier(VideoMAEAdapter, "videomae", "VideoMAE", "4.57, 5"),
    _classifier(TimesformerAdapter, "timesformer", "Timesformer", "4.57, 5"),
    _classifier(VivitAdapter, "vivit", "Vivit"),
    _classifier(VJEPA2Adapter, "vjepa2", "VJEPA2"),
    _qwen("qwen2_vl", "Qwen2VL", "Qwen2VisionTransformerPretrainedModel"),
    _qwen("qwen2_5_vl", "Qwen2_5_VL", "Qwen2_5_VisionTransformerPretrainedModel"),
    _qwen("qwen3_vl", "Qwen3VL", "Qwen3VLVisionModel"),
    _hugging_face(
        LlavaAdapter, "llava_onevision", "LlavaOnevisionForConditionalGeneration", versions="5.22"
    ),
    _hugging_face(
        ClipAdapter, "clip", "CLIPVisionModel", "CLIPVisionModelWithProjection", versions="5.22"
    ),
    _hugging_face(FrameTowerAdapter, "siglip", "SiglipVisionModel", versions="5.22"),
    _hugging_face(XClipAdapter, "x_clip", "XCLIPVisionModel", "XCLIPModel", versions="5.22"),
    Family(TimmAdapter, VIT, ("VisionTransformer",), versions="timm 1.0.20"),
    Family(HieraAdapter, "hiera.hiera", ("Hiera",), versions="hiera-transformer 0.1.4"),
    Family(
        VideoMAEv2Adapter, "*.modeling_finetune", ("VisionTransformer",),
        ("VideoMAEv2.models.modeling_finetune.VisionTransformer",), "VideoMAEv2, last commit"
    ),
    Family(
        InternVideo2Adapter, "*.internvideo2", ("InternVideo2",),
        ("InternVideo2.single_modality.models.internvideo2.InternVideo2",),
        "InternVideo, last commit"
    ),
    Family(
        PytorchvideoMViTAdapter, "pytorchvideo.models.vision_transformers",
        ("MultiscaleVisionTransformers",),
        ("pytorchvideo.models.create_multiscale_vision_transformers",),
        "pytorchvideo 0.1.5 and its last commit"
    ),
    Family(
        SlowFastMViTAdapter, "slowfast.models.video_model_builder", ("MViT",),
        ("slowfast.models.MViT",), "SlowFast, last commit"
    ),
)
# fmt: on
ADAPTERS = {f"{f.module}.{name}": f.adapter for f in FAMILIES for name in f.classes}


def supported_models() -> dict[str, str]:
    """List the models that selectors can be inserted into.

    Returns:
        The names people know to the versions of the library they were tested with.
    """
    return {name: family.versions for family in FAMILIES for name in family.known_as}


def find_adapter(model: nn.Module) -> Adapter:
    """Find the adapter of a model's class or of one it derives from."""
    adapter = _adapter_of(type(model))
    if adapter is not None:
        return adapter(model)
    name = f"{type(model).__module__}.{type(model).__qualname__}"
    raise TypeError(
        f"no adapter for {name}; supported: {', '.join(supported_models())}; "
        "for other models write one (docs/adapters.md) and pass it as adapter=…"
    )


def is_supported(model: nn.Module) -> bool:
    """Tell whether `find_adapter` finds one."""
    return _adapter_of(type(model)) is not None


def _adapter_of(cls: type) -> type[Adapter] | None:
    for base in cls.__mro__:
        anywhere = f"*.{base.__module__.rpartition('.')[2]}.{base.__qualname__}"
        adapter = ADAPTERS.get(f"{base.__module__}.{base.__qualname__}") or ADAPTERS.get(anywhere)
        if adapter is not None:
            return adapter
    return None
