"""The text section of a model file (docs/file-format.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from smoothlink.errors import ModelFileError
from smoothlink.safetensors_file import Loaded, pack_names, unpack_names
from smoothlink.text.examples import TrainingExample
from smoothlink.text.features import TextFeatures

if TYPE_CHECKING:
    from smoothlink.estimator import SmoothLinkClassifier
    from smoothlink.text.classifier import TextSmoothLink

Array = NDArray[Any]


class Section(NamedTuple):
    """What a text model adds to the file of its classifier."""

    arrays: dict[str, Array]
    meta: dict[str, Any]


def section(model: TextSmoothLink) -> Section:
    """Returns the vocabulary, its weights, the options and the examples of a fitted model."""
    arrays, meta = model.features_.to_arrays()
    arrays |= pack_names([example.text for example in model.examples_], "text_examples")
    meta |= {"example_labels": [example.labels for example in model.examples_], "source": model.source_}
    own = {"examples": model.examples, "label_separator": model.label_separator, "label_form": model.label_form_}
    return Section(arrays, {**meta, **own})


def text_model(loaded: Loaded, classifier: SmoothLinkClassifier) -> TextSmoothLink:
    """Returns the text model around a classifier of the same file."""
    from smoothlink.text.classifier import TextSmoothLink

    meta = loaded.meta["text"]
    features = TextFeatures.from_arrays(loaded.arrays, meta)
    texts, labels = unpack_names(loaded.arrays, "text_examples"), meta["example_labels"]
    fits = isinstance(labels, list) and all(isinstance(j, str) for row in labels for j in row)
    if not fits or len(texts) != len(labels):
        raise ModelFileError("its examples and their labels do not fit. Save the model again.")
    if features.n_columns != classifier.n_features_in_ or classifier.label_names_ is None:
        raise ModelFileError(
            f"its text features have {features.n_columns} columns, its classifier {classifier.n_features_in_}. "
            "Save the model again."
        )
    own = {"examples": meta["examples"], "label_separator": meta.get("label_separator", "auto")}
    model = TextSmoothLink(**own, **features.get_params(), **classifier.get_params(deep=False))
    model._keep(classifier, features, [TrainingExample(*pair) for pair in zip(texts, labels, strict=True)])
    model.source_, model.label_form_ = meta["source"], meta.get("label_form", "lists")
    return model
