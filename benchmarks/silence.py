"""How long the commands of README leave someone without a sign of life.

    python -m benchmarks.silence my_videos > benchmarks/results/silence.txt

Each command runs on a terminal of its own, in a new folder, on a copy of a folder of class folders.
A silence is the time between two writes to the terminal; a spinner or a bar counts as a sign.
"""

import argparse
import os
import pty
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMANDS = """
init my_videos/
data check my_videos.yaml
train my_videos.yaml --schedule.epochs 3
evaluate runs/my_videos test
predict {clip} --checkpoint runs/my_videos
compare my_videos.yaml --plans T0_0.5 --methods uniform --seeds 1 --epochs 3
visualize {clip} --checkpoint runs/my_videos --out kept.html
export runs/my_videos --format onnx
classify 'my_videos/*/*' --checkpoint runs/my_videos --out rows.csv
teach runs/my_videos train --plan T0_0.5 --out taught
headroom runs/my_videos val --keep 2
profile mvit_b16 --plan T0_0.6-S4_0.9
"""


def main() -> None:
    """Run all commands, and print the longest silence of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("videos", type=Path, help="folder of class folders")
    settings = parser.parse_args()
    command = str(Path(sys.executable).with_name("tokenselect"))
    print("| silence, s | whole, s | command |\n| --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(settings.videos, Path(folder) / "my_videos")
        clip = next((Path(folder) / "my_videos").glob("*/*")).relative_to(folder)
        for line in COMMANDS.strip().splitlines():
            words = [command, *shlex.split(line.format(clip=clip))]
            silence, whole = listen(words, folder)
            print(f"| {silence:.1f} | {whole:.1f} | `tokenselect {line}` |", flush=True)
    print(f"\nload at the end: {os.getloadavg()[0]:.1f}")


def listen(words: list[str], folder: str) -> tuple[float, float]:
    """Give the longest silence of a command, and its whole time, in seconds."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        words, cwd=folder, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    start = last = time.monotonic()
    longest = 0.0
    while True:
        is_ended = process.poll() is not None
        has_more = bool(select.select([ours], [], [], 0.02)[0])
        if has_more or is_ended:
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        try:
            if has_more and not os.read(ours, 65536):
                break
        except OSError:  # the other end is closed
            break
        if is_ended and not has_more:
            break
    if process.wait() != 0:
        raise SystemExit(f"{shlex.join(words)} ended with {process.returncode}")
    return longest, last - start


if __name__ == "__main__":
    main()
