"""Teaching: the selectors of a model whose answer hangs on one frame, or place, find it."""

import warnings

import pytest
import torch
from torch import Tensor, nn

from tests.contracts.models import OWN, THIRD_PARTY, logits_of
from tests.small_models import tiny_mvit
from tokenselect import insert_selectors, record_selections, remove_selectors, set_plan
from tokenselect.adapters.multiscale import OwnAdapter
from tokenselect.grid import TokenGrid
from tokenselect.insertion import selectors_of
from tokenselect.measure.headroom import Chosen
from tokenselect.plan import SelectionPlan, Site
from tokenselect.selectors.taught import GAPS, FrameNetwork, TaughtScoring
from tokenselect.training import choices
from tokenselect.training.choices import (
    CHOICES,
    Tries,
    count_pairs,
    draw_choices,
    grid_before,
    losses_of,
    taught_scoring,
    try_choices,
    watch_clips,
)
from tokenselect.training.teach import (
    BRIEF,
    CLEAR,
    EVEN,
    LATER,
    bring_to_unit,
    choose_way,
    fit,
    teach_selectors,
    ways_of,
)

T, H, W, C = 7, 6, 5, 8
CLASSES = 3
ANSWERING = [case for case in OWN + THIRD_PARTY if not case.takes_frames]
TOWERS = [case for case in THIRD_PARTY if case.takes_frames]


class Same(nn.Module):
    in_channels = C

    def forward(self, grid: TokenGrid) -> TokenGrid:
        return grid

    def out_thw(self, thw):
        return thw


class Flash(nn.Module):
    """Takes tokens for clips; class k is what lights up in channel k, wherever that is."""

    stage_starts = (0,)
    default_input = (T, H, W)

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(4.0))
        self.blocks = nn.ModuleList([Same()])

    def embed_thw(self, t: int, h: int, w: int):
        return t, h, w

    def forward(self, clips: Tensor) -> Tensor:
        grid = self.blocks[0](TokenGrid.from_patches(clips))
        return self.gain * grid.patches[..., :CLASSES].amax(dim=(1, 2, 3))


