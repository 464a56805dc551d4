"""Documents in, label names out: text features, the estimator around them, raw-text files."""

from smoothlink.text.estimator import TextSmoothLink
from smoothlink.text.features import TextFeatures

__all__ = ["TextFeatures", "TextSmoothLink"]
