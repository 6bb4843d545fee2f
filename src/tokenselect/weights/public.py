"""Public weights by name: their files, addresses and checksums, and how they get here.

Checksums are the leading digits of SHA-256 that torchvision and mmaction2 put into their files'
names. Where a publisher gives none, there is none here, and a download cannot be verified.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

import torch

TORCH = "https://download.pytorch.org/models"
PYTORCHVIDEO = "https://dl.fbaipublicfiles.com/pytorchvideo/model_zoo/kinetics"
VIDEO_SWIN = "https://github.com/SwinTransformer/storage/releases/download/v1.0.4"
MMACTION = "https://download.openmmlab.com/mmaction/v1.0/recognition/swin"
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

    @property
    def is_direct(self) -> bool:
        """Whether the address gives the file itself and not a page with a button."""
        return not self.url.startswith(DRIVE)


def torchvision_file(stem: str, sha256: str, megabytes: int) -> PublicFile:
    """Describe a file of torchvision's models."""
    url = f"{TORCH}/{stem}-{sha256}.pth"
    return PublicFile("torchvision", url, sha256=sha256, megabytes=megabytes)


def mmaction_file(size: str, sha256: str) -> PublicFile:
    """Describe a Kinetics-400 file of mmaction2."""
    run = f"swin-{size}-p244-w877_in1k-pre_8xb8-amp-32x2x1-30e_kinetics400-rgb"
    url = f"{MMACTION}/{run}/{run}_20220930-{sha256}.pth"
    return PublicFile("mmaction2", url, sha256=sha256)


def authors_files(backbone: str, files: dict[str, tuple[str, str]]) -> dict[str, PublicFile]:
    """Describe the authors' checkpoints: the paper's name of each plan, its counts and its key."""
    described = {}
    for title, (plan, key) in files.items():
        name = f"stts-{backbone}-{plan.replace('=', '')}.pth"  # on the disk, of our making
        file = PublicFile("the paper's authors", f"{DRIVE}/{key}/view", plan=plan, name=name)
        described[f"stts-{title}"] = file
    return described


def video_swin_file(stem: str, num_classes: int = 400) -> PublicFile:
    """Describe a file of the authors of Video Swin."""
    return PublicFile("Video-Swin-Transformer", f"{VIDEO_SWIN}/{stem}.pth", num_classes)


# fmt: off
PUBLIC: dict[str, dict[str, PublicFile]] = {
    "mvit_b16": {
        "kinetics400": torchvision_file("mvit_v1_b", "dbeb1030", 140),
        "kinetics400-pytorchvideo": PublicFile("PyTorchVideo", f"{PYTORCHVIDEO}/MVIT_B_16x4.pyth"),
        **authors_files("mvit_b16", {
            "T0_0.9-S4_0.9": ("T0=7-S4=13x13", "1IP_phCBQRTsUb5RQmPeRusjdlM2J10Xb"),
            "T0_0.8-S4_0.9": ("T0=6-S4=13x13", "1Fd0q3e9VDfokfuljt0hF7FXfRxh3QO61"),
            "T0_0.6-S4_0.9": ("T0=5-S4=13x13", "1Zkn-AY6Pb2wMuzQrUFXQYGJLugVG9BQF"),
            "T0_0.5-S4_0.7": ("T0=4-S4=12x12", "1JSESMIOi1A-9QaQflcoxCPS7RYxa03pH"),
            "T0_0.4-S4_0.6": ("T0=3-S4=11x11", "1A5qA1d6lIpskV8cQVjDFuwD128SI4OfJ"),
        }),
    },
    "mvit_b16_32x3": {
        "kinetics400": PublicFile("PyTorchVideo", f"{PYTORCHVIDEO}/MVIT_B_32x3_f294077834.pyth"),
    },
    "video_swin_t": {
        "kinetics400": torchvision_file("swin3d_t", "7615ae03", 122),
        "kinetics400-mmaction2": mmaction_file("tiny", "241016b2"),
    },
    "video_swin_s": {
        "kinetics400": torchvision_file("swin3d_s", "da41c237", 218),
        "kinetics400-mmaction2": mmaction_file("small", "e91ab986"),
    },
    "video_swin_b": {
        "kinetics400": torchvision_file("swin3d_b_1k", "24f7c7c6", 364),
        "kinetics400-imagenet22k": torchvision_file("swin3d_b_22k", "7c6ae6fa", 364),
        "kinetics400-mmaction2": mmaction_file("base", "182ec6cc"),
        "kinetics600": video_swin_file("swin_base_patch244_window877_kinetics600_22k", 600),
        **authors_files("video_swin_b", {
            "T0_0.9": ("T0=14", "1GhIUgFBLTBQqZZ0puEtTSJPB_4ca77oy"),
            "T0_0.8": ("T0=12", "1gqLCuDUeSYjx2XKqPPaZDDWD9WDWnJjb"),
            "T0_0.6": ("T0=10", "1bGIULKgISA5EGanO1Es6_tvqvQsoAnrb"),
            "T0_0.5": ("T0=9", "1xokwKomvCkGfyATaY_2yzjQr9OcBi995"),
            "T0_0.4": ("T0=6", "1W6sQp7bjKDWleARivkuoMmZOWzi5YKsl"),
        }),
    },
    "video_swin_b_w16": {
        "something-v2": video_swin_file("swin_base_patch244_window1677_sthv2", 174),
        "kinetics400": video_swin_file("swin_base_patch244_window1677_kinetics400_22k"),
    },
}
# fmt: on


def public_weights(model: str) -> dict[str, PublicFile]:
    """List the public weights of a model by name; they may be none."""
    return PUBLIC.get(model, {})


def fetch_public(file: PublicFile) -> Path:
    """Give the path of a public file, downloading it first if it is not here."""
    path = file.path
    if not path.is_file():
        download(file, path)
    found = sha256_of(path) if file.sha256 else ""
    if not found.startswith(file.sha256):
        raise ValueError(
            f"{path} is not {file.publisher}'s file: its SHA-256 is {found}, which should begin "
            f"with {file.sha256}; delete it and try again"
        )
    return path


def download(file: PublicFile, path: Path) -> None:
    """Download a file whole or not at all, or say what to put where."""
    checksum = f"SHA-256 beginning with {file.sha256}" if file.sha256 else "no checksum known"
    advice = f"put {file.publisher}'s file from {file.url} ({checksum}) at {path}"
    if not file.is_direct:
        raise FileNotFoundError(f"this file can only be downloaded by hand: {advice}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        torch.hub.download_url_to_file(file.url, str(path), file.sha256 or None)
    except (OSError, RuntimeError) as error:  # RuntimeError: a wrong checksum
        raise FileNotFoundError(f"could not download ({error}): {advice}") from error


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
            f"{source} is neither a file nor a folder here, and the Hugging Face Hub gave no "
            f"{filename} of it: {reason}"
        ) from error


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Compute a file's SHA-256."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
