"""Makes a model cheaper in one line and shows what it keeps of a synthetic clip."""

import torch

import tokenselect
from tokenselect.measure.cost import count_macs

PLAN = "T0_0.6-S4_0.5"  # 0.6 of the frames, then half of each


def moving_square(frames: int = 16, size: int = 96) -> torch.Tensor:
    """Draw a bright square that crosses a dark, noisy clip: (1, 3, frames, size, size)."""
    video = 0.1 * torch.randn(1, 3, frames, size, size)
    for frame in range(frames):
        left = 8 + frame * (size - 40) // frames
        video[:, :, frame, 30:54, left : left + 24] += 2.0
    return video


def draw_region(selection: tokenselect.Selection, frame: int) -> list[str]:
    """Draw one kept frame's grid as text: the kept region in full blocks."""
    _, height, width = selection.thw_before
    _, rows, columns = selection.thw_after
    assert selection.corners is not None
    top, left = selection.corners[0, frame].tolist()
    return [
        "".join("█" if top <= r < top + rows and left <= c < left + columns else "·"
                for c in range(width))
        for r in range(height)
    ]  # fmt: skip


def main() -> None:
    """Insert, run, and print what stayed."""
    torch.manual_seed(0)
    model = tokenselect.create_model("mvit_mini", num_classes=10).eval()
    video = moving_square()
    dense = count_macs(model, *video.shape).gmacs
    tokenselect.insert_selectors(model, PLAN)
    with tokenselect.record_selections(model) as selections, torch.inference_mode():
        logits = model(video)

    cost = count_macs(model, *video.shape).gmacs
    print(f"plan {PLAN}: {cost:.3f} of {dense:.3f} GMACs; logits {tuple(logits.shape)}")
    frames, regions = selections["T0"], selections["S4"]
    kept = set(frames.indices[0].tolist())
    strip = " ".join(f"[{t}]" if t in kept else f" {t} " for t in range(frames.thw_before[0]))
    print(f"frames kept before block 0 (of {frames.thw_before[0]} token frames): {strip}")
    print("region kept of each before block 4:")
    pictures = [draw_region(regions, frame) for frame in range(regions.thw_before[0])]
    for row in zip(*pictures, strict=True):
        print("   " + "  ".join(row))
    print("The scorers are untrained here, so the choice is arbitrary until you train them.")


if __name__ == "__main__":
    main()
