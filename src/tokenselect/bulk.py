"""A room of 0.1 that moved; importing it says where to. It goes in 0.3."""

raise ImportError(
    "tokenselect.bulk moved: classify_videos and Row are in tokenselect.inference.rows, "
    "on_this_machine and on_ray in tokenselect.inference.bulk"
)
