"""Beyond the paper: embedding, decoder and sparse per-label feature weights trained jointly."""
