import pytest
import torch

from tests.contracts import hosts
from tokenselect import create_model, insert_selectors, record_kept, record_selections


@torch.no_grad()
def test_kept_tokens_are_followed_from_site_to_site():
    torch.manual_seed(0)
    model, video = hosts.videomae(), torch.randn(2, 10, 3, 48, 32)
    insert_selectors(model, "T0=4-S1=3x2-T2=2-S3=2x2", method="motion", stride=(1, 1))
    with record_kept(model) as kept, record_selections(model) as selections:
        model(video)
    left = torch.arange(5 * 6 * 4).reshape(1, 5, 6, 4).expand(2, -1, -1, -1)
    clips = torch.arange(2)[:, None]
    for site in ("T0", "S1", "T2", "S3"):
        selection = selections[site]
        if selection.corners is None:
            left = left[clips, selection.indices]
            continue
        h, w = selection.thw_after[1:]
        left = torch.stack(
            [
                torch.stack(
                    [frame[r : r + h, c : c + w] for frame, (r, c) in zip(*clip, strict=True)]
                )
                for clip in zip(left, selection.corners.tolist(), strict=True)
            ]
        )
    assert torch.equal(kept[0].indices, left.flatten(1))
    assert kept[0].mask.sum(dim=(1, 2, 3)).tolist() == [8, 8]


@torch.no_grad()
def test_places_that_tokens_carry_need_no_following():
    model, video = hosts.vjepa2(), torch.randn(1, 10, 3, 32, 32)
    insert_selectors(model, "T0=3-S1=2x2", method="uniform")
    with record_kept(model) as kept:
        model(video)
    assert kept[0].thw == (5, 4, 4)
    assert kept[0].mask[0].sum(dim=(1, 2)).tolist() == [4, 0, 4, 0, 4]


@torch.no_grad()
def test_blocks_that_pool_between_sites_are_refused():
    model = insert_selectors(create_model("mvit_mini", num_classes=5), "T0_0.5-S4_0.5")
    with pytest.raises(ValueError, match="blocks change the grid between them"), record_kept(model):
        model(torch.randn(1, 3, *model.default_input))


def test_a_model_without_selectors_keeps_no_record():
    with pytest.raises(ValueError, match="insert_selectors"), record_kept(hosts.videomae()):
        pass
