"""Beyond the paper: embedding, decoder and sparse per-label weights trained together."""
