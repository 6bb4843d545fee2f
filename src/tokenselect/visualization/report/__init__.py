"""The report: one HTML page with everything in it."""

from tokenselect.visualization.report.page import build_page, story_of, write_report

__all__ = ["build_page", "story_of", "write_report"]
