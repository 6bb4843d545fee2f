"""The command that makes streams of signs, on a few clips of noise."""

import csv
import random
import sys

import pytest
import torch

from benchmarks import sign_streams
from benchmarks.grid_clips import write_table
from tokenselect.data import open_video, write_video


def clips(signers=(3, 9)):
    return [
        {"path": f"{label}_{signer}.mp4", "label": str(label), "sign": "s", "signer": str(signer)}
        for label in (23, 24, 25, 26, 28)
        for signer in signers
    ]


def test_a_stream_is_an_answer_among_other_signs_of_its_signer():
    streams = sign_streams.plan_streams(clips(), random.Random(0))
    assert len(streams) == 2 * 2 + 2  # two signs: twice for signer 3, once for signer 9
    for parts, answer in streams:
        assert len({part["signer"] for part in parts}) == 1
        labels = [int(part["label"]) for part in parts]
        assert labels[answer] in (23, 25) and len(set(labels)) == 3
        assert all(label % 2 == 0 for place, label in enumerate(labels) if place != answer)


@pytest.mark.parametrize("answer", [(0, 60), (70, 130), (150, 190), (0, 190)])
def test_a_window_holds_the_whole_answer(answer):
    for seed in range(9):
        start, stop = sign_streams.draw_window(*answer, 190, random.Random(seed))
        assert 0 <= start <= answer[0] and answer[1] <= stop <= 190
        assert stop - start == max(sign_streams.WINDOW, answer[1] - answer[0])


def test_the_table_says_where_the_answer_is(tmp_path, monkeypatch):
    root, out = tmp_path / "lsa", tmp_path / "out"
    root.mkdir()
    rows = clips(signers=(9,))
    for row in rows:  # as many frames as the label says, so that the answer can be found again
        frames = torch.randint(0, 256, (int(row["label"]), 3, 24, 32), dtype=torch.uint8)
        write_video(root / row["path"], frames, options={"preset": "ultrafast"})
    write_table(root / "clips.tsv", rows)
    monkeypatch.setattr(sys, "argv", ["sign_streams", str(root), str(out)])
    sign_streams.main()
    with (out / "streams.tsv").open() as file:
        made = list(csv.DictReader(file, delimiter="\t"))
    assert [row["label"] for row in made] == ["23", "25"]
    for row in made:
        assert int(row["sign_stop"]) - int(row["sign_start"]) == int(row["label"])
        assert open_video(out / row["path"]).num_frames >= int(row["stop"])
