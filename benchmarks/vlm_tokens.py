"""What fewer visual tokens save in a video-language model, and what choosing them costs.

Claim: half of the visual tokens, chosen after the tower, more than halves the language model's
prefill and about halves its cache; chosen before the tower's blocks, it halves the tower, too.

    PYTHONPATH=src:. python benchmarks/vlm_tokens.py --save benchmarks/results/vlm_tokens.md

Multiply-adds are counted on the meta device for the sizes of Qwen2.5-VL-7B and a video of 32 frames
of 448×448 pixels. Seconds are those of a small model's prefill, tower and choice included; methods
take turns on one thread, medians. Weights are random: nothing here tells about answers.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.torchvision_import import import_torchvision
from tokenselect import Site, TokenGrid, insert_selectors, shrink_inputs
from tokenselect.adapters.packing import Packed
from tokenselect.measure.cost import measure_latency
from tokenselect.plan import SelectionPlan
from tokenselect.selectors import build_selector
from tokenselect.selectors.scoring import middles

WORDS = 64
VIDEO_TOKEN, VIDEO = 151656, (16, 32, 32)  # frames are taken in pairs: 32 of them
REAL = {
    "text_config": {
        "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
    },
    "vision_config": {
        "depth": 32, "hidden_size": 1280, "num_heads": 16, "intermediate_size": 3420,
        "out_hidden_size": 3584, "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31],
    },
}  # fmt: skip
SMALL = {
    "text_config": {
        "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 8,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000, "head_dim": 64,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4,
                            "mrope_section": [8, 12, 12]},
    },
    "vision_config": {
        "depth": 4, "hidden_size": 128, "num_heads": 4, "intermediate_size": 384,
        "out_hidden_size": 256, "window_size": 112, "fullatt_block_indexes": [1, 3],
    },
    "image_token_id": 990, "video_token_id": 991,
}  # fmt: skip
SMALL_VIDEO = (16, 16, 16)
PLANS = ("dense", "T32_0.5", "S32_0.5", "S32_0.25", "T8_0.5", "S8_0.5", "T0_0.5", "T0_0.5-S8_0.5")
LOOSE = {"tokenwise": True}
METHODS: dict[str, dict[str, bool]] = {  # after the tower, all at one count
    "random": LOOSE, "uniform": LOOSE, "evs": {}, "merge": {}, "attention": LOOSE,
    "diversity": {}, "text": {}, "stts": LOOSE,
}  # fmt: skip


def build(transformers: Any, sizes: dict[str, Any], device: str = "cpu") -> Any:
    """Build Qwen2.5-VL with random weights, or with none on the meta device."""
    config = transformers.Qwen2_5_VLConfig(**sizes)
    with torch.device(device):
        return transformers.Qwen2_5_VLForConditionalGeneration(config).eval()


def keep_evenly(packed: Packed, site: Site) -> Packed:
    """Keep evenly spread frames, or the region in the middle of each: bounds need real places."""
    (thw,), (places,), (whole,) = packed.thws, packed.places, packed.whole
    t, h, w = site.kept_thw(thw)
    grid = places.unflatten(0, thw)
    if site.kind == "T":
        grid = grid[middles(thw[0], t)]
    else:
        top, left = (thw[1] - h) // 2, (thw[2] - w) // 2
        grid = grid[:, top : top + h, left : left + w]
    return Packed((whole,), ((t, h, w),), (grid.flatten(),), packed.window)


def tower_macs(tower: Any, plan: SelectionPlan, video: tuple[int, int, int]) -> tuple[int, int]:
    """Run the blocks on tokens without values but real bounds; give multiply-adds and tokens."""
    t, h, w = video
    window = tower.window_size // tower.spatial_merge_size // tower.patch_size
    packed = Packed.of([(t, h // 2, w // 2)], device=torch.device("cpu"), window=window)
    head = tower.config.hidden_size // tower.config.num_heads
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        pixels = tower.patch_embed.in_channels * 2 * tower.patch_size**2
        tower.patch_embed(torch.empty(t * h * w, pixels, device="meta"))
        for index, block in enumerate(tower.blocks):
            for site in plan.before(index):
                packed = keep_evenly(packed, site)
            ids = packed.frame_ids if index in tower.fullatt_block_indexes else packed.window_ids
            patches = 4 * len(packed)
            table = torch.empty(patches, head, device="meta")
            tokens = torch.empty(patches, tower.config.hidden_size, device="meta")
            block(tokens, cu_seqlens=packed.bounds(ids, 4), position_embeddings=(table, table))
        tower.merger(torch.empty(4 * packed.total, tower.config.hidden_size, device="meta"))
    for site in plan.before(len(tower.blocks)):
        packed = keep_evenly(packed, site)
    return counter.get_total_flops() // 2, len(packed)


def prefill_macs(model: Any, length: int) -> tuple[int, int]:
    """Give the multiply-adds of a prompt's prefill, and its cache's bytes in half precision."""
    embeds = torch.empty(1, length, model.config.text_config.hidden_size, device="meta")
    positions = torch.empty(3, 1, length, dtype=torch.long, device="meta")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        output = model.model.language_model(
            inputs_embeds=embeds, position_ids=positions, use_cache=True
        )
        model.lm_head(output.last_hidden_state[:, -1:])
    layers = output.past_key_values.layers
    size = sum(layer.keys.numel() + layer.values.numel() for layer in layers)
    return counter.get_total_flops() // 2, 2 * size


def choice_macs(method: str, settings: dict[str, bool], video: tuple[int, int, int]) -> int:
    """Give the multiply-adds of choosing half of the tokens after the tower of the real size."""
    width = REAL["text_config"]["hidden_size"]
    t, h, w = video[0], video[1] // 2, video[2] // 2
    tokens = torch.empty(1, t * h * w, width, device="meta")
    words = torch.empty(1, WORDS, width, device="meta")
    grid = TokenGrid(tokens, (t, h, w), prompt=words)
    site = Site("S", 32, 0.5)
    selector = build_selector(site, channels=width, method=method, is_sequence=True, **settings)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        if method == "attention":  # queries of the words, keys of the tokens, their products
            keys, heads = torch.empty(width, 4 * 128, device="meta"), 28
            logits = torch.empty(heads, 128, t * h * w, device="meta")
            words[0] @ torch.empty(width, heads * 128, device="meta"), tokens[0] @ keys
            torch.bmm(torch.empty(heads, WORDS, 128, device="meta"), logits)
            grid = TokenGrid(
                tokens, (t, h, w), class_attention=torch.empty(1, t, h, w, device="meta")
            )
        selector.to("meta").eval()(grid)
    return counter.get_total_flops() // 2


def small_inputs(video: tuple[int, int, int]) -> dict[str, Tensor]:
    """Draw a prompt of words around a video."""
    torch.manual_seed(0)
    t, h, w = video
    words = torch.randint(1, 900, (WORDS,))
    ids = torch.cat([words[:8], torch.full((t * h * w // 4,), 991), words[8:]])[None]
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": 2 * (ids == 991).int(),
        "pixel_values_videos": torch.randn(t * h * w, 3 * 2 * 14 * 14),
        "video_grid_thw": torch.tensor([video]),
    }


def prefill(model: nn.Module, inputs: dict[str, Tensor]) -> None:
    """Encode and read the prompt, dense or not."""
    if hasattr(model, "token_selectors"):
        inputs = shrink_inputs(model, inputs)
    model(**inputs, use_cache=True, logits_to_keep=1)


def plan_table(transformers: Any) -> list[str]:
    """Count tokens, multiply-adds and cache of every plan at the real size."""
    model = build(transformers, REAL, "meta")
    lines = [
        "| plan | visual tokens | tower, GMACs | language model, GMACs | both | cache, MB |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for text in PLANS:
        tower, tokens = tower_macs(model.model.visual, SelectionPlan.parse(text), VIDEO)
        language, cache = prefill_macs(model, tokens + WORDS)
        both = (tower + language) / 1e9
        lines.append(
            f"| `{text}` | {tokens} | {tower / 1e9:.0f} | {language / 1e9:.0f} | {both:.0f} "
            f"| {cache / 1e6:.0f} |"
        )
    return lines


def method_table(transformers: Any, repeats: int) -> list[str]:
    """Time every method's prefill in a small model, and count its choice at the real size."""
    inputs, models = small_inputs(SMALL_VIDEO), {"dense": build(transformers, SMALL)}
    for method, settings in METHODS.items():
        models[method] = build(transformers, SMALL)
        insert_selectors(models[method], "S4_0.5", method=method, **settings).eval()
    counts = {}
    with torch.inference_mode():
        for name, model in models.items():
            shorter = inputs if name == "dense" else shrink_inputs(model, inputs)
            counts[name] = int((shorter["input_ids"] == 991).sum())
        tasks = {name: partial(prefill, model, inputs) for name, model in models.items()}
        seconds = measure_latency(tasks, repeats=repeats)
    lines = [
        "| method | tokens, small | prefill, ms | times faster | choice at real size, GMACs |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, value in seconds.items():
        choice = "–" if name == "dense" else f"{choice_macs(name, METHODS[name], VIDEO) / 1e9:.2f}"
        gain = seconds["dense"] / value
        lines.append(f"| {name} | {counts[name]} | {1e3 * value:.0f} | {gain:.2f} | {choice} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables and, if asked to, save them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    import_torchvision()
    import transformers

    transformers.logging.set_verbosity_error()
    given = " ".join(sys.argv[1:] if arguments is None else arguments)
    lines = [
        "# Visual tokens of a video-language model", "",
        f"`python benchmarks/vlm_tokens.py {given}`", "",
        f"{platform.machine()}, one thread, torch {version('torch')}, transformers "
        f"{version('transformers')}; random weights, so nothing is said about answers", "",
        f"Qwen2.5-VL-7B's sizes, a video of 32 frames of 448×448 and {WORDS} words; `T32` and `S32`"
        " are the site after the tower; prefill of one prompt, cache in half precision:", "",
        *plan_table(transformers), "",
        "A small Qwen2.5-VL with `S4_0.5`, the site after its tower; all methods at one count; "
        f"prefill with tower and choice, median of {options.repeats} rounds in turns. The choice "
        "is counted with `S32_0.5` at the real size, in matrix products alone:", "",
        *method_table(transformers, options.repeats),
    ]  # fmt: skip
    report = "\n".join(lines) + "\n"
    print(report)
    if options.save is not None:
        options.save.write_text(report)


if __name__ == "__main__":
    main()
