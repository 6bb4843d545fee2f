"""A room of 0.1 that moved; importing it says where to. It goes in 0.3."""

raise ImportError(
    "tokenselect.prediction moved: open_model is tokenselect.load_model, Preprocessor and explain "
    "are at the top level of tokenselect, explain_video is in tokenselect.inference.explain, "
    "predict_video in tokenselect.inference.predict, find_videos in tokenselect.data.sources and "
    "ClipRule in tokenselect.data.clips"
)
