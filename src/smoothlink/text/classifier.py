"""TextSmoothLink: documents in, label names out, in scikit-learn's manner."""

from __future__ import annotations

import hashlib
import inspect
import warnings
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal, Self, overload

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from smoothlink import modelfile as persist
from smoothlink.choices import ShortHtml, check_names
from smoothlink.conformal import DELTA, Conformal, Review
from smoothlink.distributed import current
from smoothlink.errors import DataError, plural
from smoothlink.estimator import FIRST_ROWS, SmoothLinkClassifier, number_of_rows
from smoothlink.fitting.holdout import conformal_rows
from smoothlink.labels import NamedLabels, names_of, read_labels
from smoothlink.living.changes import Batch, forget, update
from smoothlink.living.refresh import differences, removed_labels, selected_parameters, take_over
from smoothlink.machines.copies import RowContents, group_numbers, notable, row_hashes
from smoothlink.metrics.evaluate import Evaluation
from smoothlink.parameters import Values, check_value
from smoothlink.scikit_learn import BaseEstimator, available_if, check_is_fitted
from smoothlink.text.data_frames import TextColumns, column_names, list_names, ranked_frame, read_texts, values_of
from smoothlink.text.documents import TABLE, DocumentSource, as_meta, from_meta
from smoothlink.text.examples import TrainingExample, shorten_text, some_examples
from smoothlink.text.features import TextFeatures
from smoothlink.text.label_cells import NONE, guess_separator, shown, unlikely_labels
from smoothlink.text.model_section import section
from smoothlink.types import FilePath, Frame, LabelMatrix, Labels, RowGroups, Texts, Weights
from smoothlink.vocabulary import Vocabulary

Array = NDArray[Any]


def _options(kind: type[BaseEstimator]) -> dict[str, inspect.Parameter]:
    own = inspect.signature(kind.__init__).parameters
    return {name: p.replace(kind=p.KEYWORD_ONLY) for name, p in own.items() if name != "self"}


