import pytest
import torch

from tokenselect import threads


@pytest.fixture(autouse=True)
def four_threads(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "quota", lambda: 4)
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("idle", "taken"), [(0.0, 1), (0.3, 1), (2.6, 3), (7.9, 4)])
def test_only_idle_cores_are_taken(monkeypatch, idle, taken):
    monkeypatch.setattr(threads, "idle_cores", lambda: idle)
    assert threads.set_threads() == torch.get_num_threads() == taken


def test_a_container_is_not_left(monkeypatch):
    monkeypatch.setattr(threads, "quota", lambda: 2)
    monkeypatch.setattr(threads, "idle_cores", lambda: 8.0)
    assert threads.set_threads() == 2


def test_what_the_user_says_is_taken(monkeypatch):
    monkeypatch.setattr(threads, "idle_cores", lambda: 1.0)
    assert threads.set_threads(3) == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads.set_threads() == 3
    with pytest.raises(ValueError, match="threads must be at least 1, got 0"):
        threads.set_threads(0)


def test_idle_cores_are_a_number_of_this_machine():
    assert 0 <= threads.idle_cores() <= 1.5 * torch.multiprocessing.cpu_count() + 1
