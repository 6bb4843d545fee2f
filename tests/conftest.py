"""One thread a test process: the suite runs in as many processes as there are cores."""

import hypothesis
import torch

torch.set_num_threads(1)
hypothesis.settings.register_profile("patient", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("patient")
