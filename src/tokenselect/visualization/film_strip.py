"""A file of 0.1 that moved; importing it says where to. It goes in 0.3."""

raise ImportError(
    "tokenselect.visualization.film_strip moved: draw_film_strip is in "
    "tokenselect.visualization.pictures"
)
