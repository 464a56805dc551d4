"""Requests that are predicted together have the predictions they would have alone."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from served import TOPICS, text_model, vector_model

from smoothlink.data.predictions import LabelRequest
from smoothlink.serve import ServerSettings
from smoothlink.serve.schema import MAX_VALUE, RefusedRequest, Vector
from smoothlink.serve.service import PredictionService, RowPrediction, RowsRequest, stack_vectors
from smoothlink.vocabulary import Vocabulary, with_vocabulary

TEXTS = ["apple iron", "red red rain", "nothing known here", "", "seven plum hail zinc"]


def service(model, **limits):
    return PredictionService(model, ServerSettings(**limits))


def vector(row):
    row = sp.csr_array(row)
    return Vector(indices=row.indices.tolist(), values=[float(x) for x in row.data])


def test_texts_have_the_labels_that_the_model_gives_them():
    model = text_model()
    predictions = service(model).predict_batch([RowsRequest(TEXTS, LabelRequest(3))])[0]
    for prediction, best in zip(predictions, model.predict_topk(TEXTS, k=3), strict=True):
        assert prediction.names == [name for name, _ in best]
        assert prediction.probabilities == pytest.approx([p for _, p in best], abs=1e-6)
    assert predictions[2].features == predictions[3].features == 0
    assert predictions[0].features == 2 + ("apple iron" in model.features_.get_feature_names_out())


def test_a_server_makes_the_codes_of_its_labels_before_the_first_request():
    made = service(text_model())
    before = made.predict_batch([RowsRequest(TEXTS[:1], LabelRequest(3))])[0][0]
    search = made.classifier.model_.candidate_search
    search.pays = True  # as with thousands of labels
    made.warm_up()
    assert search.codes is not None
    after = made.predict_batch([RowsRequest(TEXTS[:1], LabelRequest(3))])[0][0]
    assert after.names == before.names
    assert after.probabilities == pytest.approx(before.probabilities, abs=1e-6)


def test_a_batch_of_all_kinds_of_requests_is_each_request_alone():
    made = service(text_model())
    kinds = [
        LabelRequest(3),
        LabelRequest(1),
        LabelRequest(5, threshold=0.2),
        LabelRequest(2, threshold=0.05),
        LabelRequest(2, only=(0, 3)),
        LabelRequest(5, 0.1, only=(1, 2, 4)),
    ]
    requests = [RowsRequest([TEXTS[i % 5], TEXTS[(i + 1) % 5]], kinds[i % len(kinds)]) for i in range(13)]
    together = made.predict_batch(requests)
    alone = [made.predict_batch([request])[0] for request in requests]
    for one, other in zip(together, alone, strict=True):
        for a, b in zip(one, other, strict=True):
            assert (a.names, a.features) == (b.names, b.features)
            assert a.probabilities == pytest.approx(b.probabilities, abs=1e-6)


def test_a_threshold_takes_all_labels_that_reach_it():
    model = text_model()
    P = model.predict_proba(TEXTS)
    made = service(model)
    for prediction, p in zip(made.predict_batch([made.check_request(TEXTS, None, threshold=0.15)])[0], P, strict=True):
        assert set(prediction.names) == {name for name, x in zip(model.classes_, p, strict=True) if x >= 0.15}
        assert prediction.probabilities == sorted(prediction.probabilities, reverse=True)


def test_only_some_labels_have_the_probabilities_they_have_among_all():
    model, made = text_model(), service(text_model())
    predictions = made.predict_batch([made.check_request(TEXTS, None, only=["metal", "fruit", "metal"])])[0]
    for prediction, p in zip(predictions, model.predict_proba(TEXTS, labels=["fruit", "metal"]), strict=True):
        assert dict(zip(prediction.names, prediction.probabilities, strict=True)) == pytest.approx(
            {"fruit": p[0], "metal": p[1]}, abs=1e-6
        )


def test_vectors_are_the_rows_they_spell_with_repeated_features_added(rng):
    X = sp.random_array((7, 40), density=0.1, rng=rng, format="csr", dtype=np.float32)
    np.testing.assert_array_equal(stack_vectors([vector(X[[i]]) for i in range(7)], 40).toarray(), X.toarray())
    twice = stack_vectors([Vector(indices=[3, 3, 9], values=[1.0, 0.5, 0.0])], 40)
    assert (twice.indices.tolist(), twice.data.tolist()) == ([3], [1.5])


def test_vectors_have_the_labels_that_the_model_gives_them(rng):
    model = vector_model()
    X = sp.csr_array(rng.poisson(0.15, (6, 40)).astype(np.float32))
    best = model.predict_topk(X, k=4)
    predictions = service(model).predict_batch([RowsRequest([vector(X[[i]]) for i in range(6)], LabelRequest(4))])[0]
    assert [int(name) for prediction in predictions for name in prediction.names] == best.indices.tolist()
    np.testing.assert_allclose(
        [p for prediction in predictions for p in prediction.probabilities], best.data, atol=1e-6
    )


def test_labels_are_found_by_a_part_of_their_names_those_that_begin_with_it_first():
    made = service(text_model())
    names = sorted(TOPICS)
    assert made.names == names
    found = partial(found_names, made)
    assert made.search_labels("", 1, 2)[0] == 5
    assert found("", 1, 2) == names[1:3]
    assert found("R", 0, 9) == ["colour", "fruit", "number", "weather"]
    assert found("m", 0, 9) == ["metal", "number"]
    assert found("m", 1, 9) == ["number"]
    assert made.search_labels("zebra", 0, 9) == (0, [])


def found_names(made, *search, **more):
    return [one.name for one in made.search_labels(*search, **more)[1]]


def test_labels_are_found_by_their_names_in_a_vocabulary_and_by_themselves():
    vocabulary = Vocabulary({"en": {"metal": "Ores", "fruit": "Fruits", "gem": "Gems", "ore": "Ore"}}, ["ore"])
    made = service(with_vocabulary(text_model(), vocabulary))
    assert found_names(made, "ORE", 0, 9) == ["Ores"]
    assert found_names(made, "metal", 0, 9) == ["Ores"]
    assert found_names(made, "gem", 0, 9) == []
    assert found_names(made, "gem", 0, 9, vocabulary=True) == ["Gems"]
    assert found_names(made, "ore", 0, 9, vocabulary=True) == ["Ores"]
    assert made.search_labels("gem", 0, 9, vocabulary=True)[1][0].number is None
    assert made.label_and_name("fruit") == {"label": "fruit", "name": "Fruits"}


@pytest.mark.parametrize(
    ("model", "given", "reason"),
    [
        (text_model, {"texts": None, "vectors": [Vector(indices=[0], values=[1.0])]}, "takes texts"),
        (vector_model, {"texts": ["a"], "vectors": None}, "takes vectors"),
        (vector_model, {"texts": None, "vectors": [Vector(indices=[40], values=[1.0])]}, r"40 is outside 0\.\.39"),
        (text_model, {"texts": ["a"] * 4, "vectors": None}, "4 rows are more than 3"),
        (text_model, {"texts": ["a"], "vectors": None, "k": 5}, "at most 4 labels"),
        (text_model, {"texts": ["a"], "vectors": None, "only": ["metal", "brass"]}, "no label 'brass'"),
    ],
)
def test_a_request_that_cannot_be_predicted_is_refused_with_the_reason(model, given, reason):
    with pytest.raises(RefusedRequest) as error:
        service(model(), max_rows=3, max_labels=4).check_request(**given)
    assert error.match(reason)
    assert 400 <= error.value.status_code < 500


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("changes", [{}, {"normalize_embedding": True}, {"kernel": "linear"}], ids=str)
@pytest.mark.parametrize("value", [1e-45, 1e-25, 1e20, -MAX_VALUE])
def test_the_smallest_and_the_largest_values_have_probabilities(changes, value):
    made = service(vector_model(scale="none", **changes))
    row = Vector(indices=[0, 1, 2], values=[value, -value, value])
    assert all(0 < p < 1 for p in made.predict_batch([RowsRequest([row], LabelRequest(6))])[0][0].probabilities)


def test_probabilities_that_are_not_numbers_are_refused(monkeypatch):
    made = service(vector_model())
    not_a_number = RowPrediction(["a"], [float("nan")], [False], 1)
    monkeypatch.setattr(made, "predict_rows", lambda X, _: [not_a_number] * X.shape[0])
    row = Vector(indices=[0], values=[1.0])
    assert isinstance(made.predict_batch([RowsRequest([row], LabelRequest(1))])[0], RefusedRequest)
