import pytest
import torch
from PIL import Image

from tests.visualization.stories import make_explanation
from tokenselect.data import open_video
from tokenselect.visualization.pictures import (
    KEPT,
    FramePainter,
    draw_film_strip,
    draw_overlay,
    heat_colours,
    stretch,
    write_overlay,
)
from tokenselect.visualization.tracing import to_pixels


@pytest.fixture(scope="module")
def story():
    return make_explanation()


def test_the_box_is_drawn_where_the_kept_cells_are_in_the_video(story):
    # Cells 2 to 4 and 1 to 2 of frame 0 are pixels 8 to 19 and 4 to 11 of the view; the view
    # begins at (3, 2) of the half-size video: 22 to 45 and 12 to 27 of the video itself.
    painter = FramePainter(story.clip, width=60)
    picture = painter.kept(0, story.kept(story.plans[1]))
    assert painter.place(torch.tensor([8, 4, 20, 12])) == (22, 12, 46, 28)
    assert picture.getpixel((22, 12)) == picture.getpixel((45, 27)) == KEPT
    assert picture.getpixel((30, 20)) == (200, 200, 200)
    assert max(picture.getpixel((20, 20))) < 120 and max(picture.getpixel((46, 20))) < 120


def test_a_dropped_frame_is_dimmer_than_what_lies_around_a_region(story):
    painter = FramePainter(story.clip, width=60)
    kept = story.kept(story.plans[1])
    dropped, outside = painter.kept(2, kept).getpixel((30, 20)), painter.kept(0, kept)
    assert max(dropped) < max(outside.getpixel((5, 5))) < 120


def test_a_dense_plan_dims_only_what_the_model_does_not_see(story):
    painter = FramePainter(story.clip, width=60)
    picture = painter.kept(0, story.kept(story.plans[0]))
    assert picture.getpixel((30, 20)) == (200, 200, 200)
    assert max(picture.getpixel((2, 2))) < 120  # outside the crop


def test_patches_one_by_one_are_lit_one_by_one(story):
    cells = torch.zeros(3, 4, 6, dtype=torch.bool)
    cells[0, 0, 0] = cells[0, 3, 5] = True
    kept = to_pixels(cells, stride=story.clip.stride, video=story.clip.video)
    picture = FramePainter(story.clip, width=60).kept(0, kept)
    assert picture.getpixel((8, 6)) == (200, 200, 200)
    assert max(picture.getpixel((30, 20))) < 120


def test_heat_lies_on_the_cells_that_were_scored(story):
    scores = torch.full((4, 6), float("nan"))
    scores[1, 2] = 1.0
    kept = story.kept(story.plans[1])
    picture = FramePainter(story.clip, width=60).heat(2, scores, kept)
    lit, around = picture.getpixel((25, 15)), picture.getpixel((40, 15))
    assert min(lit[:2]) > 150 and max(around) < 70


def test_heat_rises_in_lightness():
    ramp = heat_colours(torch.linspace(0, 1, 11)) @ torch.tensor([0.3, 0.6, 0.1])
    assert (ramp.diff() > 0).all()


def test_the_strip_has_a_column_for_each_token_frame(story):
    wide = draw_film_strip(story, story.plans[1], thumb_width=60)
    bare = draw_film_strip(story, story.plans[1], thumb_width=60, with_scores=False)
    assert wide.width == bare.width and wide.height > bare.height + 60
    assert draw_film_strip(story, story.plans[0], thumb_width=60).height == bare.height


def test_stretching_keeps_gaps_and_survives_equal_scores():
    values = torch.tensor([2.0, float("nan"), 4.0])
    assert stretch(values)[[0, 2]].tolist() == [0, 1] and stretch(values)[1].isnan()
    assert stretch(torch.tensor([3.0, 3.0])).tolist() == [0.5, 0.5]


def test_overlays_are_written_as_video_and_as_gif(story, tmp_path):
    frames = draw_overlay(story, story.plans[1], width=61)
    assert frames.shape[0] == 6 and frames.shape[2] % 2 == frames.shape[3] % 2 == 0
    write_overlay(tmp_path / "o.mp4", story, story.plans[1:], width=60)
    source = open_video(tmp_path / "o.mp4")
    assert source.num_frames == 6 and source.fps == pytest.approx(5)
    write_overlay(tmp_path / "o.gif", story, story.plans, width=60)
    with Image.open(tmp_path / "o.gif") as picture:
        assert picture.n_frames == 6 and picture.width == 120
