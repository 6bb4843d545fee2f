import pytest
import torch

from tokenselect.data import EvalTransform
from tokenselect.data.clips import ClipRule, View, place_views
from tokenselect.data.frame_source import FramesInMemory
from tokenselect.data.transforms import normalize, resize


def test_a_box_of_the_view_is_found_again_in_the_video():
    # 120×200 at half size is 60×100; the crop of 48×64 begins at row 6, column 18.
    view = View((120, 200), (60, 100), (6, 18, 48, 64))
    assert view.to_source(torch.tensor([0, 0, 64, 48])).tolist() == [36, 12, 164, 108]
    assert view.to_source(torch.tensor([8, 4, 16, 12])).tolist() == [52, 20, 68, 36]


def test_what_is_drawn_in_the_video_is_cut_where_the_box_says():
    video = torch.zeros(1, 3, 96, 160, dtype=torch.uint8)
    view = place_views((96, 160), (32, 48))[0]
    x0, y0, x1, y1 = view.to_source(torch.tensor([8, 4, 20, 12])).round().int().tolist()
    video[:, :, y0:y1, x0:x1] = 255
    seen = view.cut(video)[0, 0]
    assert (seen[5:11, 9:19] == 255).all()
    seen[3:13, 7:21] = 0
    assert (seen == 0).all()


@pytest.mark.parametrize("source", [(45, 70), (70, 45), (50, 50)])
@pytest.mark.parametrize("crops", [1, 3])
@pytest.mark.parametrize("short_side", [None, 37])
def test_the_test_transform_crops_squares_as_the_papers_do(source, crops, short_side):
    frames = torch.randint(256, (2, 3, *source), dtype=torch.uint8)
    scale = (short_side or 32) / min(source)
    resized = resize(frames, (round(source[0] * scale), round(source[1] * scale)))
    room_h, room_w = resized.shape[2] - 32, resized.shape[3] - 32
    expected = []
    for share in (0.5,) if crops == 1 else (0, 0.5, 1):
        top, left = room_h // 2, room_w // 2
        if crops > 1 and room_w >= room_h:
            left = round(room_w * share)
        elif crops > 1:
            top = round(room_h * share)
        crop = resized[:, :, top : top + 32, left : left + 32]
        expected.append(normalize(crop, mean=[0.45] * 3, std=[0.225] * 3))
    seen = EvalTransform(32, short_side=short_side, crops=crops)(frames)
    assert torch.equal(seen, torch.stack(expected))


def test_three_crops_cover_the_longer_side():
    wide = place_views((10, 30), (10, 10), crops=3)
    assert [view.box for view in wide] == [(0, 0, 10, 10), (0, 10, 10, 10), (0, 20, 10, 10)]
    assert [view.box[0] for view in place_views((30, 10), (10, 10), crops=3)] == [0, 10, 20]


def test_views_that_are_not_square_cover_their_size():
    (view,) = place_views((100, 100), (30, 50))
    assert view.resized == (50, 50) and view.box == (10, 0, 30, 50)
    assert view.to_source(torch.tensor([0, 0, 50, 30])).tolist() == [0, 20, 100, 80]


def test_frames_of_another_size_are_refused():
    with pytest.raises(ValueError, match=r"frames must be \(8, 9\), got \(9, 8\)"):
        View((8, 9), (8, 9), (0, 0, 8, 9)).cut(torch.zeros(1, 3, 9, 8, dtype=torch.uint8))


@pytest.mark.parametrize("size", [(90, 70), (20, 34)])  # frames that shrink, and that grow
def test_views_read_frame_by_frame_are_those_cut_from_whole_frames(size):
    rule = ClipRule(4, (32, 24), stride=3)
    frames = torch.randint(256, (23, 3, *size), dtype=torch.uint8)
    source = FramesInMemory(frames, fps=10, name="made")
    views = rule.views(size, crops=3)
    cut = torch.cat([rule.cut(frames[clip], views) for clip in rule.sample(2, 21, clips=2)])
    seen = rule.read_crops(source, start=2, stop=21, clips=2, crops=3)
    assert seen.shape == (6, 4, 3, 32, 24)
    assert torch.equal(rule.normalize(seen), cut)
