"""A room of 0.1 that moved; importing it says where to. It goes in 0.3."""

raise ImportError(
    "tokenselect.profiling moved: count_macs and measure_latency are in tokenselect.measure"
)
