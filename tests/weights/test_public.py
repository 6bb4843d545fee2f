import hashlib
import re

import pytest
import torch

from tokenselect.models import list_models
from tokenselect.weights.public import PUBLIC, PublicFile, fetch_public


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """An empty folder in place of the user's downloads."""
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path / "hub"))
    return tmp_path / "hub" / "checkpoints"


@pytest.fixture
def served(tmp_path):
    """A file at an address that needs no network."""
    path = tmp_path / "served.pth"
    path.write_bytes(b"weights")
    return path


def test_a_public_file_is_downloaded_once_and_checked(hub, served):
    digest = hashlib.sha256(b"weights").hexdigest()
    file = PublicFile("us", served.as_uri(), sha256=digest[:8])
    path = fetch_public(file)
    assert path == hub / "served.pth"
    served.unlink()
    assert fetch_public(file).read_bytes() == b"weights"


def test_a_download_with_a_wrong_checksum_leaves_nothing(hub, served):
    file = PublicFile("us", served.as_uri(), sha256="00000000")
    with pytest.raises(FileNotFoundError, match="invalid hash value"):
        fetch_public(file)
    assert list(hub.iterdir()) == []


def test_a_file_that_was_put_there_is_checked_too(hub, served):
    hub.mkdir(parents=True)
    (hub / "served.pth").write_bytes(b"half of the wei")
    with pytest.raises(ValueError, match=r"served\.pth is not us's file.*begin with 0123"):
        fetch_public(PublicFile("us", served.as_uri(), sha256="0123"))


def test_without_a_network_the_error_says_which_file_to_put_where(hub):
    file = PublicFile("torchvision", "file:///nowhere/mvit-dbeb1030.pth", sha256="dbeb1030")
    with pytest.raises(FileNotFoundError) as caught:
        fetch_public(file)
    message = str(caught.value)
    assert "put torchvision's file from file:///nowhere/mvit-dbeb1030.pth" in message
    assert "SHA-256 beginning with dbeb1030" in message
    assert f"at {hub / 'mvit-dbeb1030.pth'}" in message


def test_a_file_behind_a_page_is_asked_for_without_a_download(hub):
    file = PUBLIC["mvit_b16"]["stts-T0_0.6-S4_0.9"]
    expected = re.escape(str(hub / "stts-mvit_b16-T05-S413x13.pth"))
    with pytest.raises(FileNotFoundError, match=f"by hand.*drive.google.*{expected}"):
        fetch_public(file)


def test_the_table_names_models_that_exist_and_digits_of_sha256():
    assert PUBLIC.keys() <= set(list_models())
    files = [file for files in PUBLIC.values() for file in files.values()]
    assert all(re.fullmatch(r"[0-9a-f]{8}|", file.sha256) for file in files)
    assert all(file.sha256 in file.filename for file in files)
    assert len({file.filename for file in files}) == len(files)
