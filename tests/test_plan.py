import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenselect.plan import SelectionPlan, Site, count_of

RELEASED = [(0.9, 7), (0.8, 6), (0.6, 5), (0.5, 4), (0.4, 3)]


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("T0_0.6-S4_0.9", "T0_0.6-S4_0.9"),
        ("S4_0.9-T0_0.6", "T0_0.6-S4_0.9"),
        ("T0=5-S4=13x13", "T0=5-S4=13x13"),
        ("S4=13", "S4=13x13"),
        ("T0_.60", "T0_0.6"),
        ("T0_1", "T0_1"),
        ("MViT-B16-T^0_{0.4}-S^4_{0.6}", "T0_0.4-S4_0.6"),
        (r"MViT-B16-$\text{T}^0_{0.4}$-$\text{S}^{4}_{0.6}$", "T0_0.4-S4_0.6"),
        ("VideoSwin-B-T^0_{0.6}", "T0_0.6"),
        ("-T^0_{0.5}", "T0_0.5"),
        ("T0_0.9-T4_0.7-S0_0.9-S4_0.7", "T0_0.9-S0_0.9-T4_0.7-S4_0.7"),
        ("MViT-B16", "dense"),
        ("", "dense"),
        ("dense", "dense"),
    ],
)
def test_a_plan_is_read_and_written_in_canonical_form(text, canonical):
    plan = SelectionPlan.parse(text)
    assert str(plan) == canonical
    assert SelectionPlan.parse(canonical) == plan


@given(
    st.lists(
        st.one_of(
            st.builds(Site, st.just("T"), st.integers(0, 40), count=st.integers(1, 64)),
            st.builds(
                Site,
                st.just("S"),
                st.integers(0, 40),
                st.tuples(st.integers(1, 99), st.integers(1, 99)),
            ),
            st.builds(
                Site,
                st.sampled_from("TS"),
                st.integers(0, 40),
                st.integers(1, 1000).map(lambda thousandths: thousandths / 1000),
            ),
        ),
        unique_by=lambda site: site.label,
    )
)
def test_every_plan_survives_its_text(sites):
    plan = SelectionPlan(tuple(sites))
    assert SelectionPlan.parse(str(plan)) == plan


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("T0_0.6-X4_0.9", "X4_0.9"),
        ("T0", "'T0'"),
        ("T0_0.6--S4_0.9", "''"),
        ("T0_0.6.1", "0.6.1"),
        ("T0=5x5", "one count"),
        ("T0_1.5", "1.5"),
        ("T0_0", "(0, 1]"),
        ("S4_-0.5", "-0.5"),
        ("S4=0x3", "at least 1"),
        ("T0_0.6-T0_0.5", "more than once"),
        ("resnet-T0_0.5", "resnet"),
    ],
)
def test_a_wrong_plan_is_refused_by_name(text, part):
    with pytest.raises(ValueError) as error:
        SelectionPlan.parse(text)
    assert part in str(error.value)


@pytest.mark.parametrize(("ratio", "kept"), RELEASED)
def test_ratios_give_the_frames_of_the_released_configurations(ratio, kept):
    assert Site("T", 0, ratio).frames_kept(8) == kept


@pytest.mark.parametrize(("ratio", "side"), [(0.9, 13), (0.7, 12), (0.6, 11), (0.3, 8)])
def test_ratios_give_the_sides_of_the_released_configurations(ratio, side):
    assert Site("S", 4, ratio).region_side(14, 14) == (side, side)


def test_a_region_has_the_shape_of_its_frame():
    assert Site("S", 0, 0.25).kept_thw((3, 12, 20)) == (3, 6, 10)


def test_a_count_is_at_least_one():
    assert count_of(3, 0.01) == 1


def test_more_frames_than_there_are_is_refused():
    with pytest.raises(ValueError, match="T0=9 asks for 9 frames, but there are only 8"):
        Site("T", 0, 9).frames_kept(8)


def test_one_frame_and_all_frames_cannot_be_mixed_up():
    assert Site("T", 0, 1.0).frames_kept(8) == 8
    assert Site("T", 0, count=1).frames_kept(8) == 1
    assert SelectionPlan.parse("T0=1").sites == (Site("T", 0, count=1),)
    assert SelectionPlan.parse("T0=1-S1=2x3").moved([4, 7]) == SelectionPlan.parse("T4=1-S7=2x3")
    with pytest.raises(ValueError, match="one frame or all of them: write count=1 for one"):
        Site("T", 0, 1)
    with pytest.raises(ValueError, match=r"ratio of site T0 must be in \(0, 1\], got 5"):
        Site("T", 0, 5.0)
    with pytest.raises(ValueError, match=r"count of site T0 must be a whole number, got 0.5"):
        Site("T", 0, count=0.5)
    with pytest.raises(TypeError, match=r"keep or count, got 0.5 and 3"):
        Site("T", 0, 0.5, count=3)
    with pytest.raises(TypeError, match="keep or count"):
        Site("T", 0)


def test_a_side_larger_than_the_grid_is_refused():
    with pytest.raises(ValueError, match="15×3 region of a 14×14 grid"):
        Site("S", 4, (15, 3)).region_side(14, 14)


def test_a_site_beyond_the_last_block_is_refused():
    with pytest.raises(ValueError, match=r"T16_0.5 is before block 16.*16 blocks \(0 to 15\)"):
        SelectionPlan.parse("T16_0.5").check_blocks(16)


def test_stages_are_counted_by_their_first_blocks():
    assert str(SelectionPlan.parse("T0_0.8-T2_0.5").moved((0, 2, 4, 22))) == "T0_0.8-T4_0.5"
    with pytest.raises(ValueError, match="stage 4"):
        SelectionPlan.parse("T4_0.5").moved((0, 2, 4, 22))
