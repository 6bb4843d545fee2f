"""Models on the disk and on the Hub: weights in safetensors, with all that rebuilds the model."""
