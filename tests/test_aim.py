"""aim: thresholds that held-out rows choose, used by every prediction alike and kept by a model file."""

import functools
import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from commands import FIXED, prepared, succeed
from small import classes, documents, fixed, multilabel, words

import smoothlink
from smoothlink import Joint, SmoothLinkClassifier, TextSmoothLink, safetensors_file
from smoothlink.data.predictions import LabelRequest, predicted_labels
from smoothlink.data.read import Data, write
from smoothlink.reports.example_rows import report_rows
from smoothlink.reports.labelled_rows import labelled_rows
from smoothlink.reports.measurements import measure
from smoothlink.steps.calibrate import Calibration
from smoothlink.synth import Shape, synthesise

AIMS = ("half", "f1", "precision=0.9", "recall=0.9", "labels=2.5")


def quick(aim, **changes):
    return SmoothLinkClassifier(effort="quick", aim=aim, **changes)


@pytest.fixture(scope="module")
def rows(pytestconfig):
    return multilabel(np.random.default_rng([2015, pytestconfig.getoption("--seed")]), n=300)


@pytest.fixture(scope="module")
def aimed(rows):
    """Returns the model of an aim, fitted once to `rows`; no test changes it."""
    return functools.cache(lambda aim: quick(aim).fit(*rows))


@pytest.mark.parametrize("aim", AIMS)
def test_labels_are_predicted_at_the_thresholds(rows, aimed, aim):
    (X, _), fitted = rows, aimed(aim)
    np.testing.assert_array_equal(fitted.predict(X), fitted.predict_proba(X) >= fitted.thresholds_)
    assert fitted.summary_["threshold"]["aim"] == aim
    assert fitted.summary_["threshold"]["rows"] == fitted.summary_["held_out_rows"] == 300


@pytest.mark.parametrize(
    ("aim", "name", "least", "most"),
    [
        ("precision=0.9", "precision", 0.9, 1),
        ("recall=0.9", "recall", 0.9, 1),
        ("labels=2.5", "labels_per_row", 2.4, 2.6),
    ],
)
def test_an_aim_is_reached_on_held_out_rows_and_nearly_on_others(rng, aim, name, least, most):
    X, Y = multilabel(rng, n=1200)
    fitted = quick(aim).fit(X[:600], Y[:600])
    assert least <= fitted.summary_["threshold"][name] <= most
    sets = fitted.predict(X[600:])
    hits = (sets & Y[600:]).sum()
    found = {"precision": hits / sets.sum(), "recall": hits / Y[600:].sum(), "labels_per_row": sets.sum() / 600}
    assert found[name] == pytest.approx(fitted.summary_["threshold"][name], rel=0.1)


def test_f1_sets_are_those_of_the_aim_f1(rows, aimed):
    (X, _), fitted = rows, aimed("f1")
    np.testing.assert_array_equal(fitted.predict_f1(X, over="thresholds"), fitted.predict(X))
    np.testing.assert_array_equal(aimed("half").predict_f1(X[:99]), fitted.predict(X[:99]))


def test_f1_sets_of_a_hundred_rows_or_more_are_those_of_the_rows_together(rows, aimed):
    (X, _), fitted = rows, aimed("f1")
    for n, over in ((99, "thresholds"), (100, "batch"), (300, "batch")):
        np.testing.assert_array_equal(fitted.predict_f1(X[:n]), fitted.predict_f1(X[:n], over=over))
    assert (fitted.predict_f1(X[:1]) != fitted.predict_f1(X[:1], over="batch")).any()  # where each label gets a row


def test_a_threshold_that_is_given_overrides_the_models_own(rows, aimed):
    (X, Y), fitted = rows, aimed("recall=0.9")
    P, each = fitted.predict_proba(X), np.linspace(0.1, 0.9, Y.shape[1])
    np.testing.assert_array_equal(fitted.predict(X, threshold=0.7), P >= 0.7)
    np.testing.assert_array_equal(fitted.predict(X, threshold=each), each <= P)
    own, other = (fitted.evaluate(X, Y, threshold=t, bootstraps=0).metrics["micro_f1"].value for t in (None, 0.7))
    assert own == pytest.approx(micro_f1(fitted.predict(X), Y))
    assert other == pytest.approx(micro_f1(P >= 0.7, Y))
    with pytest.raises(ValueError, match="threshold is 50"):
        fitted.predict(X, threshold=50)


