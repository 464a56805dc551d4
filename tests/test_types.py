"""Public signatures have real types; the forms of estimators that people see are short."""

import inspect
import re
import types
import typing

import pytest
from paged import texts_and_labels
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

import smoothlink
from smoothlink import Gaussian, SmoothLinkClassifier, TextFeatures, TextSmoothLink, load
from smoothlink.parameters import PARAMETERS


def public_functions():
    """Public functions, and the public methods and constructors of public classes, with their names."""
    for name in smoothlink.__all__:
        thing = getattr(smoothlink, name)
        if inspect.isfunction(thing):
            yield name, thing
        elif inspect.isclass(thing):
            for method, function in vars(thing).items():
                if inspect.isfunction(function) and (method == "__init__" or not method.startswith("_")):
                    yield f"{name}.{method}", function


@pytest.mark.parametrize(
    ("name", "function"), list(public_functions()), ids=lambda given: given if type(given) is str else ""
)
def test_no_public_signature_has_a_bare_any(name, function):
    function = inspect.unwrap(function)
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]  # those of **options may be anything
    for argument, kind in ((name, function.__annotations__.get(name, "")) for name in (*names, "return")):
        parts = re.split(r"\s*\|\s*", kind if isinstance(kind, str) else inspect.formatannotation(kind))
        assert not {"Any", "typing.Any"} & set(parts), f"{name}: {argument}"


@pytest.mark.parametrize("p", PARAMETERS, ids=lambda p: p.name)
def test_the_type_of_a_parameter_allows_what_its_row_in_the_table_allows(p):
    hint = typing.get_type_hints(SmoothLinkClassifier.__init__)[p.name]
    kinds = set(typing.get_args(hint)) if isinstance(hint, types.UnionType) or typing.get_origin(hint) else {hint}
    needed = {str} if p.values.words else set()
    needed |= {type(None)} if p.values.none else set()
    needed |= {bool} if p.values.flag and p.values.whole is None else set()
    assert needed <= kinds
    assert p.values.number is None or kinds & {float, int}
    assert p.values.whole is None or kinds & {float, int}


@pytest.mark.parametrize("kind", [SmoothLinkClassifier, TextSmoothLink])
def test_the_repr_and_the_html_form_name_only_what_was_changed(kind):
    plain, changed = kind(), kind(effort="quick", kernel=Gaussian(bandwidth=2.0))
    assert repr(plain) == f"{kind.__name__}()"
    assert repr(changed) == f"{kind.__name__}(effort='quick', kernel=Gaussian(bandwidth=2.0))"
    shown = re.sub(r"(?s)<style>.*?</style>|<script>.*?</script>|<[^>]+>", " ", changed._repr_html_())
    assert "effort" in shown
    assert "bandwidth" in shown
    for name in ("rank", "final_ridge", "holdout", "random_state"):
        assert name not in shown
    assert "Pipeline" in make_pipeline(Normalizer(), SmoothLinkClassifier())._repr_html_()


def test_a_loaded_model_has_the_repr_of_the_one_that_was_saved(tmp_path):
    model = TextSmoothLink(effort="quick", word_ngrams=(1, 1)).fit(*texts_and_labels(40))
    model.save(tmp_path / "model.safetensors")
    assert repr(load(tmp_path / "model.safetensors")) == repr(model)


def test_columns_have_the_names_of_their_ngrams():
    texts, labels = texts_and_labels(40)
    model = TextSmoothLink(effort="quick", word_ngrams=(1, 1), char_ngrams=None).fit(texts, labels)
    names = model.get_feature_names_out()
    row = model.transform(["read csv"])
    assert sorted(names[row.indices]) == ["csv", "read"]
    features = TextFeatures(word_ngrams=(1, 1), char_ngrams=None).set_output(transform="default").fit(texts)
    assert features.get_feature_names_out().tolist() == names.tolist()
