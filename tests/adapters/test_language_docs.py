"""The page on video-language models, and the command it gives to measure accuracy."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks.vlm_accuracy import compare
from tests.contracts.language_hosts import QWENS, Prompts, qwen2_5_vl

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "video_language_models.md").read_text()


def test_the_code_of_the_page_runs():
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    model, inputs = qwen2_5_vl(), Prompts().add(2, (3, 8, 8), 4).inputs()
    model.generation_config.eos_token_id = model.generation_config.pad_token_id = None
    names = {"model": model, "inputs": inputs}
    code = "\n".join(blocks).replace("S32", "S4").replace("max_new_tokens=64", "max_new_tokens=2")
    exec(compile(code, "video_language_models.md", "exec"), names)
    assert names["inputs"]["input_ids"].shape[1] + 2 == names["answer"].shape[1]
    assert names["counts"] == [16 * 11 * 11]


def test_the_figures_of_the_page_are_those_that_were_measured():
    measured = (ROOT / "benchmarks" / "results" / "vlm_tokens.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 5
    for plan, tokens, tower, language, cache in rows:
        start = f"| `{plan}` | {tokens} | {tower} | {language} | "
        line = next(line for line in measured.splitlines() if line.startswith(start))
        assert line.endswith(f"| {cache} |")
    faster = [float(x) for x in re.findall(r"^\| [a-z]+ \| 576 \| \d+ \| ([\d.]+)", measured, re.M)]
    assert f"is {min(faster)} to {max(faster)} times faster" in PAGE


def test_accuracy_is_measured_dense_and_by_method():
    torch.manual_seed(0)
    inputs = Prompts().add(2, (3, 8, 8), 4).inputs()
    processor = SimpleNamespace(
        apply_chat_template=lambda messages, **settings: dict(inputs),
        tokenizer=SimpleNamespace(encode=lambda letter, **settings: [ord(letter) - 60]),
    )
    model = qwen2_5_vl()
    with torch.no_grad():
        best = int(model(**inputs).logits[0, -1, 5:8].argmax())
    question = {"video": "a.mp4", "question": "What?", "options": ["x", "y", "z"], "answer": best}
    wrong = {**question, "answer": (best + 1) % 3}
    questions = [question, question, question, wrong]
    lines = compare(
        model, processor, questions, plan="S4_0.5", methods=["uniform", "evs"], num_frames=6
    )
    length = inputs["input_ids"].shape[1]
    assert lines[2] == f"| dense | 75.0 % | {length} |"
    shorter = length - 3 * 16 + 3 * 9
    assert [line.split("|")[1].strip() for line in lines[3:]] == ["uniform", "evs"]
    assert all(line.endswith(f"| {shorter} |") for line in lines[3:])
    assert not hasattr(model, "token_selectors")


@torch.no_grad()
@pytest.mark.slow
@pytest.mark.parametrize("host", QWENS)
def test_a_compiled_tower_gives_the_same(host):
    from tokenselect import insert_selectors

    torch.manual_seed(0)
    tower, pixels = QWENS[host]().model.visual, torch.randn(3 * 24, 96)
    sizes = torch.tensor([(3, 6, 4)])
    insert_selectors(tower, "T0_0.6-S2_0.5", method="motion")
    found = torch.compile(tower, backend="aot_eager")(pixels, grid_thw=sizes).pooler_output
    torch.testing.assert_close(found, tower(pixels, grid_thw=sizes).pooler_output)
