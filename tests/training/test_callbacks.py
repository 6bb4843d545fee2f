"""Other trainers train our selectors with nothing but a callback."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.torchvision_import import import_torchvision
from tokenselect.insertion import insert_selectors, selectors_of
from tokenselect.models import create_model
from tokenselect.training.callbacks import SigmaCallback, lightning_sigma


def watch_sigma(model: nn.Module) -> list[float]:
    """List σ as each training forward finds it."""
    seen: list[float] = []
    relaxation = selectors_of(model)["T0"].relaxation

    def note(module: nn.Module, arguments: object) -> None:
        if module.training:
            seen.append(round(float(relaxation.sigma), 6) if relaxation.is_active else 0.0)

    selectors_of(model)["T0"].register_forward_pre_hook(note)
    return seen


@pytest.mark.slow
def test_hugging_faces_trainer_trains_a_video_mae_with_the_callback(tmp_path):
    import_torchvision()  # both libraries would stumble over one that is broken
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    config = transformers.VideoMAEConfig(
        image_size=16, patch_size=8, num_frames=6, tubelet_size=2, hidden_size=16,
        num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, num_labels=3,
    )  # fmt: skip
    model = insert_selectors(transformers.VideoMAEForVideoClassification(config), "T0=2")
    seen = watch_sigma(model)
    before = copy.deepcopy(selectors_of(model)["T0"].state_dict())
    clips = [{"pixel_values": torch.randn(6, 3, 16, 16), "labels": n % 3} for n in range(8)]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), num_train_epochs=2, per_device_train_batch_size=2,
        report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    trainer = transformers.Trainer(
        model, arguments, train_dataset=clips, callbacks=[SigmaCallback(start=0.2)]
    )
    trainer.train()
    assert seen == [0.2, 0.175, 0.15, 0.125, 0.1, 0.075, 0.05, 0.025]
    after = selectors_of(model)["T0"].state_dict()
    assert not all(torch.equal(after[name], value) for name, value in before.items())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_lightning_module_trains_with_the_callback():
    import_torchvision()
    lightning = pytest.importorskip("lightning.pytorch")

    class Classifier(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = create_model("mvit_mini", plan="T0=1", num_classes=3, frames=4, size=32)

        def training_step(self, batch: list[Tensor], index: int) -> Tensor:
            return F.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    module = Classifier()
    seen = watch_sigma(module.model)
    clips = torch.utils.data.TensorDataset(torch.randn(4, 3, 4, 32, 32), torch.tensor([0, 1, 2, 0]))
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", callbacks=[lightning_sigma()], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(clips, batch_size=2))
    assert seen == [0.1, 0.075, 0.05, 0.025]


def test_the_callback_answers_events_it_does_not_know():
    callback = SigmaCallback()
    assert callback.on_log(None, None, None, logs={}) is None
    with pytest.raises(AttributeError, match="no attribute 'state'"):
        callback.state  # noqa: B018
