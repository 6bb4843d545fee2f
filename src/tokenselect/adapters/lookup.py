"""Which adapter fits a model: a table from class paths to adapters."""

from dataclasses import dataclass

from torch import nn

from tokenselect.adapters import frame_towers, huggingface, llava, multiscale, published_code
from tokenselect.adapters.adapter import Adapter
from tokenselect.adapters.qwen_vl import QwenVLAdapter


@dataclass(frozen=True)
class Family:
    """Models of one adapter."""

    adapter: type[Adapter]  # reads and writes their blocks' arguments
    module: str  # where their classes are defined; "*." in front stands for any folder or package
    classes: tuple[str, ...]  # names of the classes there
    versions: str = ""  # of the library that they were tested with; empty for our own
    # what people call them; empty for the classes' own names at the top of the library
    names: tuple[str, ...] = ()


def _hugging_face(
    adapter: type[Adapter], name: str, *classes: str, versions: str = "5.22"
) -> Family:
    module = f"transformers.models.{name}.modeling_{name}"
    return Family(adapter, module, classes, f"transformers {versions}")


VIDEO, ANSWERS = "torchvision.models.video", "ForConditionalGeneration"
CLASSIFIERS = {  # adapter, versions, and the beginning of their classes' names
    "videomae": (huggingface.VideoMAEAdapter, "4.57, 5", "VideoMAE"),
    "timesformer": (huggingface.TimesformerAdapter, "4.57, 5", "Timesformer"),
    "vivit": (huggingface.VivitAdapter, "5", "Vivit"),
    "vjepa2": (huggingface.VJEPA2Adapter, "5", "VJEPA2"),
}
QWENS = {  # the beginning of their classes' names, and their vision towers
    "qwen2_vl": ("Qwen2VL", "Qwen2VisionTransformerPretrainedModel"),
    "qwen2_5_vl": ("Qwen2_5_VL", "Qwen2_5_VisionTransformerPretrainedModel"),
    "qwen3_vl": ("Qwen3VL", "Qwen3VLVisionModel"),
}
# fmt: off
FAMILIES = (
    Family(multiscale.OwnAdapter, "tokenselect.backbones.mvit.model", ("MViT",)),
    Family(multiscale.OwnAdapter, "tokenselect.backbones.video_swin.model", ("VideoSwin",)),
    Family(multiscale.TorchvisionMViTAdapter, f"{VIDEO}.mvit", ("MViT",), "torchvision 0.28",
           (f"{VIDEO}.mvit_v1_b", f"{VIDEO}.mvit_v2_s")),
    Family(multiscale.TorchvisionSwinAdapter, f"{VIDEO}.swin_transformer", ("SwinTransformer3d",),
           "torchvision 0.28", tuple(f"{VIDEO}.swin3d_{size}" for size in "tsb")),
    *(_hugging_face(kind, n, f"{model}Model", f"{model}ForVideoClassification", versions=versions)
      for n, (kind, versions, model) in CLASSIFIERS.items()),
    *(_hugging_face(QwenVLAdapter, n, f"{model}{ANSWERS}", f"{model}Model", tower)
      for n, (model, tower) in QWENS.items()),
    _hugging_face(llava.LlavaAdapter, "llava_onevision", f"LlavaOnevision{ANSWERS}"),
    _hugging_face(llava.LlavaNextVideoAdapter, "llava_next_video", f"LlavaNextVideo{ANSWERS}"),
    _hugging_face(frame_towers.ClipAdapter, "clip", "CLIPVisionModel",
                  "CLIPVisionModelWithProjection"),
    _hugging_face(frame_towers.FrameTowerAdapter, "siglip", "SiglipVisionModel"),
    _hugging_face(frame_towers.XClipAdapter, "x_clip", "XCLIPVisionModel", "XCLIPModel"),
    Family(frame_towers.TimmAdapter, "timm.models.vision_transformer", ("VisionTransformer",),
           "timm 1.0.20"),
    Family(published_code.HieraAdapter, "hiera.hiera", ("Hiera",), "hiera-transformer 0.1.4"),
    Family(published_code.VideoMAEv2Adapter, "*.modeling_finetune", ("VisionTransformer",),
           "VideoMAEv2 29eab1e", ("VideoMAEv2.models.modeling_finetune.VisionTransformer",)),
    Family(published_code.InternVideo2Adapter, "*.internvideo2", ("InternVideo2",),
           "InternVideo 3965eef",
           ("InternVideo2.single_modality.models.internvideo2.InternVideo2",)),
    Family(multiscale.PytorchvideoMViTAdapter, "pytorchvideo.models.vision_transformers",
           ("MultiscaleVisionTransformers",), "pytorchvideo 0.1.5 and its last commit",
           ("pytorchvideo.models.create_multiscale_vision_transformers",)),
    Family(multiscale.SlowFastMViTAdapter, "slowfast.models.video_model_builder", ("MViT",),
           "SlowFast 287ec00", ("slowfast.models.MViT",)),
)
# fmt: on
ADAPTERS = {f"{f.module}.{name}": f.adapter for f in FAMILIES for name in f.classes}


def supported_models() -> dict[str, str]:
    """List the models that selectors can be inserted into, by the names people know.

    The values are the versions of the library that they were tested with.
    """
    found: dict[str, str] = {}
    for family in FAMILIES:
        library = family.module.partition(".")[0]
        names = family.names or tuple(f"{library}.{name}" for name in family.classes)
        found |= dict.fromkeys(names, family.versions)
    return found


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
