"""The packets of a video stream: which frames exist, when they are shown, where decoding starts.

`index / average_rate` picks wrong frames of a variable-rate file, and seeking lands elsewhere in
each container. Demuxing costs a few milliseconds and gives the exact presentation times and the
keyframes; the packets themselves are kept, so that no seek is needed later.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile, islice

import av
import numpy as np
from av.container import InputContainer
from av.packet import Packet
from av.video.stream import VideoStream

from tokenselect.data.frame_source import MAX_FRAME_PIXELS, VideoError

HELD_BYTES = 64 << 20  # above this size packets are demuxed again instead of held
SLACK = 0.1  # seconds by which a header may overstate a stream
MAX_REORDER = 16  # frames that H.264 and H.265 may store ahead of their turn


@dataclass
class Run:
    """A stretch of packets to decode: from a keyframe to the last packet a wanted frame needs."""

    start: int
    end: int
    wanted: list[int] = field(default_factory=list)  # presentation stamps, rising


class PacketTable:
    """Packets in decoding order, and the order in which their frames are shown.

    Attributes:
        shown: (n,) presentation stamps of the frames in the order they are shown.
        times: (n,) the same in seconds, the first at 0.
        is_counted: the file says nothing useful about presentation times (raw streams, AVI files
            with reordered frames), so decoded frames are counted from the start instead.
    """

    def __init__(self, container: InputContainer, stream: VideoStream, *, path: str):
        self.path, self._container, self._stream = path, container, stream
        self._held: list[Packet] | None = []
        stamps, keyframes = self._demux()
        self.is_counted = self._has_no_order(stamps)
        in_order = range(len(stamps)) if self.is_counted else stamps
        self._stamps = np.asarray(in_order, dtype=np.int64)  # of each packet, in decoding order
        self._position_of_frame = np.argsort(self._stamps, kind="stable")
        self.shown = self._stamps[self._position_of_frame]
        unit = 1 / (stream.average_rate or 25) if self.is_counted else stream.time_base
        self.times = (self.shown - self.shown[0]) * float(unit or 1)
        # keyframes that are shown in the order they are stored: their stamps and positions
        keys = self._stamps[keyframes]
        is_later = np.diff(np.maximum.accumulate(keys), prepend=keys[:1] - 1) > 0
        self._key_stamps, self._key_positions = keys[is_later], np.array(keyframes)[is_later]

    def _demux(self) -> tuple[list[int | None], list[int]]:
        """Give the stamp of each packet in decoding order, and the positions of the keyframes."""
        stamps: list[int | None] = []
        keyframes: list[int] = []
        num_packets = held_bytes = last = 0
        for packet in self._container.demux(self._stream):
            is_end = packet.size == 0 and packet.dts is None
            num_packets += not is_end
            if packet.size == 0 or packet.is_discard:  # nothing to show
                continue
            if packet.is_corrupt:
                raise VideoError(self.path, f"is truncated or corrupt at frame {len(stamps)}")
            if packet.is_keyframe:
                keyframes.append(len(stamps))
            stamps.append(packet.pts)
            last = max(last, (packet.pts or 0) + (packet.duration or 0))
            held_bytes += packet.size
            if held_bytes > HELD_BYTES:
                self._held = None
            elif self._held is not None:
                self._held.append(packet)
        if not stamps:
            raise VideoError(self.path, "has no frames")
        if num_packets < self._stream.frames:
            raise VideoError(
                self.path, f"is truncated: {num_packets} of {self._stream.frames} frames are there"
            )
        end = float(last * (self._stream.time_base or 0))
        missing = stated_duration(self._container, self._stream) - end
        if missing > SLACK:
            raise VideoError(self.path, f"is truncated: the last {missing:.1f} seconds are missing")
        return stamps, keyframes

    def _has_no_order(self, stamps: list[int | None]) -> bool:
        if None in stamps or len(set(stamps)) < len(stamps):
            return True
        is_rising = stamps == sorted(stamps)  # type: ignore[type-var]
        is_reordered = self._stream.codec_context.reorder_depth > 0
        return self._container.format.name == "avi" and is_rising and is_reordered

    def runs(self, frames: Iterable[int]) -> list[Run]:
        """Split rising frame numbers into runs, skipping the stretches that no frame needs.

        A frame shown before a keyframe may be stored after it and need the frames before it
        (open groups of pictures), so decoding starts at the last keyframe *shown* no later.
        """
        runs: list[Run] = []
        for frame in frames:
            stamp, position = int(self.shown[frame]), int(self._position_of_frame[frame])
            start, end = 0, position
            if self.is_counted:
                end = min(position + MAX_REORDER, len(self._stamps) - 1)
            elif number := int(np.searchsorted(self._key_stamps, stamp, side="right")):
                start = min(int(self._key_positions[number - 1]), position)
            if not runs or start > runs[-1].end:
                runs.append(Run(start, end))
            runs[-1].end = max(runs[-1].end, end)
            runs[-1].wanted.append(stamp)
        return runs

    def packets(self, run: Run) -> Sequence[Packet] | Iterator[Packet]:
        """Return the packets of `run` in decoding order."""
        if self._held is not None:
            return self._held[run.start : run.end + 1]
        return self._demux_run(run)

    def _demux_run(self, run: Run) -> Iterator[Packet]:
        """Seek to the run, or demux from the start of the file where the seek went too far."""
        first, index = int(self._stamps[run.start]), self._stream.index
        if not self.is_counted:
            self._container.seek(first, stream=self._stream)
            packets = shown_packets(self._container, index)
            found = dropwhile(lambda packet: packet.pts != first, packets)
            if (packet := next(found, None)) is not None:
                yield packet
                yield from islice(found, run.end - run.start)
                return
        with open_container(self.path) as container:
            yield from islice(shown_packets(container, index), run.start, run.end + 1)


def shown_packets(container: InputContainer, index: int) -> Iterator[Packet]:
    """Demux the packets that make a frame, leaving out placeholders and what edits cut away."""
    for packet in container.demux(container.streams[index]):
        if packet.size > 0 and not packet.is_discard:
            yield packet


def open_container(path: str) -> InputContainer:
    """Open a file, whatever its name looks like: `12:30.mp4` is no address, nor is anything else.

    A file that names others (a playlist) reaches local ones only.
    """
    options = {"protocol_whitelist": "file"}
    # HMDB51's metadata is not UTF-8
    return av.open(f"file:{path}", options=options, metadata_errors="ignore")


def open_stream(path: str, *, threads: int) -> tuple[InputContainer, VideoStream]:
    """Open the first real video stream of a file, cover pictures of songs left aside."""
    container = open_container(path)
    reason = "has no video stream"
    for stream in container.streams.video:
        if stream.codec_context is None:
            reason = "has a video stream that no decoder knows"
        elif not stream.disposition & av.stream.Disposition.attached_pic:
            stream.codec_context.thread_type = "SLICE"
            stream.codec_context.thread_count = threads
            # A stream may grow on the way: the decoder itself refuses what is too large.
            stream.codec_context.options = {"max_pixels": str(MAX_FRAME_PIXELS)}
            return container, stream
    container.close()
    raise VideoError(path, reason)


def stated_duration(container: InputContainer, stream: VideoStream) -> float:
    """Return the seconds at which a Matroska file says its video ends; 0 if it does not say.

    The other containers count their frames, or know nothing (transport streams).
    """
    if "matroska" not in container.format.name:
        return 0.0
    if stated := stream.metadata.get("DURATION"):
        match = re.fullmatch(r"([0-9]{1,4}):([0-9]{1,2}):([0-9]{1,2}(?:\.[0-9]*)?)", stated.strip())
        if match is None:  # a damaged tag says nothing
            return 0.0
        return 3600 * int(match[1]) + 60 * int(match[2]) + float(match[3])
    is_alone = len(container.streams) == 1  # else the duration may be that of the sound
    return (container.duration or 0) / av.time_base if is_alone else 0.0