def micro_f1(sets, Y):
    return 2 * (sets * Y).sum() / (sets.sum() + Y.sum())


def test_labels_without_training_rows_are_never_predicted(rng):
    X, Y = multilabel(rng, n=200)
    Y[:, 2] = 0
    fitted = quick("recall=1").fit(X, Y)
    assert np.isinf(fitted.thresholds_[2])
    assert not fitted.predict(X)[:, 2].any()


def test_multiclass_models_predict_the_best_class_and_refuse_thresholds(rng):
    X, y = classes(rng)
    with pytest.raises(ValueError, match=r"aim is 'f1', but every row has exactly one label.*task='multilabel'"):
        quick("f1").fit(X, y)
    fitted = quick("half").fit(X, y)
    with pytest.raises(ValueError, match="a multiclass model predicts the one best class"):
        fitted.predict(X, threshold=0.3)
    np.testing.assert_array_equal(fitted.predict(X), fitted.predict_proba(X).argmax(axis=1))
    assert quick("f1", task="multilabel").fit(X, np.eye(3, dtype=int)[y]).model_.has_aim


@pytest.mark.parametrize("aim", ["f2", "precision", "precision=0", "recall=1.5", "labels=0", 0.5])
def test_what_is_no_aim_is_refused_before_anything_is_fitted(rng, aim):
    with pytest.raises(ValueError, match=r"aim is .*; possible are 'half', 'f1'.*'precision=P'"):
        quick(aim).fit(*multilabel(rng))


def test_without_calibration_only_half_is_possible(rng):
    with pytest.raises(ValueError, match="aim is 'f1', which calibrate=False cannot use"):
        quick("f1", calibrate=False).fit(*multilabel(rng))


def test_without_rows_to_hold_out_the_warning_says_what_the_model_takes():
    with pytest.warns(UserWarning, match="aim is 'f1', but no row could be held out"):
        fitted = quick("f1").fit([[1.0, 2.0]], [[1, 1]])
    assert not fitted.model_.has_aim


def test_thresholds_are_read_only_and_there_after_the_fit(rng):
    with pytest.raises(AttributeError, match="before it is fitted"):
        _ = SmoothLinkClassifier().thresholds_
    with pytest.raises(AttributeError):
        fixed().fit(*multilabel(rng)).thresholds_ = 0.3


# Files


@pytest.mark.parametrize("aim", AIMS)
def test_a_model_file_keeps_the_thresholds(rows, aimed, tmp_path, aim):
    (X, _), fitted = rows, aimed(aim)
    fitted.save(tmp_path / "m.safetensors")
    loaded = smoothlink.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))
    np.testing.assert_array_equal(loaded.predict_f1(X), fitted.predict_f1(X))
    assert loaded.summary_["threshold"] == fitted.summary_["threshold"]


def test_a_file_without_an_aim_predicts_labels_more_likely_than_not(rows, aimed, tmp_path):
    (X, _), fitted, path = rows, aimed("half"), tmp_path / "m.safetensors"
    fitted.save(path)
    content = safetensors_file.load(path, mmap=False)
    assert "threshold" not in content.meta
    del content.meta["parameters"]["aim"]
    safetensors_file.save(path, content.arrays, content.meta)
    loaded = smoothlink.load(path)
    np.testing.assert_array_equal(loaded.predict(X), loaded.predict_proba(X) > 0.5)
    np.testing.assert_array_equal(loaded.predict_f1(X), fitted.predict_f1(X))


# Learners and machines


@pytest.mark.slow
def test_joint_training_takes_an_aim():
    made = synthesise(Shape(300, 80, 12, 2, seed=3), 1500)
    fitted = SmoothLinkClassifier(training=Joint(20), rank=24, aim="labels=1.5").fit(made.X, made.Y)
    assert fitted.summary_["threshold"]["labels_per_row"] == pytest.approx(1.5, abs=0.1)
    assert fitted.predict(made.X).sum() / 1500 == pytest.approx(1.5, rel=0.3)


