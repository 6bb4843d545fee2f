"""Reading 16 frames of a 340×256 file: our reader beside the other decoders.

Claim: no decoder that installs here is faster, and all frames are the right ones.

    PYTHONPATH=src:. python benchmarks/decode.py --save benchmarks/results/decode.md

PyAV is the one dependency; OpenCV and torchcodec are measured where they can be imported. Every
decoder gets one thread, opens the file anew (as a data set does), and takes its turn in each
round. Times are processor time, over all threads, so that a busy machine does not blur them.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import av
import numpy as np
import torch
from torch import Tensor

from tokenselect.data import VideoReader, seeded_generator, write_video
from tokenselect.data.transforms import resize

FRAMES, HEIGHT, WIDTH = 300, 256, 340
UNEVEN = [t / 30 + (0.4 if t > 100 else 0) + (0.01 if t % 3 else 0) for t in range(FRAMES)]
FILES: dict[str, tuple[dict[str, str], list[float] | None]] = {  # encoder's options, times
    "keyframe every 250": ({"g": "250", "crf": "23"}, None),
    "keyframe every 12": ({"g": "12", "crf": "23"}, None),
    "every 12, variable rate": ({"g": "12", "crf": "23"}, UNEVEN),
}
CLIPS = {
    "16 spread": [round(i * (FRAMES - 1) / 15) for i in range(16)],
    "16 × stride 4": list(range(120, 184, 4)),
}
Reader = Callable[[str, list[int]], Tensor]


def make_clip() -> Tensor:
    """Draw a textured picture that drifts, with a patch that moves against it and film grain."""
    generator = seeded_generator(0)
    coarse = torch.randint(0, 256, (1, 3, 40, 60), generator=generator).byte()
    scene = resize(coarse, (HEIGHT + 160, WIDTH + 160))[0]
    patch = resize(coarse.flip(-1), (80, 80))[0]
    frames = torch.empty(FRAMES, 3, HEIGHT, WIDTH, dtype=torch.uint8)
    for t in range(FRAMES):
        x, y = int(80 + 70 * np.sin(t / 40)), int(80 + 70 * np.cos(t / 55))
        frames[t] = scene[:, y : y + HEIGHT, x : x + WIDTH]
        left = int(120 + 100 * np.cos(t / 17))
        frames[t, :, 90:170, left : left + 80] = patch
    grain = torch.randint(-6, 7, frames.shape, generator=generator, dtype=torch.int8)
    return (frames.short() + grain).clamp_(0, 255).to(torch.uint8)


def read_ours(path: str, indices: list[int]) -> Tensor:
    """Read with this project's reader."""
    with VideoReader(path, threads=1) as reader:
        return reader.read(indices)


def read_plain_pyav(path: str, indices: list[int]) -> Tensor:
    """Decode from the start and convert the frames that are wanted: the usual loop."""
    wanted, pictures = set(indices), []
    with av.open(path) as container:
        container.streams.video[0].thread_count = 1
        for number, frame in enumerate(container.decode(video=0)):
            if number in wanted:
                pictures.append(torch.from_numpy(frame.to_ndarray(format="rgb24")))
            if number == indices[-1]:
                break
    return torch.stack(pictures).permute(0, 3, 1, 2)


def read_opencv(path: str, indices: list[int]) -> Tensor:
    """Seek near the first frame, then grab on and retrieve the wanted ones."""
    import cv2

    capture = cv2.VideoCapture(path, cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, 1])
    capture.set(cv2.CAP_PROP_POS_FRAMES, indices[0])
    pictures, number = [], indices[0]
    for index in indices:
        while number <= index:
            capture.grab()
            number += 1
        pictures.append(torch.from_numpy(cv2.cvtColor(capture.retrieve()[1], cv2.COLOR_BGR2RGB)))
    capture.release()
    return torch.stack(pictures).permute(0, 3, 1, 2)


