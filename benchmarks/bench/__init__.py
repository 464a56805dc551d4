"""What the benchmarks share: cells and points as JSON, what else ran on the machine, and the page made of both."""
