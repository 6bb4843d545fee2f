"""Video in, tensors out: decoding, clip sampling, augmentation, annotations and data sets."""

from tokenselect.data.annotation_table import TableLayout
from tokenselect.data.annotations import FORMATS, read_annotations
from tokenselect.data.augmentation import (
    AUGMENTATIONS,
    TrainTransform,
    mix_clips,
    smooth_targets,
)
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
from tokenselect.data.draws import seeded_generator
from tokenselect.data.errors import VideoError
from tokenselect.data.frame_folder import FrameFolder
from tokenselect.data.labels import Sample, SampleList
from tokenselect.data.video import FrameSource, VideoReader, open_video
from tokenselect.data.video_writer import write_video

__all__ = [
    "AUGMENTATIONS",
    "FORMATS",
    "NO_LABEL",
    "Batch",
    "ClipCache",
    "EvalTransform",
    "Example",
    "FrameFolder",
    "FrameSource",
    "Sample",
    "SampleList",
    "SegmentSampler",
    "StrideSampler",
    "TableLayout",
    "TrainTransform",
    "VideoDataset",
    "VideoError",
    "VideoReader",
    "collate_clips",
    "collate_views",
    "mix_clips",
    "open_video",
    "parse_views",
    "read_annotations",
    "seeded_generator",
    "smooth_targets",
    "write_video",
]
