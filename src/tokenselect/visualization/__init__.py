"""Pictures of what a model kept: film strips, overlays, score charts, the HTML report."""