def test_a_device_gives_the_same_thresholds(rng, torch):
    X, Y = words(rng, n=200)
    host, device = (fixed(calibrate=True, aim="recall=0.8", device=where).fit(X, Y) for where in ("cpu", "torch"))
    np.testing.assert_allclose(device.thresholds_, host.thresholds_, rtol=0.02)
    np.testing.assert_array_equal(device.predict(X), device.predict_proba(X) >= device.thresholds_)


def test_a_checkpoint_keeps_the_thresholds(rng, tmp_path):
    X, Y = multilabel(rng, n=200)
    given = {"rank": 4, "ridge": 1.0, "loss": "squared", "aim": "precision=0.8", "checkpoint": tmp_path / "state"}
    first, again = (SmoothLinkClassifier(**given).fit(X, Y) for _ in range(2))
    np.testing.assert_array_equal(again.thresholds_, first.thresholds_)
    assert again.summary_["threshold"] == first.summary_["threshold"]


def test_texts_take_an_aim_and_a_threshold():
    texts, labels = documents()
    fitted = TextSmoothLink(effort="quick", aim="labels=1.3").fit(texts, labels)
    P = fitted.predict_proba(texts)
    found = [set(names) for names in fitted.predict(texts)]
    assert found == [set(fitted.classes_[p >= fitted.thresholds_]) for p in P]
    assert [set(names) for names in fitted.predict(texts, threshold=0.9)] == [set(fitted.classes_[p >= 0.9]) for p in P]


def test_sparse_labels_stay_sparse(rng):
    X, Y = words(rng, n=200)
    sets = quick("labels=2").fit(X, sp.csr_array(Y)).predict(X, threshold=0.4)
    assert sets.format == "csr"


# Commands, pages and the service


@pytest.fixture(scope="module")
def files(tmp_path_factory, pytestconfig):
    found = prepared(tmp_path_factory.mktemp("aim"), pytestconfig.getoption("--seed"))
    model = found.folder / "aim.safetensors"
    ran = succeed("train", found.train, "-o", model, "--effort", "quick", "--aim", "labels=2")
    printed = " ".join(ran.out.split())
    assert "It predicts labels from a threshold of" in printed
    assert "for the aim labels=2. On " in printed
    assert "measured, not guaranteed" in printed
    assert printed.index("measured, not guaranteed") < printed.index("What to type next") < printed.index("selected by")
    return found._replace(model=model)


def rows_of(ran):
    return [{one["label"] for one in json.loads(line)["labels"]} for line in ran.out.splitlines()]


def test_predict_gives_the_sets_of_a_model_that_has_an_aim_unless_asked_otherwise(files):
    model = smoothlink.load(files.model)
    del model.feature_names_in_
    own = [{f"label{j}" for j in np.flatnonzero(row)} for row in model.predict(files.tested.X).toarray()]
    assert rows_of(succeed("predict", files.model, files.test)) == own
    assert rows_of(succeed("predict", files.model, files.test, "--sets")) == own
    P = model.predict_proba(files.tested.X)
    other = [{f"label{j}" for j in np.flatnonzero(p >= 0.7)} for p in P]
    assert rows_of(succeed("predict", files.model, files.test, "--threshold", 0.7)) == other
    assert {len(row) for row in rows_of(succeed("predict", files.model, files.test, "-k", 3))} == {3}


def test_evaluate_and_report_measure_the_same_sets(files, tmp_path):
    model = smoothlink.load(files.model)
    del model.feature_names_in_
    Y = files.tested.Y.toarray()
    page = "-o", tmp_path / "report.html"
    for given, threshold in (((), None), (("--threshold", 0.7), 0.7)):
        expected = micro_f1(model.predict(files.tested.X, threshold=threshold).toarray(), Y)
        for command in (("evaluate", files.model, files.test), ("report", files.model, files.test, *page, "--force")):
            found = succeed(*command, *given, "--json", "--bootstraps", 0).json
            assert found["micro_f1"]["value"] == pytest.approx(expected)


