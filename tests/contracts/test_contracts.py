"""What every adapter must hold, whatever model it reads.

Keeping everything is not enough: it also passes for an adapter that misreads the token order.
"""

import pytest
import torch
from torch import Tensor, nn

from tests.contracts.cuts import Cut
from tests.contracts.models import OWN, THIRD_PARTY, Case, logits_of
from tokenselect import insert_selectors, record_kept, record_selections, remove_selectors
from tokenselect.adapters import find_adapter

KEPT = (0, 2, 3)


@pytest.fixture(params=OWN + THIRD_PARTY, ids=lambda case: case.name)
def case(request) -> Case:
    torch.manual_seed(0)
    return request.param


@torch.no_grad()
def test_keeping_everything_is_the_untouched_model(case):
    model, video = case.build(), case.video()
    dense = logits_of(model(video))
    insert_selectors(model, "T0_1-S1_1-T2_1")
    assert torch.equal(logits_of(model(video)), dense)


@torch.no_grad()
def test_kept_frames_are_those_cut_by_hand_after_the_embedding(case):
    model, video = case.build(), case.video()
    by_hand = case.run_by_hand(model, video, {0: Cut(frames=KEPT)})
    insert_selectors(model, f"T0={len(KEPT)}", method="uniform")
    choose_frames(model, {"T0": KEPT})
    torch.testing.assert_close(logits_of(model(video)), by_hand, rtol=0, atol=1e-5)


@torch.no_grad()
def test_what_several_sites_keep_is_what_is_cut_by_hand(case):
    model, video = case.build(), case.video()
    rows, columns = case.region
    plan = f"T0={len(KEPT)}-S1={rows}x{columns}-T2=2"
    insert_selectors(model, plan, method="uniform", stride=(1, 1))
    choose_frames(model, {"T0": KEPT, "T2": (0, 2)})
    choose_last_region(model, "S1")
    with record_selections(model) as selections:
        found = logits_of(model(video))
    assert list(selections) == ["T0", "S1", "T2"]
    _, h, w = selections["S1"].thw_before
    region = Cut(rows=(h - rows, h), columns=(w - columns, w))
    cuts = {0: Cut(frames=KEPT), 1: region, 2: Cut(frames=(0, 2))}
    by_hand = case.run_by_hand(remove_selectors(model), video, cuts)
    torch.testing.assert_close(found, by_hand, rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_site_after_the_last_block_cuts_what_the_head_gets(case):
    model, video = case.build(), case.video()
    end = len(find_adapter(model).blocks(model))
    by_hand = case.run_by_hand(model, video, {0: Cut(frames=KEPT), end: Cut(frames=(0, 2))})
    insert_selectors(model, f"T0={len(KEPT)}-T{end}=2", method="uniform")
    choose_frames(model, {"T0": KEPT, f"T{end}": (0, 2)})
    with record_selections(model) as selections:
        found = logits_of(model(video))
    assert selections[f"T{end}"].thw_after[0] == 2
    torch.testing.assert_close(found, by_hand, rtol=0, atol=1e-5)


@torch.no_grad()
def test_the_kept_mask_is_that_of_what_is_cut_by_hand(case):
    model, video = case.build(), case.video()
    rows, columns = case.region
    insert_selectors(model, f"T0={len(KEPT)}-S0={rows}x{columns}", method="uniform", stride=(1, 1))
    choose_frames(model, {"T0": KEPT})
    choose_last_region(model, "S0")
    with record_kept(model) as kept:
        model(video)
    _, h, w = kept[0].thw
    everything = torch.arange(kept[0].mask[0].numel()).reshape(1, *kept[0].thw)
    left = Cut(KEPT, rows=(h - rows, h), columns=(w - columns, w)).of(everything)
    assert torch.equal(kept[0].indices, left.flatten(1).expand(2, -1))
    assert torch.equal(everything[0][kept[0].mask[1]], left.flatten())


@pytest.mark.parametrize("case", OWN, ids=lambda case: case.name)
def test_the_hooked_model_is_the_plain_loop(case):
    torch.manual_seed(0)
    model, video = case.build(), case.video()
    insert_selectors(model, "T0_0.6-S0_0.5-T2_0.7-S2_0.8")
    assert torch.equal(model(video), run_loop(model, video))
    with torch.no_grad():  # MViT then leaves out the last block's patches: sums are rounded anew
        torch.testing.assert_close(model(video), run_loop(model, video), rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_removal_leaves_no_key_and_no_hook(case):
    model, video = case.build(), case.video()
    keys, printed, dense = list(model.state_dict()), str(model), logits_of(model(video))
    insert_selectors(model, "T0_0.6-S2_0.7")
    assert [key for key in model.state_dict() if not key.startswith("token_selectors.")] == keys
    assert not torch.equal(logits_of(model(video)), dense)
    remove_selectors(model)
    assert list(model.state_dict()) == keys and str(model) == printed
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())
    assert torch.equal(logits_of(model(video)), dense)


def choose_frames(model: nn.Module, frames: dict[str, tuple[int, ...]]) -> None:
    """Make the selectors of these sites keep these frames."""
    for site, kept in frames.items():

        def score_frames(grid, *, keep, kept=kept) -> Tensor:
            scores = torch.zeros(grid.tokens.shape[0], grid.thw[0])
            scores[:, list(kept)] = 1.0
            return scores

        model.token_selectors[site].scoring.score_frames = score_frames


def choose_last_region(model: nn.Module, site: str) -> None:
    """Make the selector of a site keep the region at the bottom right."""

    def score_map(grid) -> Tensor:
        t, h, w = grid.thw
        scores = torch.arange(h)[:, None] + torch.arange(w)
        return scores.float().expand(grid.tokens.shape[0], t, h, w)

    model.token_selectors[site].scoring.score_map = score_map


def run_loop(model: nn.Module, video: Tensor) -> Tensor:
    """Run a backbone of ours block by block, selectors called by hand (no hook fires)."""
    selectors = model.token_selectors
    grid = model.embed(video)
    for index, block in enumerate(model.blocks):
        for selector in selectors.before(index):
            grid = selector(grid)
        grid = block.forward(grid)
    return model.head(grid)
