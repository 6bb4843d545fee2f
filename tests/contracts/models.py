"""The models under the contracts, each small, with its own way of being run by hand."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tests.contracts import cuts, frame_hosts, hosts
from tokenselect import create_model


@dataclass(frozen=True)
class Case:
    """A model, the shape of its input, and a forward that drops patches without any hook."""

    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    run_by_hand: Callable[[nn.Module, Any, cuts.Cuts], Tensor]
    region: tuple[int, int] = (3, 2)  # kept before block 1
    takes_list: bool = False
    takes_frames: bool = False

    def video(self) -> Any:
        """Draw two clips: in a list of one for models that may take several pathways, or as a
        batch of frames for those that encode each on its own."""
        clips = torch.randn(2, *self.shape)
        if self.takes_frames:
            return clips.flatten(0, 1)
        return [clips] if self.takes_list else clips


def logits_of(output: object) -> Tensor:
    """Take the logits out of what a model returns."""
    if isinstance(output, Tensor):
        return output
    return output["logits"] if "logits" in output else output["pooler_output"]  # type: ignore


def own_case(name: str, frames: int, size: tuple[int, int]) -> Case:
    return Case(
        name=f"{name}-{frames}x{size[0]}x{size[1]}",
        build=lambda: create_model(name, num_classes=7, frames=frames, size=size).eval(),
        shape=(3, frames, *size),
        run_by_hand=cuts.run_own,
    )


def slowfast_case(name: str, build: Callable[[], nn.Module]) -> Case:
    return Case(name, build, (3, 10, 48, 48), cuts.run_slowfast_mvit, takes_list=True)


def frames_case(name: str, build: Callable[[], nn.Module], run: Any) -> Case:
    return Case(name, build, (5, 3, 32, 32), run, takes_frames=True)


def internvideo2_case(name: str, build: Callable[[], nn.Module]) -> Case:
    return Case(name, build, (3, 5, 32, 32), frame_hosts.run_internvideo2)


AVERAGE = partial(frame_hosts.timm_vit, global_pool="avg")
JOINT = partial(hosts.timesformer, attention_type="joint_space_time")
NO_CLASS_TOKEN = partial(hosts.pytorchvideo_mvit, has_class_token=False)
THIRD_PARTY = [
    Case("torchvision-mvit-v1", hosts.mvit_v1, (3, 10, 48, 32), cuts.run_torchvision_mvit),
    Case("torchvision-mvit-v2", hosts.mvit_v2, (3, 10, 48, 32), cuts.run_torchvision_mvit),
    Case("torchvision-swin3d", hosts.swin3d, (3, 10, 48, 56), cuts.run_swin3d, (4, 5)),
    Case("videomae", hosts.videomae, (10, 3, 48, 32), cuts.run_videomae),
    Case("vivit", hosts.vivit, (10, 3, 48, 32), cuts.run_vivit),
    Case("timesformer", hosts.timesformer, (5, 3, 32, 32), cuts.run_timesformer),
    Case("timesformer-joint", JOINT, (5, 3, 32, 32), cuts.run_timesformer),
    Case("vjepa2", hosts.vjepa2, (10, 3, 32, 32), cuts.run_vjepa2),
    frames_case("clip", frame_hosts.clip, frame_hosts.run_clip),
    frames_case("siglip", frame_hosts.siglip, frame_hosts.run_siglip),
    frames_case("x-clip", frame_hosts.x_clip, frame_hosts.run_x_clip),
    frames_case("timm-vit", frame_hosts.timm_vit, frame_hosts.run_timm),
    frames_case("timm-vit-average", AVERAGE, frame_hosts.run_timm),
    Case("hiera", frame_hosts.hiera, (3, 10, 64, 48), frame_hosts.run_hiera),
    Case("videomae-v2", frame_hosts.videomae_v2, (3, 10, 48, 32), frame_hosts.run_videomae_v2),
    internvideo2_case("internvideo2", frame_hosts.internvideo2),
    internvideo2_case("internvideo2-fused", partial(frame_hosts.internvideo2, is_fused=True)),
    Case("pytorchvideo-mvit", hosts.pytorchvideo_mvit, (3, 10, 48, 32), cuts.run_pytorchvideo_mvit),
    Case("pytorchvideo-plain", NO_CLASS_TOKEN, (3, 10, 48, 32), cuts.run_pytorchvideo_mvit),
    slowfast_case("slowfast-stand-in", hosts.slowfast_stand_in),
    slowfast_case("slowfast-mvit-v1", hosts.slowfast_mvit),
    slowfast_case("slowfast-mvit-v2", partial(hosts.slowfast_mvit, is_v2=True)),
]
OWN = [
    own_case("mvit_mini", 10, (96, 64)),
    own_case("video_swin_mini", 10, (96, 64)),
    own_case("video_swin_mini", 8, (80, 112)),
]