class TextSmoothLink(ShortHtml, BaseEstimator):
    """A classifier of documents: TF-IDF features and a SmoothLinkClassifier, saved together in one file.

    Parameters
    ----------
    examples : int, default=8
        Short training texts kept in the model, cut to 500 characters, to show what it was made for; 0: none.
    label_separator : str, default="auto"
        What separates labels that come as one text for each document: "," for "a, b". "none": such a text is one label;
        "list": it spells a list, "['a', 'b']". "auto" guesses and warns of what it guessed, or that it cannot tell.
    **options
        Every parameter of `TextFeatures` and of `SmoothLinkClassifier`, by the same name and with the same default.

    Attributes
    ----------
    features_ : TextFeatures
    classifier_ : SmoothLinkClassifier
    classes_ : the label names, in the order of the classifier's columns.
    vocabulary_ : names of the labels in a controlled vocabulary (`set_vocabulary`), or None.
    examples_ : a few training texts with their labels.
    source_ : the columns of the text and the separator of the labels of the files or the table that it was trained on,
        or None.
    conformal_ : what guarantees are computed from (`conformal`, `recalibrate_sets`), or None.
    label_form_ : what the labels were and `predict` returns: "lists" of names, or a "dense" or "sparse" 0/1 matrix.
    """

    def __init__(self, *, examples: int = 8, label_separator: str = "auto", **options: Any) -> None:
        known = {**_options(TextFeatures), **_options(SmoothLinkClassifier)}
        strange = sorted(options.keys() - known.keys())
        if strange:
            raise TypeError(f"TextSmoothLink has no parameter {', '.join(strange)}; it has {', '.join(sorted(known))}.")
        self.examples = examples
        self.label_separator = label_separator
        for name, parameter in known.items():
            setattr(self, name, options.get(name, parameter.default))

    # scikit-learn reads the names of the parameters from the signature.
    __init__.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            inspect.Parameter("examples", inspect.Parameter.KEYWORD_ONLY, default=8),
            inspect.Parameter("label_separator", inspect.Parameter.KEYWORD_ONLY, default="auto"),
            *_options(TextFeatures).values(),
            *_options(SmoothLinkClassifier).values(),
        ]
    )

    def set_params(self, **params: Any) -> Self:
        """Sets parameters, as in scikit-learn; `device` reaches a model that is fitted."""
        check_names(self, params)
        super().set_params(**params)
        if hasattr(self, "classifier_") and "device" in params:
            self.classifier_.set_params(device=params["device"])
        return self

    def fit(
        self, texts: Texts, labels: Labels, sample_weight: Weights | None = None, groups: RowGroups | None = None
    ) -> Self:
        """Fits to texts and their labels.

        Texts are a list, a column, or a table of nothing but columns of text, which are joined by line ends. Labels
        are a list of names for each text, one name each, names in one text (`label_separator`), or a 0/1 matrix; the
        columns of a data frame of 0 and 1 name the labels.

        Texts that are nearly the same and have the same labels are held out together when settings are chosen and the
        model is calibrated, where they are more than 3 % of all. With groups (n,), one value for each text, it is texts
        of the same group, such as an author.
        """
        if type(self.examples) is not int or self.examples < 0:
            raise ValueError(f"examples is {self.examples!r}; possible are 0 and more.")
        if not isinstance(self.label_separator, str) or not self.label_separator:
            raise ValueError(
                f"label_separator is {self.label_separator!r}; possible are 'auto', 'none', 'list' and the text "
                "between labels, such as ','."
            )
        labels = labels_in(labels)
        found = texts_to_learn(texts, labels)
        texts = found.texts if isinstance(found.texts, Sequence) else list(found.texts)
        separator = self._separator(labels)
        given = read_labels(labels, separator=separator)
        form = "lists" if isinstance(labels, list) else "sparse" if sp.issparse(labels) else "dense"
        if self.label_separator == "auto" and isinstance(labels, list):
            for note in unlikely_labels(labels, separator):
                warnings.warn(note, UserWarning, stacklevel=2)
        if len(texts) != given.Y.shape[0]:
            raise DataError(
                f"There are {plural(len(texts), 'text')} and labels for {given.Y.shape[0]}.\nPass labels for each text."
            )
        classifier, features = self._learn(texts, given, sample_weight, groups)
        source = DocumentSource(TABLE, found.columns, separator=separator)
        self._keep(classifier, features, some_examples(texts, given, self.examples))
        self.label_form_ = form
        self.source_ = None if source == DocumentSource(TABLE) else as_meta(source)
        return self

    def _learn(
        self,
        texts: Sequence[str],
        given: NamedLabels,
        sample_weight: Weights | None,
        groups: RowGroups | None,
        former: TextSmoothLink | None = None,
    ) -> tuple[SmoothLinkClassifier, TextFeatures]:
        """Returns a classifier and features fitted to texts and their labels; former: a fitted model whose settings are
        taken, where they would be selected."""
        parameters = {name: getattr(self, name) for name in _options(SmoothLinkClassifier)}
        if former is not None:
            parameters = selected_parameters(former.classifier_, len(given.names))
        classifier = SmoothLinkClassifier(**parameters)
        for hook in ("_notify", "_note"):
            setattr(classifier, hook, getattr(self, hook, None))
        apart: tuple[list[Any], sp.csr_array] | None = None
        if self.conformal:  # neither words nor their weights are learnt from these texts
            seed = classifier._request(cluster=current() is not None).seed
            contents = RowContents(text_hashes(texts), row_hashes(given.Y))
            near = group_numbers(groups, len(texts)) if groups is not None else self._near_duplicates(texts, contents)
            held = conformal_rows(contents, float(self.conformal), seed, near)
            weighted = np.ones(len(texts)) if sample_weight is None else np.asarray(sample_weight)
            used, kept = held.used[weighted[held.used] > 0], np.flatnonzero(~held.taken)
            apart = [texts[i] for i in used.tolist()], given.Y[used]
            texts, given = [texts[i] for i in kept.tolist()], given._replace(Y=given.Y[kept])
            groups = None if groups is None or near is None else near[kept]
            sample_weight = None if sample_weight is None else weighted[kept]
        features = TextFeatures(**{name: getattr(self, name) for name in _options(TextFeatures)})
        kinds = None if former is None else former.features_
        X = features.fit_transform(texts, None if self.effort == "quick" else given.Y, kinds)
        if groups is None:
            groups = self._near_duplicates(texts, RowContents.of(X, given.Y))
        classifier.conformal = 0.0
        classifier.fit(X, given.Y, sample_weight=sample_weight, groups=groups)
        classifier.conformal = self.conformal
        if apart is not None:
            classifier._set_conformal(features.transform(apart[0]), apart[1])
        classifier.label_names_ = given.names
        if features.hashing is None:
            classifier.summary_["ngrams"] = features.description
            classifier.summary_["chosen_by"]["ngrams"] = features.chosen_by_
        return classifier, features

    def _near_duplicates(self, texts: Sequence[str], contents: RowContents) -> Array | None:
        """Returns the groups (n,) of texts that are nearly the same, where they are many."""
        from smoothlink.text.near_duplicates import groups_of_texts  # numba takes time to load

        return notable(groups_of_texts(texts, contents))

    def update(self, texts: Texts, labels: Labels, sample_weight: Weights | None = None) -> Self:
        """Adds texts to a model that was fitted with updatable=True, as SmoothLinkClassifier.update does; labels
        unknown so far are added. `summary_["living"]` has a report, also of the share of words that have no feature."""
        texts, batch = self._batch(texts, labels, sample_weight)
        outcome = update(self.classifier_, batch)
        outcome["unknown_words"] = self.features_.unknown_share(texts)
        return self

    def forget(self, texts: Texts, labels: Labels) -> Self:
        """Removes texts, with all of their labels, as SmoothLinkClassifier.forget does; words that no other text has
        and examples of these texts go too."""
        texts, batch = self._batch(texts, labels, None)
        outcome = forget(self.classifier_, batch)
        gone = np.array(outcome["features_removed"], np.int64)
        if len(gone):
            self.features_.remove_terms(gone)
        cut = {shorten_text(str(text)) for text in texts}
        self.examples_ = [example for example in self.examples_ if example.text not in cut]
        return self

    def add_labels(self, names: Iterable[str]) -> Self:
        """Adds labels that no text has yet; the predictions of others stay as they are."""
        check_is_fitted(self)
        self.classifier_.add_labels([names] if isinstance(names, str) else list(names))
        return self

    def refresh(
        self, texts: Texts, labels: Labels, sample_weight: Weights | None = None, groups: RowGroups | None = None
    ) -> Self:
        """Fits the model anew to all texts that it is to have, vocabulary and idf included, with the settings that its
        fit selected, as SmoothLinkClassifier.refresh does; labels and groups as in `fit`."""
        check_is_fitted(self)
        texts, given = list(self._texts(texts)), self._read_labels(labels)
        if not texts or len(texts) != given.Y.shape[0]:
            what = plural(len(texts), "text")
            raise DataError(f"There are {what} and labels for {given.Y.shape[0]}.\nPass texts, and labels for each.")
        kept, former = np.flatnonzero(~removed_labels(given.names)), self.classifier_
        left = NamedLabels(sp.csr_array(given.Y[:, kept]), [given.names[j] for j in kept.tolist()])
        classifier, features = self._learn(texts, left, sample_weight, groups, self)
        take_over(classifier, former)
        outcome = differences(classifier, former, self.features_.transform(texts), given.Y, given.names)
        outcome["features"] = {"before": self.features_.n_columns, "after": features.n_columns}
        self.classifier_, self.features_ = classifier, features
        self.examples_ = some_examples(texts, left, self.examples)
        return self

    @available_if(lambda self: self.updatable)
    def partial_fit(
        self, texts: Texts, labels: Labels, classes: Iterable[str] | None = None, sample_weight: Weights | None = None
    ) -> Self:
        """Fits to the first texts, and adds later ones as `update` does; classes: all names of labels, if the first
        texts lack some."""
        if hasattr(self, "classifier_"):
            return self.update(texts, labels, sample_weight)
        count = number_of_rows(texts)
        if count < FIRST_ROWS:
            raise ValueError(
                f"The first call of partial_fit has {plural(count, 'text')}, from which no vocabulary and no "
                f"embedding can be learnt; pass at least {FIRST_ROWS}, and others one by one later."
            )
        self.fit(texts, labels, sample_weight)
        new = [name for name in classes or () if name not in set(self.classes_)]
        return self.add_labels(new) if new else self

    def _batch(self, texts: Texts, labels: Labels, sample_weight: Weights | None) -> tuple[list[str], Batch]:
        """Returns texts, and their checked rows as updates take them."""
        check_is_fitted(self)
        texts = list(self._texts(texts))
        X, given, known = self.features_.transform(texts), self._read_labels(labels), len(self.classes_)
        batch = self.classifier_._batch(X, given.Y, sample_weight)
        return texts, batch._replace(names=given.names[known:])

    def _separator(self, labels: Any) -> str | None:
        """Returns what separates labels in cells of text: the parameter, or a guess, with a warning that says so."""
        if self.label_separator != "auto":
            return self.label_separator
        guess = guess_separator(labels if isinstance(labels, list) else [])
        if not guess.clear:
            warnings.warn(
                f"It is not clear whether {guess.mark!r} separates labels in {shown(guess.cells)}: each is one label "
                f"here. Pass label_separator={guess.mark!r} if it does, label_separator='none' if not.",
                UserWarning,
                stacklevel=3,
            )
            return NONE
        if note := guess.described("label_separator="):
            warnings.warn(note, UserWarning, stacklevel=3)
        return guess.separator

    def _read_labels(self, labels: Any) -> NamedLabels:
        """Returns the labels of test rows, separated as those in training."""
        labels, trained = labels_in(labels), from_meta(self.source_)
        separator = None if trained is None else trained.separator
        return read_labels(labels, self.classes_.tolist(), separator or self._separator(labels))

    classifier_: SmoothLinkClassifier
    features_: TextFeatures
    source_: dict[str, Any] | None
    label_form_: str
    examples_: list[TrainingExample]

    def _keep(self, classifier: SmoothLinkClassifier, features: TextFeatures, examples: list[TrainingExample]) -> Self:
        self.classifier_, self.features_, self.examples_ = classifier, features, examples
        self.source_, self.label_form_ = None, "lists"
        return self

    @property
    def classes_(self) -> Array:
        return np.array(self.classifier_.label_names_, dtype=object)

    @property
    def summary_(self) -> dict[str, Any]:
        return self.classifier_.summary_

    @property
    def vocabulary_(self) -> Vocabulary | None:
        return self.classifier_.vocabulary_

    def set_vocabulary(self, vocabulary: Vocabulary | FilePath | None) -> Self:
        """Gives the labels the names of a controlled vocabulary, as SmoothLinkClassifier.set_vocabulary does."""
        check_is_fitted(self)
        self.classifier_.set_vocabulary(vocabulary)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "classifier_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags

    def transform(self, texts: Texts) -> sp.csr_array:
        """X, as `classifier_` takes it; of a table the columns that the model was trained on are read."""
        if not hasattr(self, "classifier_"):
            check_is_fitted(self)
        return self.features_.transform(self._texts(texts))

    def get_feature_names_out(self, input_features: object = None) -> Array:
        """Returns the n-gram of each column of `transform`, as `TextFeatures` does."""
        check_is_fitted(self)
        return self.features_.get_feature_names_out()

    def _texts(self, texts: Texts) -> Iterable[Any]:
        """Returns the texts of a list, or of a table by the columns that the model was trained on."""
        trained = from_meta(self.source_)
        return read_texts(texts, () if trained is None else trained.columns).texts

    @property
    def thresholds_(self) -> Array:
        return self.classifier_.thresholds_

    def predict(self, texts: Texts, threshold: ArrayLike | None = None) -> list[list[str]] | LabelMatrix:
        """Returns the names of each text whose probability is at least a threshold, as SmoothLinkClassifier.predict
        does; multiclass: the one best.

        A model of a 0/1 matrix returns such a matrix, sparse if it was.
        """
        return self._named(self.transform(texts), "predict", threshold=threshold)

    def predict_f1(self, texts: Texts, over: str = "auto") -> list[list[str]] | LabelMatrix:
        """Returns names for a high F1 of each label (Algorithm 4), or a 0/1 matrix, as `predict`; over: as
        SmoothLinkClassifier.predict_f1."""
        return self._named(self.transform(texts), "predict_f1", over=over)

    def predict_set(
        self,
        texts: Texts,
        *,
        coverage: float | None = None,
        recall: float | None = None,
        label_groups: ArrayLike | None = None,
    ) -> list[list[str]] | LabelMatrix:
        """Returns names with a guarantee, or a 0/1 matrix, as `predict`; coverage, recall and label_groups: as
        SmoothLinkClassifier.predict_set, the groups in the order of classes_."""
        given: dict[str, Any] = {"coverage": coverage, "recall": recall, "label_groups": label_groups}
        return self._named(self.transform(texts), "predict_set", **given)

    def review(self, texts: Texts, *, precision: float = 0.95, delta: float = DELTA) -> Review:
        """Returns which texts may be released without a person, and a queue of the others, the least certain first, as
        SmoothLinkClassifier.review."""
        return self.classifier_.review(self.transform(texts), precision=precision, delta=delta)

    def recalibrate_sets(self, texts: Texts, labels: Labels, groups: RowGroups | None = None) -> Self:
        """Computes guarantees anew from labelled texts that were used for nothing else, as
        SmoothLinkClassifier.recalibrate_sets; labels as in `fit`, those unknown to the model count as missed."""
        X, Y = self.transform(texts), self._read_labels(labels).Y
        self.classifier_.recalibrate_sets(X, Y, groups)
        return self

    @property
    def conformal_(self) -> Conformal | None:
        return self.classifier_.conformal_

    def _named(self, X: sp.csr_array, method: str, **given: Any) -> list[list[str]] | Array | sp.csr_array:
        """Returns the sets that a method of the classifier predicts, in the form that the labels had in training."""
        if X.shape[0]:
            sets = sp.csr_array(getattr(self.classifier_, method)(X, **given))
        else:
            sets = sp.csr_array((0, len(self.classes_)), dtype=np.float32)
        if self.label_form_ == "lists":
            return names_of(sets, self.classes_)
        return sets if self.label_form_ == "sparse" else sets.toarray()

    @overload
    def predict_topk(
        self, texts: Texts, k: int = ..., *, rank_by: str = ..., as_frame: Literal[False] = ...
    ) -> list[list[tuple[str, float]]]: ...

    @overload
    def predict_topk(self, texts: Texts, k: int = ..., *, rank_by: str = ..., as_frame: Literal[True]) -> Frame: ...

    def predict_topk(
        self, texts: Texts, k: int = 5, *, rank_by: str = "probability", as_frame: bool = False
    ) -> list[list[tuple[str, float]]] | Frame:
        """Returns the k best names of each text with their probabilities, the best first: a list of pairs for each.

        rank_by="psp" favours rare ones. as_frame=True: a data frame with lists of labels, of their names in the
        vocabulary if there is one, and of probabilities, one row for each text; of polars where the texts are, else of
        pandas with the index of the texts.
        """
        check_value("as_frame", as_frame, Values(flag=True))
        X = self.transform(texts)
        names, probabilities, ptr = [], [], [0]
        if X.shape[0]:
            best = self.classifier_.predict_topk(X, k=k, rank_by=rank_by)
            names, probabilities, ptr = self.classes_[best.indices].tolist(), best.data.tolist(), best.indptr.tolist()
        if as_frame:
            shown = None if self.vocabulary_ is None else self.vocabulary_.names(names)
            return ranked_frame(names, probabilities, ptr, texts, shown)
        pairs = list(zip(names, probabilities, strict=True))
        return [pairs[start:stop] for start, stop in pairwise(ptr)]

    def predict_proba(self, texts: Texts, labels: Iterable[str] | None = None) -> Array:
        """Returns probabilities (n, c) in the order of classes_, or of some labels, by name."""
        X = self.transform(texts)
        positions = None if labels is None else self.positions(labels)
        if not X.shape[0]:
            return np.zeros((0, len(self.classes_) if positions is None else len(positions)), np.float32)
        return self.classifier_.predict_proba(X, labels=positions)

    def positions(self, labels: Iterable[str]) -> list[int]:
        """Returns the places of label names in classes_."""
        check_is_fitted(self)
        place = {name: j for j, name in enumerate(self.classes_)}
        wanted = [labels] if isinstance(labels, str) else [str(name) for name in labels]
        unknown = [name for name in wanted if name not in place]
        if unknown:
            raise DataError(f"The model knows no label {unknown[0]!r}; it has {len(place)}, in classes_.")
        return [place[name] for name in wanted]

    def evaluate(
        self,
        texts: Texts,
        labels: Labels,
        *,
        threshold: ArrayLike | None = None,
        bootstraps: int = 1000,
        seed: int = 0,
        rank_by: str = "probability",
        groups: RowGroups | None = None,
    ) -> Evaluation:
        """All metrics with 90 % intervals; labels as in `fit`, those unknown to the model count as misses.

        groups: as in `fit`; intervals are over draws of groups, or of texts that are not copies of others.
        """
        X, Y = self.transform(texts), self._read_labels(labels).Y
        given: dict[str, Any] = {"bootstraps": bootstraps, "seed": seed, "rank_by": rank_by, "groups": groups}
        return self.classifier_.evaluate(X, Y, threshold=threshold, **given)

    def score(self, texts: Texts, labels: Labels) -> float:
        """Returns Micro-F1 of `predict`, which for one label per row is the accuracy."""
        predicted = sp.csr_array(self.classifier_.predict(self.transform(texts)))
        truth = self._read_labels(labels).Y
        hits = predicted.multiply(truth[:, : predicted.shape[1]]).sum()
        return float(2 * hits / max(1, predicted.sum() + truth.sum()))

    def save(self, path: FilePath, dtype: str | None = None, prune: float = 0.0) -> None:
        """Writes features and classifier to one safetensors file; dtype and prune as in SmoothLinkClassifier.save."""
        check_is_fitted(self)
        persist.save(self.classifier_, path, dtype, prune, text=section(self))


