"""transformers' video-classification pipeline with selectors inside."""

from pathlib import Path

import numpy
import pytest
import torch

from tests.contracts import hosts
from tokenselect import insert_selectors, record_selections

FAMILIES = {  # frames and size of a clip, and what the model calls it
    hosts.videomae: (10, (48, 32), "pixel_values"),
    hosts.vivit: (10, (48, 32), "pixel_values"),
    hosts.timesformer: (5, (32, 32), "pixel_values"),
    hosts.vjepa2: (10, (32, 32), "pixel_values_videos"),
}


@pytest.fixture(scope="module")
def video(tmp_path_factory) -> str:
    av = pytest.importorskip("av")
    path = tmp_path_factory.mktemp("videos") / "a.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        colours = numpy.random.default_rng(0)
        for _ in range(12):
            picture = colours.integers(0, 255, (48, 64, 3), dtype=numpy.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return str(Path(path))


@pytest.mark.parametrize("build", FAMILIES, ids=lambda build: build.__name__)
def test_the_pipeline_answers_as_the_model_does(build, video):
    library = hosts.transformers()
    frames, size, name = FAMILIES[build]
    seen = []

    class Processor(library.image_processing_utils.BaseImageProcessor):
        def __call__(self, clip, return_tensors=None):
            pixels = torch.from_numpy(numpy.stack(clip)).movedim(-1, 1).float() / 255
            pixels = torch.nn.functional.interpolate(pixels, size)[None]
            seen.append(pixels)
            return library.BatchFeature({name: pixels})

    model = insert_selectors(build(), "T0=3-S1=3x3")
    classify = library.pipeline(
        "video-classification", model=model, image_processor=Processor(), device="cpu"
    )
    with record_selections(model) as selections:
        answers = classify(video, num_frames=frames, top_k=7)
    assert list(selections) == ["T0", "S1"]
    with torch.no_grad():
        scores = model(seen[0]).logits[0].softmax(-1)
    found = {answer["label"]: answer["score"] for answer in answers}
    expected = {model.config.id2label[i]: score.item() for i, score in enumerate(scores)}
    assert found == pytest.approx(expected, abs=1e-6)
