"""Video in, tensors out: decoding, clip sampling, augmentation, annotations and data sets."""

from tokenselect.data.annotations import ANNOTATION_FORMATS, TableLayout, read_annotations
from tokenselect.data.augmentation import AUGMENTATIONS, TrainTransform, mix_clips, smooth_targets
from tokenselect.data.cache import ClipCache
from tokenselect.data.clips import EvalTransform, SegmentSampler, StrideSampler, parse_views
from tokenselect.data.dataset import (
    NO_LABEL,
    Batch,
    Example,
    VideoDataset,
    collate_clips,
    collate_views,
)
from tokenselect.data.frame_folder import FrameFolder
from tokenselect.data.frame_source import FramesInMemory, FrameSource, VideoError
from tokenselect.data.labels import Sample, SampleList
from tokenselect.data.split import find_parts, propose_split
from tokenselect.data.transforms import seeded_generator
from tokenselect.data.video import VideoReader, open_video, write_video

__all__ = [
    "ANNOTATION_FORMATS", "AUGMENTATIONS", "NO_LABEL", "Batch", "ClipCache", "EvalTransform",
    "Example", "FrameFolder", "FrameSource", "FramesInMemory", "Sample", "SampleList",
    "SegmentSampler", "StrideSampler", "TableLayout", "TrainTransform", "VideoDataset",
    "VideoError", "VideoReader", "collate_clips", "collate_views", "find_parts", "mix_clips",
    "open_video", "parse_views", "propose_split", "read_annotations", "seeded_generator",
    "smooth_targets", "write_video",
]  # fmt: skip
