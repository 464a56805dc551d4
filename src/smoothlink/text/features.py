"""Documents -> X: TF-IDF of word and character n-grams, by vocabulary or by hashing.

scikit-learn finds the n-grams and the vocabulary. This module makes the rows: scikit-learn's `transform` takes
0.3 ms for a title, most of it checks, where the server has 3 ms for everything.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.errors import DataError, ModelFileError
from smoothlink.safetensors_file import pack_names, unpack_names
from smoothlink.scikit_learn import BaseEstimator, TransformerMixin, check_is_fitted, deferred, murmurhash3_32
from smoothlink.steps.reference import BINS, UnknownWords
from smoothlink.text.choose_ngrams import SHORT_TEXT, Ngrams, choose_ngrams
from smoothlink.text.data_frames import read_texts
from smoothlink.text.numbers import Document, NumberScale, noting

Array = NDArray[Any]
Analyzer = Callable[[str], list[str]]

TOKEN = r"(?u)\b\w\w+\b"  # scikit-learn's: words of two characters and more
# By held-out rows of four training sets (docs/text.md): characters help short texts, change little for long ones and
# cost those time; pairs of words help one set of three.
SINGLE_WORDS, WORDS, CHARACTERS = (1, 1), (1, 2), (3, 5)
LEAST_NGRAMS, NGRAMS_PER_TEXT, MOST_NGRAMS = 30_000, 2, 200_000  # of each kind: at least, for each text, at most
FEW_DOCUMENTS = 1000  # documents: with fewer, an n-gram that occurs once is kept
TEXTS_SAMPLED = 10_000  # texts that say whether they are short
KINDS = {"words": "word", "characters": "char_wb"}


DERIVED = ("_ready", "_words")  # attributes that are made when they are first needed
UNKNOWN_SAMPLED = 1000  # training texts, and up to twice as many, that say how many words of a text are unknown


class KnownWords(NamedTuple):
    """The words that have a column each, and how a text becomes words."""

    columns: dict[str, int]
    analyse: tuple[Callable[[str], str], Analyzer]


class NgramBlock(NamedTuple):
    """One kind of n-grams and the columns it has."""

    kind: str  # a key of KINDS
    ngrams: tuple[int, int]
    terms: list[str] | None  # in the order of their columns; None: hashed
    width: int
    share: float = 0.5  # of the squared length of a row, where there are two kinds


class TextFeatures(TransformerMixin, BaseEstimator):
    """TF-IDF rows of documents, each kind of n-grams scaled to unit length.

    Parameters
    ----------
    word_ngrams : "auto", (int, int) or None, default="auto"
        Shortest and longest run of words that is a feature; None: no words. "auto": single words and pairs, or
        single words where held-out texts say that pairs add little.
    char_ngrams : "auto", (int, int) or None, default="auto"
        The same of characters within words, which help with short texts, many word forms and misspellings. "auto":
        (3, 5) where the median text has less than 250 characters, else words only; where there are labels, 600 texts
        or more and at most 20,000, held-out texts decide, also how much of a row they are.
    min_df : "auto" or int, default="auto"
        Documents that an n-gram must be in; "auto": 2, or 1 where documents are fewer than 1000.
    max_features : "auto", int or None, default="auto"
        The most frequent n-grams of either kind that are kept; "auto": two per text, at least 30,000, at most 200,000.
    sublinear_tf : bool, default=True
        Whether a count n becomes 1 + ln(n).
    use_idf : bool, default=True
        Whether rare n-grams count more: ln((1 + rows) / (1 + rows with it)) + 1.
    lowercase : bool, default=True
        Whether capitals are small letters.
    strip_accents : {None, "unicode", "ascii"}, default=None
        Whether accents are dropped.
    token_pattern : str, default=r"(?u)\\b\\w\\w+\\b"
        What a word is.
    hashing : int or None, default=None
        Columns that n-grams are hashed to, of either kind: no vocabulary is kept, so that memory does not grow with
        the text; then `min_df` and `max_features` do not apply. 2**18 are plenty for most.
    """

    def __init__(
        self,
        *,
        word_ngrams: tuple[int, int] | str | None = "auto",
        char_ngrams: tuple[int, int] | str | None = "auto",
        min_df: int | str = "auto",
        max_features: int | str | None = "auto",
        sublinear_tf: bool = True,
        use_idf: bool = True,
        lowercase: bool = True,
        strip_accents: str | None = None,
        token_pattern: str = TOKEN,
        hashing: int | None = None,
    ) -> None:
        self.word_ngrams = word_ngrams
        self.char_ngrams = char_ngrams
        self.min_df = min_df
        self.max_features = max_features
        self.sublinear_tf = sublinear_tf
        self.use_idf = use_idf
        self.lowercase = lowercase
        self.strip_accents = strip_accents
        self.token_pattern = token_pattern
        self.hashing = hashing

    unknown_: UnknownWords | None  # how many words of a training text the others lack; None without a vocabulary

    def fit(self, texts: Iterable[str], y: object = None) -> Self:
        """Learns the vocabulary and how rare its n-grams are."""
        self.fit_transform(texts)
        return self

    def fit_transform(
        self, texts: Iterable[str], y: object = None, like: TextFeatures | None = None, **given: Any
    ) -> sp.csr_array:
        """`fit`, then `transform` of the same texts, looking at each once; with `hashing` they may be a stream.

        Where y is a sparse 0/1 matrix of labels, held-out texts choose what is "auto"; like: features that were fitted
        before, whose kinds of n-grams are taken.
        """
        numbers: list[Array | None] = []
        texts = noting(checked(texts), numbers)
        if self.hashing is not None:
            first, texts = ahead(iter(texts), TEXTS_SAMPLED)
            wanted = self._wanted(first) if like is None else spans(like.ngrams)
            self._keep([NgramBlock(kind, ngrams, None, self.hashing) for kind, ngrams in wanted.items()])
            C = self._counts(texts)
        else:
            documents = list(texts)
            chosen = like.ngrams if like is not None else self._chosen(documents, y) if sp.issparse(y) else None
            self.chosen_by_: str = "rule" if chosen is None else "held-out texts"
            wanted = self._wanted(documents[:TEXTS_SAMPLED]) if chosen is None else spans(chosen)
            C = self._learnt(wanted, documents, 0.5 if chosen is None else chosen.char_share)
        if not C.shape[1]:
            raise DataError("No text has an n-gram to learn from.\nPass texts with words in them, or another min_df.")
        n, df = C.shape[0], np.bincount(C.indices, minlength=C.shape[1])
        if self.use_idf:
            self._keep(self.blocks_, (np.log((1 + n) / (1 + df)) + 1).astype(np.float32))
        if self._known_words() is not None:
            some = documents[:: max(1, n // UNKNOWN_SAMPLED)]
            self.unknown_ = UnknownWords.of(self.unknown_words(some, self._rare(C, df)))
        self.numbers_: NumberScale | None = NumberScale.of(numbers)
        return self._with_numbers(self._weighed(C), numbers)

    def _with_numbers(self, X: sp.csr_array, numbers: list[Array | None]) -> sp.csr_array:
        """Returns the features of texts, with those of the numbers beside them where a model has them."""
        if self.numbers_ is None:
            return X
        both = sp.csr_array(sp.hstack([X, self.numbers_.features(numbers)], format="csr"))
        both.data *= np.float32(0.5**0.5)  # so that the row has unit length
        both.sort_indices()
        return both

    def _chosen(self, documents: list[str], Y: Any) -> Ngrams | None:
        """Returns the n-grams that held-out texts choose, of those that are "auto"; None where a rule decides."""
        if self.word_ngrams is None or "auto" not in (self.word_ngrams, self.char_ngrams):
            return None
        given = span("word_ngrams", None if self.word_ngrams == "auto" else self.word_ngrams)
        characters = [None, CHARACTERS] if self.char_ngrams == "auto" else [span("char_ngrams", self.char_ngrams)]

        def vectorize(ngrams: Ngrams, texts: list[str], others: list[str]) -> tuple[sp.csr_array, sp.csr_array]:
            options = self.get_params() | {"word_ngrams": ngrams.words, "char_ngrams": ngrams.characters}
            features = TextFeatures(**options)
            texts, others = [str(text) for text in texts], [str(text) for text in others]
            return features.fit_transform(texts), features.transform(others)

        words = [SINGLE_WORDS, WORDS] if given is None else [given]
        return choose_ngrams(documents, sp.csr_array(Y), vectorize, words, characters)

    def _learnt(
        self, wanted: dict[str, tuple[int, int]], documents: list[str], char_share: float = 0.5
    ) -> sp.csr_array:
        """Returns counts (n, d) of n-grams, and keeps their vocabulary."""
        blocks, counts = [], []
        for kind, ngrams in wanted.items():
            vectorizer = self._vectorizer(kind, ngrams, **self._limits(len(documents)))
            counts.append(_counted(vectorizer, documents))
            terms = vectorizer.get_feature_names_out().tolist() if counts[-1].shape[1] else []
            share = char_share if kind == "characters" else 1 - char_share
            blocks.append(NgramBlock(kind, ngrams, terms, len(terms), share))
        self._keep(blocks)
        C = sp.csr_array(sp.hstack(counts, format="csr"))
        C.sort_indices()
        return C

    def transform(self, texts: Iterable[str]) -> sp.csr_array:
        """Returns X (n, d), float32, indices sorted; the length of a row is 1, or 0 where nothing in it is known."""
        if not hasattr(self, "blocks_"):
            check_is_fitted(self)
        if self.numbers_ is None:
            return self._weighed(self._counts(without_numbers(checked(texts))))
        numbers: list[Array | None] = []
        C = self._counts(noting(with_numbers(checked(texts), len(self.numbers_.mean)), numbers))
        return self._with_numbers(self._weighed(C), numbers)

    def unknown_words(self, texts: Iterable[str], rare: Array | None = None) -> Array:
        """Returns how many different words of each text have no column, and how many words it has (n, 2).

        Words of the columns that are `rare` (d,) count as unknown: those in so few training texts that the vocabulary
        of the others would lack them, which makes a training text count as a new one does.
        """
        known = self._known_words()
        if known is None:
            raise DataError("These features have no vocabulary of words, so that no word is unknown to them.")
        prepare, split = known.analyse
        found = array("i")
        for text in texts:
            words = set(split(prepare(text)))
            columns = [known.columns.get(word) for word in words]
            found.extend((sum(j is None or (rare is not None and rare[j]) for j in columns), len(words)))
        return np.array(found, np.int64).reshape(-1, 2)

    def _rare(self, C: sp.csr_array, df: Array) -> Array:
        """Returns which columns (d,) the vocabulary would lack without one of the texts that have them, from counts (n,
        d) and how many texts each is in (d,): those in too few texts, or not frequent enough to be kept."""
        limits, width = self._limits(C.shape[0]), self.blocks_[0].width
        rare = np.asarray(df <= limits["min_df"])
        if width == limits["max_features"]:
            total = np.bincount(C.indices, C.data, C.shape[1])[:width]
            rare[:width] |= total - total / np.maximum(df[:width], 1) < total.min()
        return rare

    def _known_words(self) -> KnownWords | None:
        """Returns the single words that have a column, made once; None where features are hashed or have none."""
        if not hasattr(self, "_words"):
            block = self.blocks_[0]
            vectorizer = self._vectorizer("words", (1, 1))
            analyse = vectorizer.build_preprocessor(), vectorizer.build_tokenizer()
            fits = block.kind == "words" and block.terms is not None and block.ngrams[0] == 1
            columns = {term: j for j, term in enumerate(block.terms or ()) if " " not in term}
            self._words = KnownWords(columns, analyse) if fits else None
        return self._words

    def terms(self, text: str) -> list[tuple[int, str]]:
        """Returns (column, n-gram) of each n-gram of a text that has a column, in the order of the text."""
        found, start = [], 0
        for block, analyse, place in self._analysers():
            found += [(start + at, term) for term in analyse(text) if (at := place(term)) is not None]
            start += block.width
        return found

    def unknown_share(self, texts: Iterable[str]) -> float | None:
        """Returns the share of the n-grams of texts that have no column: of words where they are features, else of
        characters; None where n-grams are hashed, so that all have one, or there are none."""
        block, analyse, place = self._analysers()[0]
        if block.terms is None:
            return None
        found = [place(term) is None for text in texts for term in analyse(text)]
        return float(np.mean(found)) if found else None

    def remove_terms(self, columns: Array) -> None:
        """Removes the n-grams of some columns, which stay empty: the others keep their numbers."""
        removed, blocks, start = set(columns.tolist()), [], 0
        for block in self.blocks_:
            terms = block.terms
            if terms is not None:
                terms = ["" if start + j in removed else term for j, term in enumerate(terms)]
            blocks.append(block._replace(terms=terms))
            start += block.width
        idf, numbers = self.idf_.copy(), self.numbers_
        idf[columns[columns < len(idf)]] = 0
        self._keep(blocks, idf)
        self.numbers_ = numbers

    @property
    def ngrams(self) -> Ngrams:
        """Returns which n-grams are features, and how much of a row those of characters are."""
        found = {block.kind: block for block in self.blocks_}
        words, characters = (found[kind].ngrams if kind in found else None for kind in KINDS)
        return Ngrams(words, characters, found["characters"].share if characters is not None else 0.5)

    @property
    def description(self) -> str:
        """Returns the kinds of n-grams in words, such as "words 1 to 2, characters 3 to 5 (75 %)"."""
        return ", ".join(
            f"{block.kind} {block.ngrams[0]} to {block.ngrams[1]}"
            + (f" ({100 * block.share:.0f} %)" if len(self.blocks_) > 1 else "")
            for block in self.blocks_
        )

    def get_feature_names_out(self, input_features: object = None) -> Array:
        """Returns the n-gram of each column; hashed columns, which many share, are called hash0, hash1, ..."""
        check_is_fitted(self)
        names: list[str] = []
        for block in self.blocks_:
            names += block.terms if block.terms is not None else [f"hash{len(names) + j}" for j in range(block.width)]
        names += [] if self.numbers_ is None else [f"number{j}" for j in range(len(self.numbers_.mean))]
        return np.array(names, dtype=object)

    @property
    def n_columns(self) -> int:
        """Returns d."""
        return self.n_ngrams + (0 if self.numbers_ is None else len(self.numbers_.mean))

    @property
    def n_ngrams(self) -> int:
        """Returns how many columns are n-grams; those of numbers follow."""
        return sum(block.width for block in self.blocks_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "blocks_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in DERIVED}

    # What "auto" means

    def _wanted(self, texts: list[str]) -> dict[str, tuple[int, int]]:
        """Returns the kinds of n-grams and their lengths, for texts such as these."""
        words = WORDS if self.word_ngrams == "auto" else span("word_ngrams", self.word_ngrams)
        if self.char_ngrams == "auto":
            short = not texts or np.median([len(text) for text in texts]) < SHORT_TEXT
            characters = CHARACTERS if short or words is None else None
        else:
            characters = span("char_ngrams", self.char_ngrams)
        if self.hashing is not None and (type(self.hashing) is not int or not 1 <= self.hashing < 1 << 31):
            raise ValueError(f"hashing is {self.hashing!r}; possible are None and a number of columns, such as 2**18.")
        found = {"words": words, "characters": characters}
        if not any(found.values()):
            raise ValueError("word_ngrams and char_ngrams are both None: there is no feature. Leave one at 'auto'.")
        return {kind: ngrams for kind, ngrams in found.items() if ngrams is not None}

    def _limits(self, n: int) -> dict[str, Any]:
        least = (1 if n < FEW_DOCUMENTS else 2) if self.min_df == "auto" else self.min_df
        most = self.max_features
        if most == "auto":
            most = min(max(LEAST_NGRAMS, NGRAMS_PER_TEXT * n), MOST_NGRAMS)
        for name, value in (("min_df", least), ("max_features", most)):
            if not (isinstance(value, int) and value >= 1) and not (name == "max_features" and value is None):
                raise ValueError(f"{name} is {value!r}; possible are 'auto' and a number from 1 on.")
        return {"min_df": least, "max_features": most}

    def _vectorizer(self, kind: str, ngrams: tuple[int, int], **limits: Any) -> Any:
        with deferred("scipy.stats"):
            from sklearn.feature_extraction.text import CountVectorizer
        return CountVectorizer(
            analyzer=KINDS[kind],
            ngram_range=ngrams,
            lowercase=self.lowercase,
            strip_accents=self.strip_accents,
            token_pattern=self.token_pattern if kind == "words" else None,
            dtype=np.float32,
            **limits,
        )

    def _keep(self, blocks: list[NgramBlock], idf: Array | None = None) -> None:
        self.blocks_: list[NgramBlock] = blocks
        self.numbers_ = None
        self.idf_: Array = np.zeros(0, np.float32) if idf is None else idf  # (d,), or empty
        self.unknown_ = None
        for name in DERIVED:
            self.__dict__.pop(name, None)

    def _analyses(self) -> bool:
        """Returns whether texts can be taken apart with these options; scikit-learn finds that out at the first."""
        try:
            groups = re.compile(self.token_pattern).groups
        except (re.error, TypeError, ValueError, RecursionError, OverflowError):
            return False
        return groups <= 1 and self.strip_accents in (None, "ascii", "unicode")

    # Rows

    def _analysers(self) -> list[tuple[NgramBlock, Analyzer, Callable[[str], int | None]]]:
        """Each block, how a text becomes n-grams, and how an n-gram becomes a column of the block; made once."""
        if not hasattr(self, "_ready"):
            self._ready = [
                (block, self._vectorizer(block.kind, block.ngrams).build_analyzer(), column_finder(block))
                for block in self.blocks_
            ]
        return self._ready

    def _counts(self, documents: Iterable[str]) -> sp.csr_array:
        """Returns how often each n-gram occurs in each text."""
        indices, counts, ptr = array("i"), array("f"), array("q", [0])
        analysers, d = self._analysers(), self.n_ngrams
        for text in documents:
            start = 0
            for block, analyse, place in analysers:
                found: dict[int, int] = {}
                for term in analyse(text):
                    at = place(term)
                    if at is not None:
                        found[at] = found.get(at, 0) + 1
                indices.extend([start + at for at in sorted(found)])
                counts.extend([found[at] for at in sorted(found)])
                start += block.width
            ptr.append(len(indices))
        joined = np.frombuffer(indices, np.int32) if indices else np.zeros(0, np.int32)
        data = np.frombuffer(counts, np.float32) if counts else np.zeros(0, np.float32)
        pointers = np.frombuffer(ptr, np.int64)
        pointers = pointers if len(indices) >= 1 << 31 else pointers.astype(np.int32)
        return sp.csr_array((data, joined, pointers), shape=(len(ptr) - 1, d))

    def _weighed(self, C: sp.csr_array) -> sp.csr_array:
        """Returns TF-IDF of counts: each block of a row of unit length, then the row."""
        x = C.data
        x = 1 + np.log(x) if self.sublinear_tf else np.array(x)
        if self.use_idf:
            x *= self.idf_[C.indices]
        n, parts = C.shape[0], len(self.blocks_)
        row = np.repeat(np.arange(n), np.diff(C.indptr)) if n > 1 else np.zeros(len(x), np.int64)
        if parts > 1:
            part = row * parts + (C.indices >= self.blocks_[0].width)
            x /= np.sqrt(np.bincount(part, x * x, n * parts))[part]
            if self.blocks_[0].share != self.blocks_[1].share:
                x *= np.sqrt([block.share for block in self.blocks_])[part % parts]
        x /= np.sqrt(np.bincount(row, x * x, n))[row]
        X = sp.csr_array((x.astype(np.float32, copy=False), C.indices, C.indptr), shape=C.shape)
        X.has_canonical_format = True
        return X

    # Without pickle

    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Returns arrays (names begin with `text_`) and JSON that `from_arrays` makes the same features of."""
        check_is_fitted(self)
        arrays: dict[str, Array] = {"text_idf": self.idf_}
        if self.numbers_ is not None:
            arrays |= {"text_number_mean": self.numbers_.mean, "text_number_deviation": self.numbers_.deviation}
        for block in self.blocks_:
            if block.terms is not None:
                arrays |= pack_names(block.terms, f"text_{block.kind}")
        if self.unknown_ is not None:
            arrays |= {"text_unknown": self.unknown_.texts, "text_unknown_words": self.unknown_.words}
        options = {name: list(v) if isinstance(v, tuple) else v for name, v in self.get_params().items()}
        blocks: list[dict[str, Any]] = []
        for block in self.blocks_:
            share = {} if block.share == 0.5 else {"share": block.share}
            blocks.append({"kind": block.kind, "ngrams": list(block.ngrams), "width": block.width, **share})
        return arrays, {"options": options, "blocks": blocks}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Returns the features of `to_arrays`; nothing is believed that does not fit together."""
        options: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in meta["options"].items()}
        features = cls(**options)
        if not features._analyses():
            raise ModelFileError(f"its text features have options that are not possible ({options}). Save it again.")
        blocks: list[NgramBlock] = []
        for stated in meta["blocks"]:
            kind, ngrams, width = stated["kind"], tuple(stated["ngrams"]), stated["width"]
            terms = None if features.hashing is not None else unpack_names(arrays, f"text_{kind}")
            fits = kind in KINDS and span("ngrams", ngrams) and kind not in [block.kind for block in blocks]
            share = stated.get("share", 0.5)
            fits = fits and isinstance(share, float) and 0 <= share <= 1
            if not fits or width != (features.hashing if terms is None else len(terms)):
                raise ModelFileError(f"its text features do not fit together ({stated}). Save the model again.")
            blocks.append(NgramBlock(kind, ngrams, terms, width, share))
        if not blocks:
            raise ModelFileError("it has no text features. Save the model again.")
        features._keep(blocks, arrays["text_idf"])
        if "text_number_mean" in arrays:
            features.numbers_ = NumberScale(arrays["text_number_mean"], arrays["text_number_deviation"])
            if features.numbers_.mean.ndim != 1 or features.numbers_.mean.shape != features.numbers_.deviation.shape:
                raise ModelFileError("the scales of its numbers do not fit together. Save the model again.")
        if "text_unknown" in arrays:
            features.unknown_ = UnknownWords(arrays["text_unknown"], arrays["text_unknown_words"])
            if features.unknown_.texts.shape != (BINS,) or features.unknown_.words.shape != (2,):
                raise ModelFileError("its shares of unknown words do not fit together. Save the model again.")
        if features.idf_.shape != ((features.n_ngrams,) if features.use_idf else (0,)):
            raise ModelFileError(f"its text features have {features.idf_.shape} weights. Save the model again.")
        return features


def spans(ngrams: Ngrams) -> dict[str, tuple[int, int]]:
    """Returns the kinds of n-grams and their lengths."""
    found = {"words": ngrams.words, "characters": ngrams.characters}
    return {kind: lengths for kind, lengths in found.items() if lengths is not None}


def ahead(texts: Iterator[str], count: int) -> tuple[list[str], Iterator[str]]:
    """Returns the first of a stream, and all of it."""
    first = list(islice(texts, count))
    return first, chain(first, texts)


def column_finder(block: NgramBlock) -> Callable[[str], int | None]:
    """Returns the column of an n-gram in its block; None where it has none."""
    if block.terms is not None:
        return {term: j for j, term in enumerate(block.terms) if term}.get  # those that were removed are empty
    width = block.width
    return lambda term: murmurhash3_32(term, 0, positive=True) % width


def span(name: str, value: Any) -> tuple[int, int] | None:
    """Returns (shortest, longest), or None."""
    if value is None:
        return None
    pair = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(pair) != 2 or not all(type(v) is int for v in pair) or not 1 <= pair[0] <= pair[1]:
        raise ValueError(f"{name} is {value!r}; possible are 'auto', None and a pair such as (1, 2).")
    return pair[0], pair[1]


def checked(texts: Iterable[Any]) -> Iterator[str]:
    """Yields the texts, each of which must be one; a single one in place of a list is a common slip."""
    if isinstance(texts, str | bytes):
        raise DataError("One text was passed where a list of texts is needed.\nPass [text].")
    for row, text in enumerate(read_texts(texts, ()).texts):
        if not isinstance(text, str):
            what = "no text (None)" if text is None else f"{text!r:.60}, of type {type(text).__name__}"
            raise DataError(f"Text {row} is {what}.\nPass texts only: str(value), or '' where there is none.")
        yield text


def without_numbers(texts: Iterable[str]) -> Iterator[str]:
    """Yields the texts, beside which there must be no numbers."""
    for row, text in enumerate(texts):
        if isinstance(text, Document) and text.numbers is not None:
            raise DataError(
                f"Document {row} has numbers beside its text, and the model was trained without any.\n"
                "Pass the text alone, or train with numbers."
            )
        yield text


def with_numbers(texts: Iterable[str], width: int) -> Iterator[str]:
    """Yields the texts, each of which must be a Document."""
    for row, text in enumerate(texts):
        if not isinstance(text, Document):
            raise DataError(
                f"Text {row} comes without numbers, and the model was trained with {width} beside each text.\n"
                "Pass smoothlink.Document(text, numbers); Document(text) where they are not known."
            )
        yield text


def _counted(vectorizer: Any, documents: list[str]) -> Any:
    """Returns counts (n, d) with their vocabulary; no columns where there is none."""
    try:
        return vectorizer.fit_transform(documents)
    except ValueError as error:
        if "empty vocabulary" not in str(error) and "no terms remain" not in str(error):
            raise
        return sp.csr_array((len(documents), 0), dtype=np.float32)
