"""Token selection for video transformers: keep the frames and regions that matter."""