def read_torchcodec(path: str, indices: list[int]) -> Tensor:
    """Read with torchcodec as it comes: exact, by an index that it scans for."""
    from torchcodec.decoders import VideoDecoder

    return VideoDecoder(path, num_ffmpeg_threads=1).get_frames_at(indices).data


def read_torchcodec_approximate(path: str, indices: list[int]) -> Tensor:
    """Read with torchcodec without its scan: frames by the average rate."""
    from torchcodec.decoders import VideoDecoder

    decoder = VideoDecoder(path, num_ffmpeg_threads=1, seek_mode="approximate")
    return decoder.get_frames_at(indices).data


READERS: dict[str, Reader] = {
    "tokenselect": read_ours,
    "PyAV, plain loop": read_plain_pyav,
    "OpenCV": read_opencv,
    "torchcodec": read_torchcodec,
    "torchcodec, approximate": read_torchcodec_approximate,
}


def usable_readers(path: str) -> dict[str, Reader]:
    """Return the readers that work here, and say why the others do not."""
    usable = {}
    for name, read in READERS.items():
        try:
            read(path, [0])
        except (ImportError, OSError, RuntimeError) as error:
            print(f"{name} is left out: {str(error).splitlines()[0][:90]}", file=sys.stderr)
        else:
            usable[name] = read
    return usable


def measure(readers: dict[str, Reader], path: str, indices: list[int], rounds: int) -> dict:
    """Return the median milliseconds of each reader, and of its ratio to ours in each round."""
    times: dict[str, list[float]] = {name: [] for name in readers}
    for _ in range(rounds):
        for name, read in readers.items():
            start = time.process_time()
            read(path, indices)
            times[name].append(1e3 * (time.process_time() - start))
    ours = times["tokenselect"]
    return {
        name: (
            statistics.median(values),
            statistics.median(v / o for v, o in zip(values, ours, strict=True)),
        )
        for name, values in times.items()
    }


def count_wrong(frames: Tensor, truth: Tensor) -> int:
    """Count the frames that are not nearest to their own original."""
    small = torch.nn.functional.avg_pool2d(frames.float(), 8).flatten(1)
    originals = torch.nn.functional.avg_pool2d(truth.float(), 8).flatten(1)
    nearest = torch.cdist(small, originals).argmin(dim=1)
    return int((nearest != torch.arange(len(frames))).sum())


def write_rows(rounds: int) -> list[str]:
    """Measure everything and return the lines of a Markdown table."""
    clip = make_clip()
    rows = [
        "| file | frames | decoder | CPU ms | times ours | wrong frames |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for file, (options, times) in FILES.items():
            path = str(Path(folder) / "clip.mp4")
            write_video(path, clip, options=options, times=times)
            readers = usable_readers(path)
            for clip_name, indices in CLIPS.items():
                for name, (ms, ratio) in measure(readers, path, indices, rounds).items():
                    wrong = count_wrong(readers[name](path, indices), clip[indices])
                    rows.append(
                        f"| {file} | {clip_name} | {name} | {ms:.1f} | {ratio:.2f} | {wrong} |"
                    )
                    print(rows[-1], flush=True)
    return rows


def versions() -> str:
    """Name the machine and what was measured on it."""
    found = [platform.machine(), f"Python {platform.python_version()}"]
    for package in ("av", "opencv-python-headless", "opencv-python", "torchcodec"):
        with suppress(PackageNotFoundError):
            found.append(f"{package} {version(package)}")
    return ", ".join(found)


def main() -> None:
    """Measure, print and, if asked, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--save", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = write_rows(arguments.rounds)
    if arguments.save:
        head = ["# Reading 16 frames", "", f"`python {' '.join(sys.argv)}`", "", versions(), ""]
        arguments.save.parent.mkdir(parents=True, exist_ok=True)
        arguments.save.write_text("\n".join([*head, *rows]) + "\n")


if __name__ == "__main__":
    main()
