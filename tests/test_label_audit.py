"""`smoothlink.audit`: planted mistakes come first, and blocks, brute force and refits agree."""

import numpy as np
import pytest
import scipy.sparse as sp

import smoothlink
from smoothlink import DataError, SmoothLinkClassifier, TextSmoothLink, audit
from smoothlink.label_audit import LEAST_RIDGE, audited_data, condition, fit_ridge
from smoothlink.reports.audit_page import audit_page, review_table, similar_rows, weights_without
from smoothlink.reports.pages import PageOptions
from smoothlink.text.tables import read_table

SUBJECTS = {"sea": "wave salt ship harbour", "hill": "rock summit snow path", "town": "street tram shop square"}


def planted(n=240, d=40, c=6, seed=0, *, sparse=True):
    """Rows of which each label has features of its own, a wrong label (3, 1) and a missing one (5, its own)."""
    rng = np.random.default_rng(seed)
    kind = np.arange(n) % c
    X = (rng.random((n, d)) < 0.1) * rng.random((n, d))
    X[np.arange(n)[:, None], 6 * kind[:, None] + np.arange(6)] += (rng.random((n, 6)) < 0.7) + 0.1
    Y = np.zeros((n, c), np.float32)
    Y[np.arange(n), kind] = 1
    Y[3, 1], Y[5, 5] = 1, 0
    X = X.astype(np.float32)
    return sp.csr_array(X) if sparse else X, sp.csr_array(Y)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("d", [40, 400])
def test_a_planted_wrong_label_and_a_planted_missing_one_come_first(sparse, d):
    found = audit(*planted(d=d, sparse=sparse), limit=5)
    assert [(one.row, one.label) for one in (found.wrong[0], found.missing[0])] == [(3, 1), (5, 5)]
    assert found.wrong[0].probability < 0.5 < found.missing[0].probability
    for suspects in (found.wrong, found.missing):
        assert len(suspects) == 5
        assert [one.sureness for one in suspects] == sorted((one.sureness for one in suspects), reverse=True)


@pytest.mark.parametrize("d", [40, 400])
def test_scores_of_a_row_are_those_of_a_ridge_regression_without_it(d):
    X, Y = planted(n=50, d=d)
    A = sp.csr_array(sp.hstack([X, np.ones((50, 1))]), dtype=np.float32)
    scores = fit_ridge(A, Y).of(slice(0, 50))
    D = A.toarray().astype(np.float64)
    strength = max(LEAST_RIDGE, smoothlink.fitting.choose.rule_of_thumb(smoothlink.machines.rows.Rows.of(A, Y)))
    rho = np.append(np.full(d, strength * (D[:, :-1] ** 2).sum() / d), 0)
    for i in (0, 3, 5, 17):
        others = np.delete(np.arange(50), i)
        B = np.linalg.solve(D[others].T @ D[others] + np.diag(rho), D[others].T @ Y[others].toarray())
        np.testing.assert_allclose(scores[i], D[i] @ B, atol=2e-3)


def test_each_label_is_regressed_on_the_others_as_if_it_and_the_row_were_not_there():
    data = audited_data(*planted(n=60))
    others = condition(data, [slice(0, 60)])
    S, Y = data.scores.of(slice(0, 60)), data.Y.toarray()
    R = Y - S
    T = Y * R
    t = 2.0 * (T**2).sum() / T.shape[1]
    for i, j in ((0, 0), (3, 1), (5, 5), (40, 2)):
        rows, labels = np.delete(np.arange(60), i), np.delete(np.arange(6), j)
        A = T[np.ix_(rows, labels)]
        w = np.linalg.solve(A.T @ A + t * np.eye(5), A.T @ R[rows, j])
        np.testing.assert_allclose(others.applied(S, data.Y)[i, j], S[i, j] + T[i, labels] @ w, atol=1e-5)
    assert (others.in_favour().weights == np.maximum(others.weights, 0)).all()
    assert others.weights.min() < 0


def test_a_wrong_label_is_found_where_every_row_has_one_label():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = np.eye(3, 9)[y] + 0.1 * rng.random((60, 9))
    y[4] = 2  # where it was 1
    found = audit(X, y, limit=1)
    assert [(one.row, one.label) for one in (*found.wrong, *found.missing)] == [(4, 2), (4, 1)]


def test_findings_do_not_depend_on_the_size_of_blocks():
    X, Y = planted()
    whole = audit(X, Y, limit=30)
    for rows in (1, 7, 100):
        part = audit(X, Y, limit=30, block_rows=rows)
        for a, b in ((whole.wrong, part.wrong), (whole.missing, part.missing)):
            assert [(one.row, one.label) for one in a] == [(one.row, one.label) for one in b]
            np.testing.assert_allclose([one.sureness for one in a], [one.sureness for one in b], rtol=1e-3)


def test_fewer_findings_are_the_first_of_more():
    X, Y = planted()
    assert audit(X, Y, limit=4).wrong == audit(X, Y, limit=40).wrong[:4]
    assert len(audit(X, Y, limit=10**6).wrong) == Y.nnz
    assert len(audit(X, Y, limit=10**6).missing) == Y.shape[0] * Y.shape[1] - Y.nnz


