"""Public weights by name: their files, addresses and checksums, and how they get here.

Checksums are the leading digits of SHA-256 that torchvision and mmaction2 put into their files'
names. Where a publisher gives none, there is none here, and a download cannot be verified. The
authors' files have no names of their own: those on the disk are ours.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

import torch

DRIVE = "https://drive.google.com/file/d"
REPOSITORY = re.compile(r"([\w.-]+/[\w.-]+?)(?:@([\w./-]+))?")


@dataclass(frozen=True)
class PublicFile:
    """One published file of weights."""

    publisher: str  # whose it is
    url: str  # where it is
    num_classes: int = 400  # of its classifier
    sha256: str = ""  # leading digits of its checksum; empty if the publisher gives none
    plan: str = ""  # the selection it was trained with; empty for a dense model
    name: str = ""  # of the file; empty for the last part of the address
    megabytes: int = 0  # of the file; 0 where that is not known

    @property
    def filename(self) -> str:
        """Name of the file on the disk."""
        return self.name or self.url.rsplit("/", 1)[-1]

    @property
    def path(self) -> Path:
        """Where it is kept: with `torch.hub`'s own files, so torchvision's downloads serve too."""
        return Path(torch.hub.get_dir()) / "checkpoints" / self.filename


TABLE = Path(__file__).parents[1] / "assets" / "public_weights.json"
PUBLIC: dict[str, dict[str, PublicFile]] = {
    model: {name: PublicFile(**described) for name, described in files.items()}
    for model, files in json.loads(TABLE.read_text(encoding="utf-8")).items()
}


def public_weights(model: str) -> dict[str, PublicFile]:
    """List the public weights of a model by name; they may be none."""
    return PUBLIC.get(model, {})


def fetch_public(file: PublicFile) -> Path:
    """Give the path of a public file, downloaded first, whole or not at all, if it is not here."""
    path = file.path
    if not path.is_file():
        checksum = f"SHA-256 beginning with {file.sha256}" if file.sha256 else "no checksum known"
        advice = f"put {file.publisher}'s file from {file.url} ({checksum}) at {path}"
        if file.url.startswith(DRIVE):  # a page with a button, not the file
            raise FileNotFoundError(f"this file can only be downloaded by hand: {advice}")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            torch.hub.download_url_to_file(file.url, str(path), file.sha256 or None)
        except (OSError, RuntimeError) as error:  # RuntimeError: a wrong checksum
            raise FileNotFoundError(f"could not download ({error}): {advice}") from error
    with path.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest() if file.sha256 else ""
    if not found.startswith(file.sha256):
        raise ValueError(
            f"{path} is not {file.publisher}'s file: its SHA-256 is {found}, which should begin "
            f"with {file.sha256}; delete it and try again"
        )
    return path


def is_repository(source: object) -> bool:
    """Tell whether a text can only mean a Hub repository: "user/name", with "@revision" if need be.

    A text whose first part is a folder here is a path with a typing mistake, not a repository.
    """
    if not isinstance(source, str) or REPOSITORY.fullmatch(source) is None:
        return False
    return not Path(source).exists() and not Path(source).parent.is_dir()


def fetch_repository(source: str, filename: str) -> Path:
    """Give the path of a file of a Hub repository, downloading it first if it is not here."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    match = REPOSITORY.fullmatch(source)
    assert match is not None
    try:
        return Path(hf_hub_download(match[1], filename, revision=match[2]))
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise FileNotFoundError(
            f"{source} is neither a file nor a folder here, and the Hugging Face Hub did not "
            f"give its {filename}: {reason}"
        ) from error
