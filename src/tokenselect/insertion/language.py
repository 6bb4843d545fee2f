"""The inputs of a video-language model whose tower has selectors."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tokenselect.adapters.language import LanguageAdapter
from tokenselect.insertion.insert import host_of, inserted_selectors


def shrink_inputs(
    model: nn.Module, inputs: Mapping[str, Any], *, prompt: Sequence[Tensor] | None = None
) -> dict[str, Any]:
    """Run the vision tower and take the placeholders of the dropped tokens out of the prompt.

    Of Qwen, kept tokens and words keep the 3-D positions they had; of LLaVA, they close up.
    `model.generate` needs this step; `model(**inputs)` takes it by itself.

    Args:
        model: Qwen2-VL, Qwen2.5-VL, Qwen3-VL or LLaVA-OneVision with selectors.
        inputs: of its processor: `input_ids`, `attention_mask`, `mm_token_type_ids`, pixels and
            their grids; `labels` become shorter, too. Prompts may be padded.
        prompt: (m, c) features of each sample's prompt, c the language model's width, for
            method="text"; None for the embeddings of its words.

    Returns:
        Inputs with fewer placeholders, with `position_ids`, and with the tower's output as
        `mm_encoder_outputs` in place of the pixels.
    """
    adapter, model = inserted_selectors(model).adapter, host_of(model)
    if not (isinstance(adapter, LanguageAdapter) and adapter.reads_end_attention):
        raise TypeError(
            f"shrink_inputs takes a video-language model, got {type(model).__name__}: insert the "
            "selectors into the whole model, not into its vision tower"
        )
    return adapter.shrink(model, inputs, prompt)


def count_tokens(model: nn.Module, grid_thw: Tensor | Sequence[Sequence[int]]) -> list[int]:
    """Count the tokens that the language model gets of each video, before any is encoded.

    Counts follow from the plan and the size alone, so serving engines can reserve placeholders. The
    model is a video-language one or its tower; `grid_thw` is what the processor gives: frames, rows
    and columns of patches of each video.
    """
    selectors, adapter = inserted_selectors(model), _language_adapter(model)
    counts = []
    for size in torch.as_tensor(grid_thw).tolist():
        thw = adapter.whole_thw(size)
        for site in selectors.plan:
            thw = thw if site.takes_all(thw) else site.kept_thw(thw)
        counts.append(thw[0] * thw[1] * thw[2] + adapter.num_more)
    return counts


def vision_tower(model: nn.Module, grid_thw: Tensor | Sequence[Sequence[int]]) -> nn.Module:
    """Give the vision tower, with its selectors, for videos of fixed sizes.

    It maps the pixels alone to what the language model gets: (k, c) tokens, (k,) which of all
    tokens they are, and for Qwen3-VL the features of earlier blocks. All shapes follow from plan
    and sizes, so it compiles without graph breaks, and `export_model` writes it to a file.

    The model is a video-language one, or a tower of Qwen's; its weights are shared. `grid_thw` is
    as in `count_tokens`.
    """
    sizes = torch.as_tensor(grid_thw).tolist()
    return _language_adapter(model).tower(host_of(model), sizes)


def _language_adapter(model: nn.Module) -> LanguageAdapter:
    adapter = inserted_selectors(model).adapter
    if not isinstance(adapter, LanguageAdapter):
        kind = type(model).__name__
        raise TypeError(f"a video-language model or its tower is wanted, got {kind}")
    return adapter
