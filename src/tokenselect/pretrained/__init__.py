"""Models on the disk: weights in safetensors, with all that rebuilds the model in its header."""

from tokenselect.pretrained.saved import SavedModel, describe_model, load_model, save_model

__all__ = ["SavedModel", "describe_model", "load_model", "save_model"]
