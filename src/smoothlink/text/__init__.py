"""Documents in, label names out: text features, the estimator around them, raw-text files."""