def test_evaluate_report_and_compare_give_one_number_for_one_metric(rng):
    X, Y = words(rng, n=150)
    first, second = fixed().fit(X[:90], Y[:90]), fixed(rank=2).fit(X[:40], Y[:40])
    both = smoothlink.compare(first, second, X[90:], Y[90:], bootstraps=0).metrics
    for side, model in (("first", first), ("second", second)):
        alone = model.evaluate(X[90:], Y[90:], bootstraps=0).metrics
        shown = smoothlink.report(model, X[90:], Y[90:], bootstraps=0).measured.metrics
        for key, metric in alone.items():
            assert getattr(both[key], side).value == pytest.approx(metric.value, abs=1e-12), key
            assert shown[key].value == pytest.approx(metric.value, abs=1e-12), key


def test_the_service_gives_the_sets_of_a_model_that_has_an_aim_unless_asked_otherwise():
    from smoothlink.serve import ServerSettings
    from smoothlink.serve.service import PredictionService

    texts, labels = documents()
    model = TextSmoothLink(effort="quick", aim="f1").fit(texts, labels)
    service = PredictionService(model, ServerSettings())
    for given, expected in (({}, model.predict(texts)), ({"threshold": 0.9}, model.predict(texts, threshold=0.9))):
        (found,) = service.predict_batch([service.check_request(texts, None, **given)])
        assert [set(one.names) for one in found] == [set(names) for names in expected]
    (found,) = service.predict_batch([service.check_request(texts, None, k=2)])
    assert {len(one.names) for one in found} == {2}


# Ties


def test_equal_probabilities_are_ranked_by_score(rng):
    X, Y = multilabel(rng, n=120)
    fitted = fixed(rank=6).fit(X, Y)
    flat = Calibration(np.array([-12.0, 12.0]), np.array([0.7, 0.7]))
    fitted.model_ = replace(fitted.model_, calibration=flat)
    order = np.argsort(-fitted.decision_function(X), axis=1)[:, :3]
    np.testing.assert_array_equal(fitted.predict_topk(X, k=3).indices.reshape(-1, 3), order)
    for request in (LabelRequest(3, threshold=0.5), LabelRequest(3, sets=True), LabelRequest(3, only=tuple(range(6)))):
        found = [labels for labels, _ in predicted_labels(fitted, X, request)]
        np.testing.assert_array_equal(found, order)


def test_of_equally_probable_mistakes_a_report_shows_those_of_the_highest_scores(rng):
    X, Y = multilabel(rng, n=200)
    fitted = fixed(rank=6).fit(X[:100], Y[:100])
    fitted.model_ = replace(fitted.model_, calibration=Calibration(np.array([-12.0, 12.0]), np.array([0.7, 0.7])))
    rows = labelled_rows(fitted, X[100:], Y[100:])
    shown = [row.name for row in report_rows(measure(rows, bootstraps=0), rows, 0).wrong]
    S = fitted.decision_function(X[100:])
    wrong = np.flatnonzero(Y[100:][np.arange(100), S.argmax(axis=1)] == 0)
    best = wrong[np.argsort(-S[wrong].max(axis=1), kind="stable")][: len(shown)]
    assert shown == [f"row {row}" for row in best]


# Few rows


def test_labels_that_every_row_has_are_ranked_first(rng):
    X, Y = multilabel(rng, n=200)
    Y[:, 3] = 1
    for fitted in (quick("half").fit(X, Y), fixed(calibrate=False).fit(X, Y)):
        assert (fitted.predict_topk(10 * X, k=1).indices == 3).all()
        assert fitted.predict_proba(X)[:, 3].min() > 0.98


def test_train_notes_rows_and_labels_that_are_too_few(rng, tmp_path):
    X, Y = words(rng, n=40)
    Y[:, 2] = 0
    Y[7, 2] = 1
    write(Data(sp.csr_array(X.astype(np.float32)), sp.csr_array(Y.astype(np.float32))), tmp_path / "few.txt")
    said = " ".join(succeed("train", tmp_path / "few.txt", "-o", tmp_path / "m.safetensors", *FIXED).err.split())
    assert "40 training rows: too few to rely on this model" in said
    assert "1 label of 6 with one training row each" in said
