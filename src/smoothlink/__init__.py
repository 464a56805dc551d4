"""Classification with very many labels: a smooth, low-rank link function.

The public names, in the order of the path; each loads on first use, so that the import stays fast.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

# NumPy and SciPy each bring a BLAS whose idle threads spin for a while before they sleep; taking turns, they starve
# each other (2.5 times slower on two cores). A shorter spin cures it where this import comes before NumPy's.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")

__version__ = "0.13.0"

_PLACES = {
    "read": "smoothlink.data.read",
    "write": "smoothlink.data.read",
    "Data": "smoothlink.data.read",
    "SmoothLinkClassifier": "smoothlink.estimator",
    "Gaussian": "smoothlink.choices",
    "Laplacian": "smoothlink.choices",
    "Exponential": "smoothlink.choices",
    "Matern": "smoothlink.choices",
    "Linear": "smoothlink.choices",
    "Squared": "smoothlink.choices",
    "Logistic": "smoothlink.choices",
    "Softmax": "smoothlink.choices",
    "Randomized": "smoothlink.choices",
    "PerLabel": "smoothlink.choices",
    "Joint": "smoothlink.choices",
    "FineTune": "smoothlink.choices",
    "InputKernel": "smoothlink.choices",
    "TextSmoothLink": "smoothlink.text.classifier",
    "TextFeatures": "smoothlink.text.features",
    "Document": "smoothlink.text.numbers",
    "cluster": "smoothlink.distributed.client",
    "Files": "smoothlink.distributed.input_files",
    "Reading": "smoothlink.data.matching",
    "predict_files": "smoothlink.file_prediction",
    "evaluate_files": "smoothlink.file_evaluation",
    "Watch": "smoothlink.drift",
    "expected_metrics": "smoothlink.drift",
    "tune": "smoothlink.search",
    "Space": "smoothlink.search.space",
    "stratified_split": "smoothlink.steps.split",
    "Cholesky": "smoothlink.solve",
    "DualCholesky": "smoothlink.solve",
    "ConjugateGradient": "smoothlink.solve",
    "evaluate": "smoothlink.metrics.evaluate",
    "report": "smoothlink.reports.report_page",
    "compare": "smoothlink.reports.comparison",
    "load": "smoothlink.modelfile",
    "Vocabulary": "smoothlink.vocabulary",
    "read_vocabulary": "smoothlink.vocabulary",
    "explain": "smoothlink.explanation",
    "audit": "smoothlink.label_audit",
    "neighbours": "smoothlink.explanation",
    "ClusterError": "smoothlink.errors",
    "DataError": "smoothlink.errors",
    "DeviceError": "smoothlink.errors",
    "ModelFileError": "smoothlink.errors",
    "SmoothLinkError": "smoothlink.errors",
}

__all__ = ["__version__", *_PLACES]

if TYPE_CHECKING:
    from smoothlink.choices import Exponential as Exponential
    from smoothlink.choices import FineTune as FineTune
    from smoothlink.choices import Gaussian as Gaussian
    from smoothlink.choices import InputKernel as InputKernel
    from smoothlink.choices import Joint as Joint
    from smoothlink.choices import Laplacian as Laplacian
    from smoothlink.choices import Linear as Linear
    from smoothlink.choices import Logistic as Logistic
    from smoothlink.choices import Matern as Matern
    from smoothlink.choices import PerLabel as PerLabel
    from smoothlink.choices import Randomized as Randomized
    from smoothlink.choices import Softmax as Softmax
    from smoothlink.choices import Squared as Squared
    from smoothlink.data.matching import Reading as Reading
    from smoothlink.data.read import Data as Data
    from smoothlink.data.read import read as read
    from smoothlink.data.read import write as write
    from smoothlink.distributed.client import cluster as cluster
    from smoothlink.distributed.input_files import Files as Files
    from smoothlink.drift import Watch as Watch
    from smoothlink.drift import expected_metrics as expected_metrics
    from smoothlink.errors import ClusterError as ClusterError
    from smoothlink.errors import DataError as DataError
    from smoothlink.errors import DeviceError as DeviceError
    from smoothlink.errors import ModelFileError as ModelFileError
    from smoothlink.errors import SmoothLinkError as SmoothLinkError
    from smoothlink.estimator import SmoothLinkClassifier as SmoothLinkClassifier
    from smoothlink.explanation import explain as explain
    from smoothlink.explanation import neighbours as neighbours
    from smoothlink.file_evaluation import evaluate_files as evaluate_files
    from smoothlink.file_prediction import predict_files as predict_files
    from smoothlink.label_audit import audit as audit
    from smoothlink.metrics.evaluate import evaluate as evaluate
    from smoothlink.modelfile import load as load
    from smoothlink.reports.comparison import compare as compare
    from smoothlink.reports.report_page import report as report
    from smoothlink.search import tune as tune
    from smoothlink.search.space import Space as Space
    from smoothlink.solve import Cholesky as Cholesky
    from smoothlink.solve import ConjugateGradient as ConjugateGradient
    from smoothlink.solve import DualCholesky as DualCholesky
    from smoothlink.steps.split import stratified_split as stratified_split
    from smoothlink.text.classifier import TextSmoothLink as TextSmoothLink
    from smoothlink.text.features import TextFeatures as TextFeatures
    from smoothlink.text.numbers import Document as Document
    from smoothlink.vocabulary import Vocabulary as Vocabulary
    from smoothlink.vocabulary import read_vocabulary as read_vocabulary


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'smoothlink' has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
