"""The training loop: batches, schedule, checkpoints."""
