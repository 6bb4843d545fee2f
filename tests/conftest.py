"""One thread a test process, since the suite runs in as many processes as there are cores; and no
network: libraries that ask the Hugging Face Hub on the way would wait for it."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import hypothesis
import torch

torch.set_num_threads(1)
hypothesis.settings.register_profile("patient", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("patient")
