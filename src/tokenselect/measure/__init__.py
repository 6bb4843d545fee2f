"""What models reach and cost: accuracy, recall, multiply-adds, latency, paired tests."""

from tokenselect.measure.accuracy import Accuracy, AccuracyCounter, count_answers, score_views
from tokenselect.measure.cost import MacCount, count_macs, measure_latency
from tokenselect.measure.recall import TokenTruth, frame_recall, region_coverage, tokenize_truth

__all__ = [
    "Accuracy", "AccuracyCounter", "MacCount", "TokenTruth", "count_answers", "count_macs",
    "frame_recall", "measure_latency", "region_coverage", "score_views", "tokenize_truth",
]  # fmt: skip