def text_hashes(texts: Sequence[str]) -> Array:
    """Returns a hash (n,) of each text with the numbers beside it; 0 for texts without a character, which are copies of
    none."""

    def one(text: str) -> int:
        numbers = getattr(text, "numbers", None)
        content = f"{text}\0{'' if numbers is None else list(numbers)}".encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest()) if text.strip() else 0

    return np.array([one(text) for text in texts], np.uint64)


def labels_in(labels: Any) -> Any:
    """Returns the labels of each row in a list; matrices and tables as they are."""
    return labels if getattr(labels, "ndim", 1) != 1 or column_names(labels) is not None else list(values_of(labels))


def texts_to_learn(texts: Any, labels: Any) -> TextColumns:
    """Returns the texts, of a table those of all its columns, each of which must hold text, and not the labels."""
    if isinstance(texts, str | bytes):
        raise DataError("One text was passed where a list of texts is needed.\nPass [text].")
    names = column_names(texts) or []
    remedy = "Pass only columns of text, such as table[['title', 'body']] or table['text']."
    found = read_texts(texts, [str(name) for name in names])
    for name in names:
        column = list(values_of(texts[name]))
        other = next((v for v in column if not isinstance(v, str) and v is not None and v == v), None)
        if other is not None:
            what = f"{other!r:.60}, of type {type(other).__name__}"
            raise DataError(f"The column {name} of {list_names(names)} holds {what}, not text.\n{remedy}")
        if isinstance(labels, list) and column == [cell if isinstance(cell, str) else None for cell in labels]:
            raise DataError(f"The column {name} of {list_names(names)} holds the labels, not text.\n{remedy}")
    return found