def test_the_share_that_is_expected_moves_how_sure_findings_are_and_not_their_order():
    X, Y = planted()
    few, many = audit(X, Y, expected=0.01), audit(X, Y, expected=0.2)
    assert [one[:3] for one in few.wrong] == [one[:3] for one in many.wrong]
    assert all(a.sureness < b.sureness for a, b in zip(few.missing, many.missing, strict=True))


def test_the_missing_list_of_rows_with_all_labels_is_empty():
    X, _ = planted(n=20)
    found = audit(X, np.ones((20, 3)))
    assert found.missing == ()
    assert "There are none." in audit_page(found, "t", "", 0.05, PageOptions(0))


def documents():
    rng = np.random.default_rng(0)
    texts, labels = [], []
    for i in range(90):
        name = list(SUBJECTS)[i % 3]
        texts.append(" ".join(rng.choice(SUBJECTS[name].split(), 5)) + f" number{i % 7}")
        labels.append([name])
    labels[4] = ["town"]  # of the hill
    return texts, labels


def test_texts_are_audited_with_names_ids_and_the_words_for_and_against():
    texts, labels = documents()
    found = audit(texts, labels, ids=[f"d{i}" for i in range(90)], limit=3)
    assert found.wrong[0][:3] == (4, "d4", "town")
    assert found.missing[0][:3] == (4, "d4", "hill")
    page = audit_page(found, "t", "", 0.05, PageOptions(0))
    assert "In favour of <bdi>hill</bdi>" in page
    assert "d4" in page
    frame = found.as_frame()
    assert frame.shape == (6, 7)
    assert list(frame["finding"]) == ["wrong"] * 3 + ["missing"] * 3


def test_a_model_that_does_not_know_the_rows_may_predict_them():
    texts, labels = documents()
    model = TextSmoothLink(effort="quick").fit(texts[45:], labels[45:])
    found = audit(texts[:45], labels[:45], model=model, limit=2)
    assert found.wrong[0][0] == found.missing[0][0] == 4
    assert "hill" in audit_page(found, "t", "", 0.05, PageOptions(0))


def test_weights_of_a_finding_are_those_of_a_fit_without_its_row():
    X, Y = planted(n=60)
    found = audit(X, Y, limit=1)
    (w,) = weights_without(found.data, found.wrong).T
    score = found.data.scores.of(slice(3, 4))[0, 1]
    assert float(found.data.A[[3]].toarray()[0] @ w[:-1] + w[-1]) == pytest.approx(score, abs=1e-4)


def test_similar_rows_are_those_of_the_largest_cosine_whatever_the_blocks():
    data = audited_data(*planted(n=60))
    A = data.A.toarray().astype(np.float64)
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    C = A @ A.T
    np.fill_diagonal(C, -2)
    for rows in (60, 13):
        for i, near in zip((3, 5), similar_rows(data, np.array([3, 5]), rows), strict=True):
            assert [one.name for one in near] == [f"row {j}" for j in np.argsort(-C[i])[:3]]


def test_names_and_texts_are_escaped_on_the_page():
    texts, labels = documents()
    texts[4] += " <script>alert(1)</script>"
    labels[4] = ["<b>town"]
    labels[7] = ["<b>town"]
    page = audit_page(audit(texts, labels), "<i>", "<u>", 0.05, PageOptions(0))
    for mark in ("<script>alert", "<b>town", "<i>", "<u>"):
        assert mark not in page


def test_the_table_for_review_has_each_document_once_with_the_labels_given():
    texts, labels = documents()
    columns, rows = review_table(audit(texts, labels, limit=5))
    assert columns == ["id", "text", "labels", "wrong", "missing", "sureness"]
    assert rows[0][:5] == ["4", texts[4], ["town"], "town", "hill"]
    assert len({row[0] for row in rows}) == len(rows)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"y": np.zeros((240, 6))}, "No row has a label"),
        ({"y": np.ones((240, 1))}, "All labels are the same"),
        ({"y": np.ones((3, 2))}, "labels for 3"),
        ({"ids": [1]}, "1 ids for 240 rows"),
    ],
)
def test_data_that_cannot_be_audited_are_refused_with_what_to_do(change, words):
    X, Y = planted()
    with pytest.raises(DataError, match=words) as error:
        audit(X, **{"y": Y, **change})
    assert str(error.value).endswith(".")


def test_a_model_of_other_labels_or_features_is_refused():
    X, Y = planted()
    model = SmoothLinkClassifier(effort="quick").fit(X, Y[:, :4])
    with pytest.raises(DataError, match="does not know"):
        audit(X, Y, model=model)
    with pytest.raises(ValueError, match="features"):
        audit(X[:, :9], Y[:, :4], model=model)
    with pytest.raises(ValueError, match=r"expected=0\.05"):
        audit(X, Y, expected=2)
    with pytest.raises(ValueError, match="limit"):
        audit(X, Y, limit=0)


def test_a_table_that_was_written_is_read_back(tmp_path):
    from smoothlink.cli.audit_command import write_review

    texts, labels = documents()
    path = tmp_path / "review.csv"
    count = write_review(str(path), audit(texts, labels, limit=5))
    table = read_table(str(path), "csv")
    assert len(list(table.rows)) == count
