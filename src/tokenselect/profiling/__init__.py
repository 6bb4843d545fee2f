"""Cost of any model: multiply-adds, latency."""

from tokenselect.profiling.latency import measure_latency
from tokenselect.profiling.macs import MacCount, count_macs

__all__ = ["MacCount", "count_macs", "measure_latency"]
