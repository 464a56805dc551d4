"""Where it runs: arrays, kernels, and the rows that the algorithms sum over."""
