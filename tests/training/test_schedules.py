import pytest

from tokenselect.training.optimizer import LrSchedule, SigmaSchedule

LRS = LrSchedule(total_steps=20, warmup_steps=5, peak=1e-3, warmup_start=1e-6, end=1e-5)


def test_sigma_reaches_zero_on_the_last_step():
    assert SigmaSchedule(total_steps=20).at(20) == 0.0


def test_sigma_falls_in_a_line_from_its_start():
    sigmas = SigmaSchedule(total_steps=20, start=0.3)
    assert sigmas.at(0) == 0.3
    assert sigmas.at(5) - sigmas.at(10) == pytest.approx(sigmas.at(10) - sigmas.at(15))


def test_sigma_never_falls_below_zero():
    assert SigmaSchedule(total_steps=3).at(7) == 0.0


def test_sigma_can_reach_zero_before_the_end():
    sigmas = SigmaSchedule(total_steps=20, start=0.3, end=0.6)
    assert sigmas.at(0) == 0.3 and sigmas.at(6) == pytest.approx(0.15)
    assert sigmas.at(11) > 0 and sigmas.at(12) == 0.0
    with pytest.raises(ValueError, match="end must be in"):
        SigmaSchedule(total_steps=20, end=0.0)


def test_the_lr_starts_where_the_warm_up_does_and_peaks_at_its_end():
    assert LRS.at(0) == 1e-6
    assert LRS.at(5) == 1e-3
    assert max(LRS.at(step) for step in range(21)) == LRS.at(5)


def test_the_lr_ends_at_its_end_value_and_stays_there():
    assert LRS.at(20) == pytest.approx(1e-5)
    assert LRS.at(25) == pytest.approx(1e-5)


def test_the_lr_is_halfway_down_in_the_middle_of_the_cosine():
    lrs = LrSchedule(total_steps=10, warmup_steps=0, peak=2.0)
    assert lrs.at(5) == pytest.approx(1.0)
