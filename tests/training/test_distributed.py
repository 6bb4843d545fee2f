import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.training.tiny import losses_of, tiny_trainer
from tokenselect.weights import read_weights

REPOSITORY = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_in_two_processes(folder: Path) -> None:
    """Launch torchrun on the loopback alone: no machine's name need resolve, no network be up."""
    address = f"--master-addr=127.0.0.1 --master-port={free_port()}".split()
    launched = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", *address),
            *("-m", "tests.training.tiny", str(folder), "share"),
        ],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": "src", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert launched.returncode == 0, launched.stdout + launched.stderr


@pytest.mark.slow
def test_two_processes_learn_what_one_process_learns(tmp_path):
    tiny_trainer(tmp_path / "one", dropout=0.0).run()
    run_in_two_processes(tmp_path)
    expected, weights = losses_of(tmp_path / "one"), read_weights(tmp_path / "one")[0]
    for strategy in ("ddp", "fsdp"):
        assert losses_of(tmp_path / strategy) == pytest.approx(expected, rel=1e-5)
        found = read_weights(tmp_path / strategy)[0]
        assert found.keys() == weights.keys()
        for name in found:
            torch.testing.assert_close(found[name], weights[name], atol=1e-5, rtol=1e-4)


def test_parts_learn_what_the_whole_batch_learns(tmp_path):
    tiny_trainer(tmp_path / "one", dropout=0.0).run()
    tiny_trainer(tmp_path / "three", dropout=0.0, parts=3).run()
    assert losses_of(tmp_path / "three") == pytest.approx(losses_of(tmp_path / "one"), rel=1e-5)
