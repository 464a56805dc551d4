"""The paper's path as pure functions: scale, embed, featurize, squared, sgd, calibrate, infer; and split."""
