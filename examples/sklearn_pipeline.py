"""Train on texts in a scikit-learn pipeline, and search its parameters by GridSearchCV.

python examples/sklearn_pipeline.py
"""

from sklearn.metrics import f1_score, make_scorer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline

from smoothlink import Gaussian, SmoothLinkClassifier, TextFeatures
from smoothlink.demo.corpus import build_corpus


def main() -> None:
    corpus = build_corpus()  # docstrings, labelled by the parts of their modules' names
    texts, Y = corpus.texts[::4], corpus.labels[::4]
    used = Y.sum(axis=0) > 0
    texts_train, texts_test, Y_train, Y_test = train_test_split(texts, Y[:, used], random_state=0)

    pipeline = make_pipeline(TextFeatures(word_ngrams=(1, 1)), SmoothLinkClassifier(kernel=Gaussian(), effort="quick"))
    grid = {"textfeatures__sublinear_tf": [True, False], "smoothlinkclassifier__kernel__features": [200, 400]}
    micro_f1 = make_scorer(f1_score, average="micro", zero_division=0)
    search = GridSearchCV(pipeline, grid, scoring=micro_f1, cv=2).fit(texts_train, Y_train)

    print(f"best parameters: {search.best_params_}")
    print(f"micro-F1 in cross-validation {search.best_score_:.3f}, on test rows {search.score(texts_test, Y_test):.3f}")


if __name__ == "__main__":
    main()
