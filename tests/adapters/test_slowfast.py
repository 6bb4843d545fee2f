import pytest

from tests.contracts import hosts
from tokenselect import insert_selectors


@pytest.mark.parametrize("name", ["enable_rev", "enable_detection"])
def test_variants_that_count_on_all_tokens_are_refused(name):
    model = hosts.slowfast_mvit()
    setattr(model, name, True)
    with pytest.raises(ValueError, match="only the plain classifier"):
        insert_selectors(model, "T0_0.5")
