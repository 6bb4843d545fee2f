"""Evaluation: accuracy, views, and how much of the truth a selection keeps."""
