"""scikit-learn is imported without the libraries that only other parts of it need."""

import subprocess
import sys

import pytest

UNUSED = ["pandas", "pyarrow", "scipy.stats"]
FIT = "from smoothlink import SmoothLinkClassifier; SmoothLinkClassifier().fit([[0.0], [1.0]] * 10, ['a', 'b'] * 10)"
TEXT = "from smoothlink import TextFeatures; TextFeatures().fit_transform(['one text', 'another text'])"
WHOLE = """
import sklearn.utils.fixes
from scipy import stats
import pandas
from sklearn.preprocessing import StandardScaler, scale
assert sklearn.utils.fixes.pd.DataFrame is pandas.DataFrame
assert sklearn.utils.fixes._mode([1, 1, 2])[0] == 1
assert "pandas" in sys.modules and stats is sys.modules["scipy.stats"]
"""


def run(code):
    return subprocess.run([sys.executable, "-c", f"import sys\n{code}"], text=True, capture_output=True)


@pytest.mark.parametrize("code", [FIT, TEXT])
def test_neither_a_fit_nor_text_features_import_what_they_do_not_use(code):
    done = run(f"{code}\nprint([name for name in {UNUSED} if name in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr


def test_scikit_learn_finds_what_was_deferred_once_it_needs_it():
    pytest.importorskip("pandas")
    done = run(f"{TEXT}\n{WHOLE}")
    assert not done.returncode, done.stderr
