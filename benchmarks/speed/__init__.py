"""Speed on this machine: ours against others' models, selected against dense, growth, limits.

Claims: dense MViT-B16 at least 1.4 × as fast as torchvision's at batch 1 and 1.5 × at batch 4,
Video Swin-B 1.7 ×, both in less memory; saved multiply-adds become saved seconds; a training step
gets 1.4 × faster when 3 of 8 frames go.

    PYTHONPATH=src:. python -m benchmarks.speed                        # all parts, half an hour
    PYTHONPATH=src:. python -m benchmarks.speed --parts dense selected
    PYTHONPATH=src:. python -m benchmarks.speed --device cuda
    PYTHONPATH=src:. python -m benchmarks.speed.runtimes mvit_b16      # ours in other runtimes

Everything is a ratio of things that take turns in one process. Finished parts stay in
`results/speed.json`, so parts can be run one by one; `speed.txt`, the plot and the tables of
`docs/performance.md` are made of it.
"""
