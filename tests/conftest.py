"""One thread a test process: the suite runs in as many processes as there are cores."""

import torch

torch.set_num_threads(1)
