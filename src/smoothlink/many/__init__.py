"""Many files at once: predicted and measured, on the workers of a cluster or here."""
