"""Training: recipes, the loop, checkpoints; from one process to many machines."""
