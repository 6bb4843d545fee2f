"""Accuracy of a video-language model on multiple-choice questions, dense and with fewer tokens.

    PYTHONPATH=src:. python benchmarks/vlm_accuracy.py --model Qwen/Qwen2.5-VL-7B-Instruct \\
        --questions questions.jsonl --plan S32_0.5 --methods random uniform evs diversity

Each line of the file is a question: {"video": "a.mp4", "question": "…", "options": ["…", "…"],
"answer": 0}. The option whose letter has the highest logit is the answer. No result is in this
repository: it needs weights and data of your own.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tokenselect import insert_selectors, remove_selectors, shrink_inputs

LETTERS = "ABCDEFGHIJ"
TOKENWISE = ("random", "uniform", "attention", "stts")  # single tokens of each frame


def ask(processor: Any, question: Mapping[str, Any], num_frames: int) -> dict[str, Any]:
    """Turn a question into the model's inputs."""
    options = zip(LETTERS, question["options"], strict=False)
    lines = [question["question"], *(f"{letter}. {text}" for letter, text in options)]
    text = "\n".join([*lines, "Answer with the letter only."])
    video = {"type": "video", "path": question["video"]}
    messages = [{"role": "user", "content": [video, {"type": "text", "text": text}]}]
    return processor.apply_chat_template(
        messages,
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        num_frames=num_frames,
    )


@torch.inference_mode()
def measure(
    model: nn.Module, processor: Any, questions: Sequence[Mapping[str, Any]], num_frames: int
) -> tuple[float, float]:
    """Give the share of right answers, and the average length of the prompts that were read."""
    right = length = 0
    device = next(model.parameters()).device
    for question in questions:
        inputs = {name: x.to(device) for name, x in ask(processor, question, num_frames).items()}
        if hasattr(model, "token_selectors"):
            inputs = shrink_inputs(model, inputs)
        length += inputs["input_ids"].shape[1]
        logits = model(**inputs, logits_to_keep=1).logits[0, -1]
        letters = LETTERS[: len(question["options"])]
        ids = [
            processor.tokenizer.encode(letter, add_special_tokens=False)[0] for letter in letters
        ]
        right += int(logits[ids].argmax()) == question["answer"]
    return right / len(questions), length / len(questions)


def compare(
    model: nn.Module,
    processor: Any,
    questions: Sequence[Mapping[str, Any]],
    *,
    plan: str,
    methods: Sequence[str],
    num_frames: int,
) -> list[str]:
    """Write the table: the dense model, then every method."""
    lines = ["| method | right | tokens per prompt |", "| --- | --- | --- |"]
    for method in ("dense", *methods):
        if method != "dense":
            insert_selectors(model, plan, method=method, tokenwise=method in TOKENWISE)
            model.eval()
        share, length = measure(model, processor, questions, num_frames)
        lines.append(f"| {method} | {100 * share:.1f} % | {length:.0f} |")
        remove_selectors(model)
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Load the model and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--plan", default="S32_0.5")
    parser.add_argument("--methods", nargs="+", default=["random", "uniform", "evs", "diversity"])
    parser.add_argument("--frames", type=int, default=32)
    options = parser.parse_args(arguments)
    from transformers import AutoModelForImageTextToText, AutoProcessor

    model = AutoModelForImageTextToText.from_pretrained(
        options.model, dtype="auto", device_map="auto"
    ).eval()
    processor = AutoProcessor.from_pretrained(options.model)
    questions = [json.loads(line) for line in options.questions.read_text().splitlines() if line]
    table = compare(
        model,
        processor,
        questions,
        plan=options.plan,
        methods=options.methods,
        num_frames=options.frames,
    )
    print("\n".join(table))


if __name__ == "__main__":
    main()
