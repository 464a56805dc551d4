"""The demo's parts on a small corpus, its command, and (slow) the whole."""

import numpy as np
import pytest
from commands import run, succeed
from scipy.sparse import csr_array

from smoothlink.demo import demo_run as parts
from smoothlink.demo import independent_baseline as baseline
from smoothlink.demo.corpus import Corpus
from smoothlink.metrics.evaluate import evaluate

TOPICS = {
    ("scipy", "sparse"): "sparse matrix solve linear system csr",
    ("sklearn", "ensemble"): "random forest trees train estimator",
    ("csv",): "read csv file rows delimiter reader",
}


def small_corpus(rng, copies=40):
    """Documents of a few words of their topic and a few of no topic."""
    names = sorted({part for path in TOPICS for part in path})
    texts, rows = [], []
    for path, words in TOPICS.items():
        for _ in range(copies):
            noise = [f"noise{j}" for j in rng.integers(0, 30, 3)]
            texts.append(" ".join([*rng.choice(words.split(), 4), *noise]))
            rows.append([float(name in path) for name in names])
    labels = csr_array(np.array(rows, np.float32))
    return Corpus(texts, names, labels, [f"document.{i}" for i in range(len(texts))])


@pytest.fixture
def corpus(rng):
    return small_corpus(rng)


@pytest.fixture
def problem(corpus):
    return parts.demo_problem(corpus)


def test_a_fifth_of_the_documents_is_for_testing_and_always_the_same(corpus, problem):
    n, tested = problem.X.shape[0], problem.X_test.shape[0]
    assert n + tested == len(corpus.texts)
    assert 0.1 < tested / (n + tested) < 0.3
    again = parts.demo_problem(corpus)
    assert (again.X != problem.X).nnz == 0
    assert (again.Y_test != problem.Y_test).nnz == 0


def test_the_split_keeps_each_text_with_its_labels(corpus, problem):
    both = [*problem.vectorizer.inverse_transform(problem.X), *problem.vectorizer.inverse_transform(problem.X_test)]
    labels = np.vstack([problem.Y.toarray(), problem.Y_test.toarray()])
    for words, row in zip(both, labels, strict=True):
        path = {name for name, has in zip(corpus.label_names, row, strict=True) if has}
        assert set(words) & set(next(text for parts, text in TOPICS.items() if set(parts) == path).split())


@pytest.mark.slow
def test_words_of_a_topic_get_its_labels(problem):
    model = parts.train(problem)
    sentences = ["solve a sparse linear system", "train a random forest", "read a csv file"]
    said = [{name for name, p in labels if p > 0.5} for labels in parts.label_sentences(problem, model, sentences, k=5)]
    assert said == [{"scipy", "sparse"}, {"sklearn", "ensemble"}, {"csv"}]


def test_selected_settings_are_taken_as_they_are(problem):
    steps = []
    summary = parts.train(problem, lambda stage, share, words: steps.append(stage), selected=True).summary_
    assert [summary[name] for name in ("ridge", "bandwidth", "final_ridge")] == [3.0, 1.0, 3e-4]
    assert "fit" in steps


def test_model_and_baseline_are_measured_alike(problem):
    """On documents whose words give their topic away, neither may fail: not its ranking, and not its label sets."""
    ours, theirs = parts.compare_with_baseline(problem, parts.train(problem))
    assert ours.metrics.keys() == theirs.metrics.keys() >= set(parts.COMPARED)
    assert ours.n_rows == theirs.n_rows == problem.X_test.shape[0]
    for found in (ours, theirs):
        assert found.metrics["micro_f1"].value > 0.9
        assert found.metrics["p@1"].value > 0.9


def test_the_baseline_is_ridge_regression_of_each_label_alone(rng):
    X = csr_array(rng.standard_normal((30, 50)).astype(np.float32))  # more features than rows: solved in the dual
    Y = csr_array((rng.random((30, 3)) < 0.4).astype(np.float32))
    A = np.hstack([X.toarray(), np.ones((30, 1))]).astype(np.float64)
    for j in range(3):
        alone = np.linalg.solve(A.T @ A + 0.3 * np.eye(51), A.T @ Y.toarray()[:, j])
        together = baseline.solve_ridge(baseline.with_intercept(X), Y, 0.3)[:, j]
        np.testing.assert_allclose(together, alone, atol=1e-4)


