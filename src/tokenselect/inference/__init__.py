"""Using a model on videos: what is in them, what the model kept, what it cost."""
