"""Evaluation: accuracy, views, and how much of the truth a selection keeps."""

from tokenselect.evaluation.accuracy import Accuracy, AccuracyCounter
from tokenselect.evaluation.evaluate import count_answers
from tokenselect.evaluation.selection_recall import (
    TokenTruth,
    frame_recall,
    region_coverage,
    tokenize_truth,
)
from tokenselect.evaluation.views import score_views

__all__ = [
    "Accuracy",
    "AccuracyCounter",
    "TokenTruth",
    "count_answers",
    "frame_recall",
    "region_coverage",
    "score_views",
    "tokenize_truth",
]