def flashes(count: int, *, frames: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Draw clips with one light each: clips, labels, and the frame or the corner it is in."""
    clips = 0.1 * torch.randn(count, T, H, W, C)
    labels = torch.randint(CLASSES, (count,))
    where = torch.randint(T if frames else 2, (count,))
    for clip, label, place in zip(clips, labels, where, strict=True):
        if frames:
            clip[place, 2:4, 1:3, label] += 1.0
        else:  # the first two rows and columns, or the last ones
            part = slice(0, 2) if place == 0 else slice(-2, None)
            clip[::2, part, part, label] += 1.0
            clip[:, part, part, C - 1] += 1.0
    return clips, labels, where


def batches(count: int, **settings) -> list[tuple[Tensor, Tensor]]:
    return [flashes(12, **settings)[:2] for _ in range(count)]


def test_the_frame_that_decides_is_kept():
    torch.manual_seed(0)
    model = Flash()
    insert_selectors(model, "T0=1", scorer="taught", adapter=OwnAdapter)
    (lesson,) = teach_selectors(model, batches(10), steps=150)
    clips, labels, where = flashes(60)
    with record_selections(model) as kept, torch.no_grad():
        right = (model(clips).argmax(dim=1) == labels).float().mean()
    assert lesson.evenness < 1
    assert (kept["T0"].indices[:, 0] == where).float().mean() > 0.9
    assert right > 0.9


def test_the_region_that_decides_is_kept():
    torch.manual_seed(0)
    model = Flash()
    insert_selectors(model, "S0=2x2", scorer="taught", adapter=OwnAdapter)
    teach_selectors(model, batches(15, frames=False))
    clips, _, where = flashes(60, frames=False)
    with record_selections(model) as kept, torch.no_grad():
        model(clips)
    is_first = (kept["S0"].corners[:, ::2] == 0).all(dim=-1).float().mean(dim=1) > 0.5
    assert (is_first == (where == 0)).float().mean() > 0.9


def test_without_labels_the_models_own_answers_teach():
    torch.manual_seed(0)
    model = Flash()
    insert_selectors(model, "T0=1", scorer="taught", adapter=OwnAdapter)
    unlabelled = [(clips, None) for clips, _ in batches(10)]
    teach_selectors(model, unlabelled, uses_labels=False, steps=150)
    clips, _, where = flashes(60)
    with record_selections(model) as kept, torch.no_grad():
        model(clips)
    assert (kept["T0"].indices[:, 0] == where).float().mean() > 0.9
    with pytest.raises(ValueError, match="labels must be given"):
        teach_selectors(model, unlabelled)


@pytest.mark.parametrize("case", ANSWERING, ids=lambda case: case.name)
def test_every_model_is_taught_frames_and_regions_and_keeps_its_weights(case):
    torch.manual_seed(0)
    model = case.build()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    clips = [(case.video(), torch.randint(7, (2,))) for _ in range(5)]
    rows, columns = case.region
    plan = f"T0=3-S1={rows}x{columns}"
    lessons = teach_selectors(model, clips, plan=plan, steps=3)
    assert [lesson.site for lesson in lessons] == plan.split("-")
    assert str(selectors_of(model).plan) == plan
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in weights.items())
    scorer = selectors_of(model)["T0"].scoring.network.score.weight
    assert scorer.abs().sum() > 0
    assert torch.isfinite(logits_of(model(clips[0][0]))).all()


@pytest.mark.parametrize("case", TOWERS, ids=lambda case: case.name)
def test_a_tower_that_encodes_frames_on_their_own_has_no_answer_to_teach(case):
    clips = [(case.video(), torch.randint(7, (2,))) for _ in range(5)]
    with pytest.raises(
        ValueError, match=r"only a model that classifies videos can teach|one answer per clip"
    ):
        teach_selectors(case.build(), clips, plan="T0=3")


def test_choices_lose_what_running_with_them_alone_says():
    torch.manual_seed(0)
    model = Flash()
    insert_selectors(model, "T0_1", scorer="taught", adapter=OwnAdapter)
    clips, labels, _ = flashes(4)
    batches, site = [(clips[:3], labels[:3]), (clips[3:], labels[3:])], Site("T", 0, count=2)
    tries = watch_clips(model, batches, site, uses_labels=True, seed=0)
    scores = torch.zeros(4, T)
    for seed in (0, 1):
        tries = try_choices(model, batches, site, tries, scores=scores, seed=seed)
    assert tries.members.shape == (4, 2 * CHOICES, T) and (tries.members.sum(dim=2) == 2).all()
    for clip, label, members, losses in zip(
        clips, labels, tries.members.bool(), tries.losses, strict=True
    ):
        kept = torch.stack([clip[choice] for choice in members])
        torch.testing.assert_close(losses, 1 - model(kept).softmax(dim=1)[:, label])
    assert str(selectors_of(model).plan) == "T0_1"


@pytest.mark.parametrize("case", ANSWERING, ids=lambda case: case.name)
@pytest.mark.parametrize("number", [0, 1], ids=["frames", "regions"])
@torch.no_grad()
def test_choices_that_run_side_by_side_lose_what_they_lose_alone(case, number, monkeypatch):
    monkeypatch.setattr(choices, "CHOICES", 3)
    torch.manual_seed(0)
    model, video, labels = case.build().eval(), case.video(), torch.randint(7, (2,))
    plan = SelectionPlan.parse("T0=3-S1={}x{}".format(*case.region))
    before, site = plan.sites[:number], plan.sites[number]
    insert_selectors(model, plan, scorer="taught")
    set_plan(model, SelectionPlan((*before, Site(site.kind, site.block, 1.0))))
    tries = watch_clips(model, [(video, labels)], site, uses_labels=True, seed=0)
    scores = tries.members.sum(dim=1)
    tries = try_choices(model, [(video, labels)], site, tries, scores=scores, seed=0)
    set_plan(model, SelectionPlan((*before, site)))
    for members, losses in zip(tries.members.unbind(1), tries.losses.unbind(1), strict=True):
        choice = members.topk(tries.keep).indices
        selectors_of(model)[site.label].scoring = Chosen(choice)
        torch.testing.assert_close(losses, losses_of(model, video, labels))


def test_of_many_clips_fewer_choices_are_tried_each(monkeypatch):
    monkeypatch.setattr(choices, "MOST", 9)
    model = Flash()
    insert_selectors(model, "T0_1", scorer="taught", adapter=OwnAdapter)
    clips, labels, _ = flashes(4)
    batches, site = [(clips, labels)], Site("T", 0, count=2)
    tries = watch_clips(model, batches, site, uses_labels=True, seed=0)
    tries = try_choices(model, batches, site, tries, scores=torch.zeros(4, T), seed=0)
    assert tries.losses.shape == (4, 3)


def test_what_a_scorer_sees_is_caught_before_the_site_and_nothing_behind_it_runs():
    model = Flash()
    insert_selectors(model, "T0_1", scorer="taught", adapter=OwnAdapter)
    clips, labels, _ = flashes(2)
    whole = watch_clips(model, [(clips, labels)], Site("T", 0, count=2), uses_labels=True, seed=0)
    ran = []
    model.register_forward_hook(lambda *_: ran.append(1))
    grid = grid_before(model, Site("T", 0, count=2), clips)
    assert not ran
    scoring = taught_scoring(model, Site("T", 0, count=2))
    torch.testing.assert_close(scoring.frame_features(grid), whole.features)


def test_choices_are_drawn_where_scores_are_high():
    scores = torch.zeros(50, T)
    scores[:, 5] = 3.0
    drawn = draw_choices(scores, 2, CHOICES, torch.Generator().manual_seed(0))
    assert drawn.shape == (50, CHOICES, 2) and (drawn[..., 0] != drawn[..., 1]).all()
    assert (drawn == 5).any(dim=2).float().mean() > 0.9
    blind = draw_choices(torch.zeros(50, T), 2, CHOICES, torch.Generator().manual_seed(0))
    assert 0.15 < (blind == 5).any(dim=2).float().mean() < 0.45


def test_the_expected_loss_is_that_of_choices_as_likely_as_their_scores_say():
    features = torch.randn(3, T, 2)
    members = torch.eye(T).expand(3, -1, -1)
    losses = torch.rand(3, T)
    tries = Tries(features, torch.zeros(3), 1, members, losses)
    found = tries.loss(lambda seen: seen[..., 0], torch.tensor([2, 0]))
    chances = features[[2, 0], :, 0].softmax(dim=1)
    torch.testing.assert_close(found, (chances * losses[[2, 0]]).sum(dim=1).mean())


def test_pairs_are_counted_by_how_far_apart_they_are():
    members = torch.zeros(2, 1, T)
    members[0, 0, [0, 2, 3]] = 1
    members[1, 0, [1, 6]] = 1
    expected = torch.zeros(2, 1, GAPS)
    expected[0, 0, [0, 1, 2]] = 1  # 2 and 3; 0 and 2; 0 and 3
    expected[1, 0, 4] = 1
    assert torch.equal(count_pairs(members, GAPS), expected)


def test_what_repeats_its_neighbour_is_learnt_from_losses():
    """No frame is better than another, but two side by side are worth no more than one."""
    torch.manual_seed(0)
    drawn = draw_choices(torch.zeros(200, T), 3, CHOICES, torch.Generator().manual_seed(0))
    members = torch.zeros(200, CHOICES, T).scatter(2, drawn, 1.0)
    losses = count_pairs(members, 1).squeeze(2)
    tries = Tries(torch.randn(200, T, 4), torch.zeros(200), 3, members, losses)
    network = FrameNetwork(4, hidden=2)
    fit(network, tries, steps=100, lr=2e-3, seed=0)
    bring_to_unit(network, tries)
    assert network.repetition.argmax() == 0
    assert network.repetition[0] > 4 * network.repetition[1:].max()
    assert (network.repetition >= 0).all()


def test_even_frames_are_taken_unless_the_taught_ones_are_clearly_better():
    torch.manual_seed(0)
    noise = torch.randn(5, 50)
    ways = [(0.0, 0.0), (0.5, 0.0), (0.0, 1.0), (0.5, 1.0), EVEN]
    centred = noise - noise.mean(dim=1, keepdim=True)
    assert choose_way(centred, ways, margin=CLEAR) == 4
    two_errors = torch.tensor([0.0, 0.0, 4.0, 4.0, 0.4])[:, None]
    assert choose_way(two_errors + centred, ways, margin=CLEAR) == 4
    means = torch.tensor([0.5, 0.0, 4.0, 4.0, 4.0])[:, None]
    assert choose_way(means + 0.1 * noise, ways, margin=CLEAR) == 1
    means = torch.tensor([0.0, 0.0, 4.0, 0.0, 4.0])[:, None]
    assert choose_way(means + centred, ways, margin=CLEAR) == 3


def test_what_was_taught_before_needs_less_of_a_lead_than_the_best_of_many():
    torch.manual_seed(0)
    noise = torch.randn(5, 50)
    centred = noise - noise.mean(dim=1, keepdim=True)
    centred[-1] = 0  # a way's lead has an error of its own deviation / √50
    leads = 2.5 / 50**0.5 * centred.std(dim=1, keepdim=True)
    ways = [*((share, 1.0) for share in (0.0, 0.25, 0.5, 0.75)), EVEN]
    assert choose_way(centred - leads, ways, margin=CLEAR) == 4
    assert choose_way(centred - leads, ways, margin=LATER) < 4


def test_what_is_taught_again_is_trusted_no_less():
    frames, regions = SelectionPlan.parse("T0=3-S0_0.5").sites
    assert ways_of(frames, known=None) == [(0.0, 1.0), (0.25, 1.0), (0.5, 1.0), (0.75, 1.0), EVEN]
    assert ways_of(frames, known=(0.25, 1.0)) == [(0.0, 1.0), (0.25, 1.0), EVEN]
    assert ways_of(regions, known=(0.0, 0.0)) == [(0.0, 0.0), EVEN]
    assert len(ways_of(regions, known=None)) == 9


def test_what_will_be_looked_at_again_needs_one_standard_error_to_leave_even_selection():
    torch.manual_seed(0)
    noise = torch.randn(5, 50)
    centred = noise - noise.mean(dim=1, keepdim=True)
    centred[-1] = 0
    error = centred.std(dim=1, keepdim=True) / 50**0.5
    ways = [(0.0, 0.0), (0.5, 0.0), (0.0, 1.0), (0.5, 1.0), EVEN]
    assert choose_way(centred - 0.9 * error, ways, margin=BRIEF) == 4
    left = choose_way(centred - 1.5 * error, ways, margin=BRIEF)
    assert ways[left][1] == 1  # of those that leave it, the cautious ones as before
    assert choose_way(centred - 1.5 * error, ways, margin=CLEAR) == 4


def test_one_held_out_clip_chooses_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose_way(torch.tensor([[0.5], [1.0]]), [(0.0, 1.0), EVEN], margin=LATER) == 0


def test_a_steady_region_is_the_same_in_every_frame():
    torch.manual_seed(0)
    scoring = TaughtScoring("S", C)
    nn.init.normal_(scoring.network.score.weight)
    grid = TokenGrid.from_patches(torch.randn(2, T, H, W, C))
    for steadiness in (1.0, 0.0):
        scoring.trust(0.25, steadiness)
        scores = scoring.score_anchors(grid, side=(3, 2), stride=(1, 1))
        is_steady = torch.allclose(scores, scores[:, :1].expand_as(scores), atol=1e-6)
        assert is_steady == (steadiness == 1)


def test_a_scorer_that_cannot_be_taught_is_refused():
    clips = [(torch.randn(2, 3, 8, 24, 32), torch.tensor([0, 1]))]
    with pytest.raises(ValueError, match=r"scorer 'taught', got LearnedScoring at T0_0\.5"):
        teach_selectors(tiny_mvit("T0_0.5"), clips)
    dense = remove_selectors(tiny_mvit("T0_0.5"))
    with pytest.raises(ValueError, match="plan must say what to keep"):
        teach_selectors(dense, clips)
