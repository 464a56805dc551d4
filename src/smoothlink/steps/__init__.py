"""The path, one file a step: read, embed, featurize, fit, infer, evaluate, save."""
