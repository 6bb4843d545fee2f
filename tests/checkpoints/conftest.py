import shutil
from pathlib import Path

import huggingface_hub
import pytest


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder that stands for the Hub: a push copies there, a download reads there."""
    folder = tmp_path / "hub"

    class Api:
        def __init__(self, **options):
            pass

        def create_repo(self, repo_id, **options):
            return type("Repo", (), {"repo_id": repo_id})()

        def upload_folder(self, *, repo_id, folder_path, **options):
            shutil.copytree(folder_path, folder)
            return repo_id

    def download(repo_id, filename, *, revision):
        return str(folder / filename)

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return folder
