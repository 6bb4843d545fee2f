"""Small video-language models, prompts for them, and their forwards cut by hand.

By hand no token is ever removed: dropped ones are hidden from the attention of all others, in the
order of rows and columns, without windows' order, packed bounds or cut tables.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.contracts.hosts import scramble, transformers

IMAGE, VIDEO, START, STOP, PAD = 90, 91, 92, 93, 0
WORDS = 80
TEXT = {
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "pad_token_id": PAD,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "mrope_section": [1, 1, 2]},
}
TOKENS = {
    "image_token_id": IMAGE,
    "video_token_id": VIDEO,
    "vision_start_token_id": START,
    "vision_end_token_id": STOP,
}
PATCH = 4
VISION = {"depth": 4, "num_heads": 2, "patch_size": PATCH, "spatial_merge_size": 2}


def qwen2_vl() -> nn.Module:
    """Build Qwen2-VL."""
    vision = {**VISION, "embed_dim": 16, "hidden_size": 32, "mlp_ratio": 2}
    return _build("Qwen2VL", vision)


def qwen2_5_vl() -> nn.Module:
    """Build Qwen2.5-VL with windows of 2×2 merge units; block 1 and 3 attend to whole frames."""
    vision = {
        **VISION,
        "hidden_size": 16,
        "out_hidden_size": 32,
        "intermediate_size": 24,
        "window_size": 4 * PATCH,
        "fullatt_block_indexes": [1, 3],
        "tokens_per_second": 2,
    }
    return _build("Qwen2_5_VL", vision)


def qwen3_vl() -> nn.Module:
    """Build Qwen3-VL, whose language model takes features of blocks 0 and 2, too."""
    vision = {
        **VISION,
        "hidden_size": 16,
        "out_hidden_size": 32,
        "intermediate_size": 24,
        "num_position_embeddings": 49,
        "deepstack_visual_indexes": [0, 2],
    }
    return _build("Qwen3VL", vision)


def _build(name: str, vision: dict) -> nn.Module:
    library = transformers()
    config = getattr(library, f"{name}Config")(text_config=TEXT, vision_config=vision, **TOKENS)
    torch.manual_seed(0)
    return scramble(getattr(library, f"{name}ForConditionalGeneration")(config))


QWENS = {"qwen2-vl": qwen2_vl, "qwen2.5-vl": qwen2_5_vl, "qwen3-vl": qwen3_vl}


@dataclass
class Prompts:
    """A batch of prompts in the making: words, images and videos of any size."""

    rows: list[list[int]] = field(default_factory=list)
    sizes: dict[str, list[tuple[int, int, int]]] = field(
        default_factory=lambda: {"image": [], "video": []}
    )

    def add(self, *parts: int | tuple[int, int, int]) -> "Prompts":
        """Add a prompt: an int is so many words, a tuple the t, h, w patches of a video."""
        row: list[int] = []
        for part in parts:
            if isinstance(part, int):
                row += torch.randint(1, WORDS, (part,)).tolist()
                continue
            t, h, w = part
            kind, token = ("image", IMAGE) if t == 1 else ("video", VIDEO)
            self.sizes[kind].append(part)
            row += [START, *[token] * (t * h * w // 4), STOP]
        self.rows.append(row)
        return self

    def inputs(self, *, is_left: bool = True, per_frame: bool = False) -> dict[str, Tensor]:
        """Pad the prompts and draw pixels; `per_frame` puts a word before each frame (Qwen3)."""
        sizes = iter(self.sizes["video"])
        rows = [_with_times(row, sizes) for row in self.rows] if per_frame else self.rows
        length = max(map(len, rows))
        ids, mask = torch.full((len(rows), length), PAD), torch.zeros(len(rows), length).long()
        for index, row in enumerate(rows):
            place = slice(length - len(row), None) if is_left else slice(0, len(row))
            ids[index, place], mask[index, place] = torch.tensor(row), 1
        inputs = {
            "input_ids": ids,
            "attention_mask": mask,
            "mm_token_type_ids": (ids == IMAGE).int() + 2 * (ids == VIDEO).int(),
        }
        names = {"image": "pixel_values", "video": "pixel_values_videos"}
        for kind, sizes in self.sizes.items():
            if sizes:
                total = sum(t * h * w for t, h, w in sizes)
                inputs[names[kind]] = torch.randn(total, 3 * 2 * PATCH * PATCH)
                inputs[f"{kind}_grid_thw"] = torch.tensor(sizes)
        return inputs


def _with_times(row: list[int], sizes: Iterator[tuple[int, int, int]]) -> list[int]:
    """Split each video into its frames, each with a word in front and marks around it."""
    out, index = [], 0
    while index < len(row):
        if row[index] == START and row[index + 1] == VIDEO:
            t, h, w = next(sizes)
            for frame in range(t):
                out += [1 + frame, START, *[VIDEO] * (h * w // 4), STOP]
            index += t * h * w // 4 + 2
        else:
            out.append(row[index])
            index += 1
    return out


Keep = dict[int, list[Tensor]]  # site to the (t, h, w) mask of kept units of each video


def run_tower(
    tower: nn.Module, pixels: Tensor, sizes: Tensor, keep: Keep
) -> tuple[Tensor, list[Tensor], Tensor]:
    """Run a tower block by block with dropped units hidden.

    Returns:
        (all, c) merged units, those of the deep stack, and (all,) which of them are left.
    """
    tokens = tower.patch_embed(pixels)
    places = patch_places(sizes)  # (n, 4): video, frame, row, column
    if hasattr(tower, "pos_embed"):
        tokens = tokens + learned_places(tower, sizes)
    angles = places[:, 2:, None].float() * tower.rotary_pos_emb.inv_freq
    angles = torch.cat([angles.flatten(1)] * 2, dim=1)
    seen = torch.ones(len(tokens), dtype=torch.bool)
    deep = []
    window = getattr(tower, "window_size", 0) // PATCH
    full = getattr(tower, "fullatt_block_indexes", range(len(tower.blocks)))
    for index, block in enumerate(tower.blocks):
        if index in keep:
            seen = seen & kept_patches(keep[index])
        group = places[:, :2]
        if index not in full:
            group = torch.cat([group, places[:, 2:] // window], dim=1)
        tokens = run_block(block, tokens, group, seen, angles)
        if index in getattr(tower, "deepstack_visual_indexes", ()):
            merger = tower.deepstack_merger_list[tower.deepstack_visual_indexes.index(index)]
            deep.append(merger(tokens))
    merged, left = tower.merger(tokens), seen.unflatten(0, (-1, 4))[:, 0]
    if len(tower.blocks) in keep:
        left = left & torch.cat([mask.flatten() for mask in keep[len(tower.blocks)]])
    return merged, deep, left


def patch_places(sizes: Tensor) -> Tensor:
    """List video, frame, row and column of every patch; merge units lie together."""
    places = []
    for video, (t, h, w) in enumerate(sizes.tolist()):
        for frame in range(t):
            for top in range(0, h, 2):
                for left in range(0, w, 2):
                    for row in (top, top + 1):
                        places += [(video, frame, row, left), (video, frame, row, left + 1)]
    return torch.tensor(places)


def kept_patches(masks: list[Tensor]) -> Tensor:
    return torch.cat([mask.flatten() for mask in masks]).repeat_interleave(4)


def learned_places(tower: nn.Module, sizes: Tensor) -> Tensor:
    """Stretch Qwen3's table of learned positions over each frame."""
    side = tower.num_grid_per_side
    table = tower.pos_embed.weight.T.reshape(1, -1, side, side)
    parts = []
    for t, h, w in sizes.tolist():
        frame = F.interpolate(table, (h, w), mode="bilinear", align_corners=True)[0]
        units = frame.reshape(-1, h // 2, 2, w // 2, 2).permute(1, 3, 2, 4, 0)
        parts.append(units.reshape(h * w, -1).repeat(t, 1))
    return torch.cat(parts)


def run_block(
    block: nn.Module, tokens: Tensor, group: Tensor, seen: Tensor, angles: Tensor
) -> Tensor:
    """Run a block whose patches attend to the seen ones of their own group."""
    attention = block.attn
    q, k, v = (
        attention.qkv(block.norm1(tokens)).unflatten(1, (3, attention.num_heads, -1)).unbind(1)
    )
    q, k = rotate(q, angles), rotate(k, angles)
    is_same = (group[:, None] == group).all(-1) & seen
    is_same = is_same | torch.eye(len(tokens), dtype=torch.bool)  # a hidden one sees itself
    heads = [x.transpose(0, 1) for x in (q, k, v)]
    mixed = F.scaled_dot_product_attention(*heads, attn_mask=is_same)
    tokens = tokens + attention.proj(mixed.transpose(0, 1).flatten(1))
    return tokens + block.mlp(block.norm2(tokens))


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat([-second, first], dim=-1)
    return x * angles.cos()[:, None] + turned * angles.sin()[:, None]


def run_language_model(
    model: nn.Module, inputs: dict[str, Tensor], keep: dict[str, Keep], *, steps: int = 0
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Run the whole prompt with dropped placeholders masked, then `steps` greedy steps.

    Returns:
        (b, l, words) logits; (b, l) which tokens of the prompt are left; the steps' words.
    """
    base, ids = model.model, inputs["input_ids"]
    embeds = base.get_input_embeddings()(ids)
    mask, deep = inputs["attention_mask"].clone(), []
    visual = torch.zeros_like(ids, dtype=torch.bool)
    for kind, token in (("image", IMAGE), ("video", VIDEO)):
        pixels = inputs.get("pixel_values" if kind == "image" else "pixel_values_videos")
        if pixels is None:
            continue
        sizes = inputs[f"{kind}_grid_thw"]
        merged, stack, left = run_tower(base.visual, pixels, sizes, keep[kind])
        embeds = embeds.clone()
        embeds[ids == token] = merged
        mask[ids == token] = left.long()
        visual |= ids == token
        for index, feature in enumerate(stack):
            if index == len(deep):
                deep.append(torch.zeros_like(embeds))
            deep[index][ids == token] = feature
    grids = {name: inputs.get(name) for name in ("image_grid_thw", "video_grid_thw")}
    positions, _ = base.get_rope_index(
        ids,
        mm_token_type_ids=inputs["mm_token_type_ids"],
        attention_mask=inputs["attention_mask"],
        **grids,
    )
    stack = {}
    if deep:
        stack = {"visual_pos_masks": visual, "deepstack_visual_embeds": [d[visual] for d in deep]}
    words: list[Tensor] = []
    prompt = mask
    for _ in range(steps + 1):
        hidden = base.language_model(
            inputs_embeds=embeds,
            attention_mask=mask,
            position_ids=positions,
            use_cache=False,
            **stack,
        ).last_hidden_state
        logits = model.lm_head(hidden)
        words.append(logits[:, -1].argmax(-1))
        embeds = torch.cat([embeds, base.get_input_embeddings()(words[-1][:, None])], dim=1)
        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
        positions = torch.cat([positions, positions[..., -1:] + 1], dim=2)
        if deep:
            none = torch.zeros_like(visual[:, :1])
            stack["visual_pos_masks"] = torch.cat([stack["visual_pos_masks"], none], dim=1)
    return logits, prompt.bool(), words[:steps]
