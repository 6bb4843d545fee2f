"""A room of 0.1 that moved; importing it says where to. It goes in 0.3."""

raise ImportError(
    "tokenselect.evaluation moved: count_answers, score_views, frame_recall and region_coverage "
    "are in tokenselect.measure"
)
