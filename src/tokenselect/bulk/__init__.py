"""Many videos: classified by local workers or on a cluster, restartable, one row a video."""

from tokenselect.bulk.classify import Summary, classify_videos
from tokenselect.bulk.cluster import on_ray
from tokenselect.bulk.local import on_this_machine

__all__ = ["Summary", "classify_videos", "on_ray", "on_this_machine"]
