"""Models of other libraries, with selectors, as ONNX files in two runtimes."""

import pytest
from torch import nn

from tests.contracts import frame_hosts, hosts
from tests.contracts.language_hosts import QWENS
from tokenselect import insert_selectors
from tokenselect.export import OpenVinoModel, compare_logits, export_model

pytestmark = pytest.mark.slow

HOSTS = {  # what builds it, its input, a plan
    "torchvision MViT v1": (hosts.mvit_v1, (1, 3, 10, 48, 32), "T0=3-S1=3x3"),
    "torchvision MViT v2": (hosts.mvit_v2, (1, 3, 10, 48, 32), "T0=3-S1=3x3"),
    "torchvision Swin3D": (hosts.swin3d, (1, 3, 10, 48, 48), "T0=3"),
    "pytorchvideo MViT": (hosts.pytorchvideo_mvit, (1, 3, 10, 48, 32), "T0=3-S1=3x3"),
    "VideoMAE": (hosts.videomae, (1, 10, 3, 48, 32), "T0=3-S1=3x3"),
    "ViViT": (hosts.vivit, (1, 10, 3, 48, 32), "T0=3-S1=3x3"),
    "TimeSformer": (hosts.timesformer, (1, 5, 3, 32, 32), "T0=3-S1=3x3"),
    "V-JEPA 2": (hosts.vjepa2, (1, 10, 3, 32, 32), "T0=3-S1=3x3"),
    "CLIP": (frame_hosts.clip, (5, 3, 32, 32), "T0=3-S1=3x3"),
    "SigLIP": (frame_hosts.siglip, (5, 3, 32, 32), "T0=3-S1=3x3"),
    "X-CLIP": (frame_hosts.x_clip, (5, 3, 32, 32), "T0=3-S1=3x3"),
    "timm ViT": (frame_hosts.timm_vit, (5, 3, 32, 32), "T0=3-S1=3x3"),
    "VideoMAE V2": (frame_hosts.videomae_v2, (1, 3, 10, 48, 32), "T0=3-S1=3x3"),
    "InternVideo2": (frame_hosts.internvideo2, (1, 3, 5, 32, 32), "T0=3-S1=3x3"),
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


def test_what_cannot_be_exported_says_so(tmp_path):
    with pytest.raises(ValueError, match="a Qwen2VLForConditionalGeneration cannot be exported"):
        export_model(QWENS["qwen2-vl"](), tmp_path / "a.onnx", input_shape=(1, 3, 2, 8, 8))
    hiera = insert_selectors(frame_hosts.hiera(), "T0=3")
    with pytest.raises(ValueError, match=r"torch cannot write this model as ONNX: .* 4D query"):
        export_model(hiera, tmp_path / "a.onnx", input_shape=(1, 3, 10, 64, 48))
    path = tmp_path / "a.pt2"
    assert export_model(hiera, path, "torch", input_shape=(1, 3, 10, 64, 48)).largest < 1e-4
