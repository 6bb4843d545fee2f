"""Plain video transformers that know nothing of selection."""
