"""The names of scikit-learn that the estimators need, imported without pandas and scipy.stats, which scikit-learn
imports for a few functions that are not used here: 100 MB less in memory, and half the seconds of the import."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

__all__ = [
    "BaseEstimator",
    "ClassifierMixin",
    "DataConversionWarning",
    "TransformerMixin",
    "_check_sample_weight",
    "available_if",
    "check_classification_targets",
    "check_is_fitted",
    "check_random_state",
    "column_or_1d",
    "murmurhash3_32",
    "validate_data",
]


class Deferred(ModuleType):
    """Stands for a module, which is imported where one of its attributes is first needed."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def deferred(*names: str) -> Iterator[None]:
    """Has `import NAME` of modules that are installed, and not imported yet, give a `Deferred` inside the block."""
    stands = {name: Deferred(name) for name in names if name not in sys.modules and importlib.util.find_spec(name)}
    sys.modules.update(stands)
    try:
        yield
    finally:
        for name, stand in stands.items():
            if sys.modules.get(name) is stand:
                del sys.modules[name]


with deferred("pandas", "scipy.stats"):
    from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
    from sklearn.exceptions import DataConversionWarning
    from sklearn.utils import check_random_state, column_or_1d, murmurhash3_32
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
