"""Models of other libraries, with selectors, as ONNX files in two runtimes."""

from functools import partial

import pytest
import torch
from torch import nn

from tests.adapters.test_llava import llava
from tests.contracts import frame_hosts, hosts
from tests.contracts.language_hosts import QWENS
from tokenselect import insert_selectors, vision_tower
from tokenselect.export import OnnxModel, OpenVinoModel, compare_logits, export_model

pytestmark = pytest.mark.slow

HOSTS = {  # what builds it, its input, a plan
    "torchvision MViT v1": (hosts.mvit_v1, (1, 3, 10, 48, 32), "T0=3-S1=3x3"),
    "torchvision MViT v2": (hosts.mvit_v2, (1, 3, 10, 48, 32), "T0=3-S1=3x3"),
    "torchvision Swin3D": (hosts.swin3d, (1, 3, 10, 48, 48), "T0=3"),
    "pytorchvideo MViT": (hosts.pytorchvideo_mvit, (1, 3, 10, 48, 32), "T0=3-S1=3x3"),
    "SlowFast MViT v1": (hosts.slowfast_mvit, (1, 3, 10, 48, 48), "T0=3-S1=3x3"),
    "SlowFast MViT v2": (
        partial(hosts.slowfast_mvit, is_v2=True),
        (1, 3, 10, 48, 48),
        "T0=3-S1=3x3",
    ),
    "SlowFast's convention": (hosts.slowfast_stand_in, (1, 3, 10, 48, 48), "T0=3-S1=3x3"),
    "VideoMAE": (hosts.videomae, (1, 10, 3, 48, 32), "T0=3-S1=3x3"),
    "ViViT": (hosts.vivit, (1, 10, 3, 48, 32), "T0=3-S1=3x3"),
    "TimeSformer": (hosts.timesformer, (1, 5, 3, 32, 32), "T0=3-S1=3x3"),
    "V-JEPA 2": (hosts.vjepa2, (1, 10, 3, 32, 32), "T0=3-S1=3x3"),
    "CLIP": (frame_hosts.clip, (5, 3, 32, 32), "T0=3-S1=3x3"),
    "SigLIP": (frame_hosts.siglip, (5, 3, 32, 32), "T0=3-S1=3x3"),
    "X-CLIP": (frame_hosts.x_clip, (5, 3, 32, 32), "T0=3-S1=3x3"),
    "Hiera": (frame_hosts.hiera, (1, 3, 10, 64, 48), "T0=3-S1=3x2"),
    "timm ViT": (frame_hosts.timm_vit, (5, 3, 32, 32), "T0=3-S1=3x3"),
    "VideoMAE V2": (frame_hosts.videomae_v2, (1, 3, 10, 48, 32), "T0=3-S1=3x3"),
    "InternVideo2": (frame_hosts.internvideo2, (1, 3, 5, 32, 32), "T0=3-S1=3x3"),
    "Qwen2-VL": (QWENS["qwen2-vl"], (3, 6, 8), "T0=2-S2=2x3-S4=2x2"),
    "Qwen2.5-VL": (QWENS["qwen2.5-vl"], (3, 6, 8), "T0=2-S2=2x3-S4=2x2"),
    "Qwen3-VL": (QWENS["qwen3-vl"], (3, 6, 8), "T0=2-S2=2x3-S4=2x2"),
    "LLaVA-OneVision": (llava, (3, 4, 4), "T3=2-S3=1x2"),
    "LLaVA-NeXT-Video": (partial(llava, "next-video"), (3, 4, 4), "T3=2-S3=1x2"),
}


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_answers_the_same_in_onnxruntime_and_openvino(host, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    pytest.importorskip("openvino")
    build, shape, plan = HOSTS[host]
    model: nn.Module = insert_selectors(build(), plan).eval()
    path = tmp_path / "host.onnx"
    assert export_model(model, path, "onnx", input_shape=shape).largest < 1e-4
    opened = OpenVinoModel(path)  # it reads ONNX, too
    assert compare_logits(model, opened, input_shape=shape).largest < 1e-4


def test_a_towers_file_says_which_tokens_it_kept(tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = insert_selectors(QWENS["qwen3-vl"](), "S4_0.5", method="evs")
    export_model(model, tmp_path / "a.onnx", input_shape=(3, 6, 8))
    opened = OnnxModel(tmp_path / "a.onnx")
    names = [output.name for output in opened.session.get_outputs()]
    assert names == ["tokens", "kept", "features_0", "features_1"]
    patches = torch.randn(opened.session.get_inputs()[0].shape)
    with torch.no_grad():
        expected = vision_tower(model, [(3, 6, 8)])(patches)
    assert opened(patches)[1].tolist() == expected[1].tolist()


def test_what_cannot_be_exported_says_so(tmp_path):
    model = QWENS["qwen2-vl"]()
    with pytest.raises(ValueError, match="call insert_selectors"):
        export_model(model, tmp_path / "a.onnx", input_shape=(3, 6, 8))
    insert_selectors(model, "T0=2")
    with pytest.raises(ValueError, match=r"frames, rows and columns of patches, got \(1, 3, 2"):
        export_model(model, tmp_path / "a.onnx", input_shape=(1, 3, 2, 8, 8))
