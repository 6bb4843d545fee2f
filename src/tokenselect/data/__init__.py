"""Video in, tensors out: decoding, clip sampling, augmentation, annotations and data sets."""

from tokenselect.data.decode import FrameSource, VideoReader, open_video
from tokenselect.data.frame_folder import FrameFolder
from tokenselect.data.video_error import VideoError
from tokenselect.data.video_writer import write_video

__all__ = [
    "FrameFolder",
    "FrameSource",
    "VideoError",
    "VideoReader",
    "open_video",
    "write_video",
]
