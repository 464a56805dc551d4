"""What looks wrong in data before a model is trained on it."""