def test_the_baseline_chooses_its_ridge_on_rows_it_has_not_seen(problem):
    fitted = baseline.fit_independent(problem.X, problem.Y)
    assert fitted.ridge in baseline.BASELINE_RIDGES
    predicted = fitted.predictions(problem.X_test, problem.Y_test)
    assert ((predicted.top_probability >= 0) & (predicted.top_probability <= 1)).all()
    counts = np.bincount(problem.Y.indices, minlength=5)
    assert "ece_top" in evaluate(problem.Y_test, predicted, label_counts=counts, n_train=96, bootstraps=0).metrics


# The command


@pytest.fixture
def quick(monkeypatch, corpus):
    monkeypatch.setattr("smoothlink.demo.corpus.build_corpus", lambda: corpus)


@pytest.mark.usefixtures("quick")
def test_the_demo_shows_metrics_next_to_the_baseline_and_answers(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    ran = succeed("demo")
    for key in parts.COMPARED:
        assert sum(line.split()[:1] == [key] for line in ran.out.splitlines()) == 1
    for word in ("baseline", "90 % interval", "120 docstrings", "smoothlink demo", "s in all"):
        assert word in ran.out
    for sentence in parts.SENTENCES:
        assert sentence in ran.out


@pytest.mark.usefixtures("quick")
def test_a_sentence_is_labelled_with_or_without_quotes():
    quoted, bare = (succeed("demo", "--json", *words).json for words in (["read csv"], ["read", "csv"]))
    assert quoted["sentences"] == bare["sentences"]
    [found] = quoted["sentences"]
    assert found["sentence"] == "read csv"
    assert found["labels"][0]["label"] == "csv"
    assert quoted.keys() == {"sentences", "seconds"}
    shown = succeed("demo", "--quiet", "read [csv]")
    assert shown.err == ""
    assert "read [csv]" in shown.out
    assert "docstrings" not in shown.out


@pytest.mark.usefixtures("quick")
def test_a_sentence_of_unknown_words_is_said_to_be_one():
    assert "none of these words" in run("demo", "xyzzy").err


@pytest.mark.usefixtures("quick")
def test_json_holds_both_models_and_all_answers():
    found = succeed("demo", "--json").json
    assert found.keys() == {"smoothlink", "baseline", "sentences", "seconds"}
    for name in ("smoothlink", "baseline"):
        assert found[name].keys() == set(parts.COMPARED)
        assert found[name]["p@1"].keys() == {"value", "low", "high"}
    assert [answer["sentence"] for answer in found["sentences"]] == list(parts.SENTENCES)


@pytest.mark.slow
def test_the_whole_demo_beats_its_baseline_in_the_time_it_may_take():
    found = succeed("demo", "--json").json
    ours, theirs = found["smoothlink"], found["baseline"]
    assert ours["p@1"]["value"] > 0.85
    for key in ("p@1", "ndcg@5", "micro_f1", "macro_f1_alg4"):
        assert ours[key]["value"] > theirs[key]["value"]
    likely = [{label["label"] for label in answer["labels"][:3]} for answer in found["sentences"]]
    assert {"scipy", "sparse"} <= likely[0]
    assert {"sklearn", "ensemble"} <= likely[1]
    assert found["seconds"] < 120  # half of that on two idle cores


def test_saved_docstrings_are_read_as_texts_with_their_labels(corpus, monkeypatch, tmp_path):
    monkeypatch.setattr("smoothlink.demo.corpus.build_corpus", lambda: corpus)
    assert succeed("demo", "--save", tmp_path / "docs.jsonl", "--json").json["documents"] == len(corpus.texts)
    seen = succeed("info", tmp_path / "docs.jsonl", "--json").json
    assert seen["rows"] == len(corpus.texts)
    assert seen["labels"] == len(corpus.label_names)
    assert run("demo", "a question", "--save", tmp_path / "docs.jsonl").code == 2


def test_docstrings_that_cannot_all_be_written_leave_the_older_file(corpus, tmp_path):
    path = tmp_path / "docs.jsonl"
    path.write_text("older\n")
    with pytest.raises(UnicodeEncodeError):
        corpus._replace(texts=[*corpus.texts[:-1], "\ud800"]).save(path)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("docs.jsonl", "older\n")]
