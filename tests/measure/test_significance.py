from itertools import product
from math import comb

import numpy as np
import pytest

from tokenselect.measure.significance import compare_answers, sign_flip_test


def test_one_seed_is_mcnemars_exact_test():
    ours, theirs = "1" * 9 + "0" * 2 + "11100", "0" * 9 + "1" * 2 + "11100"
    binomial = 2 * sum(comb(11, k) for k in range(3)) / 2**11
    assert compare_answers([ours], [theirs]).p == pytest.approx(binomial)


def test_several_seeds_are_all_tosses_counted():
    differences = np.array([3, -1, 2, 0, 1, 2])
    seen = abs(differences.sum())
    tosses = product((1, -1), repeat=len(differences))
    sums = [abs(int(np.dot(signs, differences))) for signs in tosses]
    assert sign_flip_test(differences) == pytest.approx(np.mean([s >= seen for s in sums]))


def test_alike_methods_do_not_differ():
    paired = compare_answers(["0110", "1100"], ["0110", "1100"])
    assert (paired.difference, paired.p, paired.low, paired.high) == (0.0, 1.0, 0.0, 0.0)
    assert not paired.is_better


def test_a_clear_difference_is_found_with_its_sign():
    rng = np.random.default_rng(1)
    good = ["".join(map(str, rng.binomial(1, 0.8, 200))) for _ in range(3)]
    bad = ["".join(map(str, rng.binomial(1, 0.5, 200))) for _ in range(3)]
    paired = compare_answers(good, bad)
    assert paired.is_better and paired.p < 1e-6
    assert paired.low < paired.difference < paired.high and paired.low > 0.2
    assert not compare_answers(bad, good).is_better


def test_the_interval_is_that_of_the_mean():
    paired = compare_answers(["1" * 60 + "0" * 40], ["0" * 100])
    deviation = (0.6 * 0.4 / 100) ** 0.5
    assert paired.low == pytest.approx(0.6 - 1.96 * deviation, abs=0.015)
    assert paired.high == pytest.approx(0.6 + 1.96 * deviation, abs=0.015)


def test_other_clips_are_refused():
    with pytest.raises(ValueError, match="same seeds and clips"):
        compare_answers(["01"], ["010"])
