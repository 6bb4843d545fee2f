"""The report: one HTML page with everything in it."""

from tokenselect.visualization.report.page import build_page, write_report
from tokenselect.visualization.report.story import story_of

__all__ = ["build_page", "story_of", "write_report"]
