"""The labels that may be among the k best of a row, found without reading all of V: the others need no score."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smoothlink.steps.calibrate import LEAST_PROBABILITY, score_grid

if TYPE_CHECKING:
    from smoothlink.machines.quantized import KeyTable, LabelCodes
    from smoothlink.model import DecoderInputs, Model

Array = NDArray[Any]
Keys = Callable[[Array, Array], Array]  # scores (g, m) of labels (m,) -> what they are ranked by (g, m)

LEAST_ENTRIES = 1 << 22  # of V: fewer are read in the time that a search takes
MOST_ENTRIES = 1 << 30  # whose codes take 1 GiB
LABELS_PER_DIRECTION = 4  # at least, since the rotation of a row reads s x s numbers
SMALL_BATCH = 8  # rows up to which a search for each is faster than a product for all
MOST_BEST = 256  # labels per row that a search is for
MOST_GROUPS = 4096  # of labels with the same function from scores to keys
MOST_SHARE = 1 / 16  # of the labels: more candidates take as long to score as all labels do
LARGEST_LOG_ODDS = -np.log(LEAST_PROBABILITY)  # of the map that all labels share
ROUNDING = 1e-9  # of log-odds, which are level between some knots
REPAID_SCANS = 150  # that take as long as making the codes


class CandidateSearch:
    """A copy of V in one byte per weight. It is made where rows have been scanned for as long as making it takes, or
    at once by `prepare`, so that no program runs for more than twice the time it needs."""

    def __init__(self, model: Model, least_entries: int = LEAST_ENTRIES, most_share: float = MOST_SHARE) -> None:
        self.model, self.most_share, self.scanned = model, most_share, 0  # times
        self.codes: LabelCodes | None = None
        self.tables: dict[str, KeyTable | None] = {}
        self.trained = np.flatnonzero(~model.untrained)
        rows, entries = model.V.shape[0], model.V.shape[0] * len(self.trained)
        self.pays = (
            not model.multiclass  # its probabilities need the scores of all classes
            and least_entries <= entries <= MOST_ENTRIES
            and len(self.trained) >= LABELS_PER_DIRECTION * rows
        )

    @property
    def nbytes(self) -> int:
        """Returns the memory that the copy takes or would take; 0 where none is ever made."""
        from smoothlink.machines.quantized import code_bytes

        return code_bytes(self.model.V.shape[0] - 1, len(self.trained)) if self.pays else 0

    def prepare(self) -> None:
        """Makes the copy, where one pays."""
        from smoothlink.machines.quantized import quantize

        if self.pays and self.codes is None:
            self.codes = quantize(self.model.V.columns, self.model.V.shape, self.trained)
            self.pays = self.codes is not None

    def find(self, inputs: DecoderInputs, k: int, rank_by: str, keys: Keys) -> Array | None:
        """Returns labels, ascending, among which the k best of each row are; None where a scan of all is faster. The
        keys are what labels are ranked by, of their scores."""
        b = len(inputs.without_features)
        if not self.pays or b > SMALL_BATCH or k > min(MOST_BEST, len(self.trained)) or inputs.without_features.any():
            return None
        if self.codes is None:
            self.scanned += 1
            if self.scanned <= REPAID_SCANS:
                return None
            self.prepare()
        tables = [(self.table(rank_by, keys), k)]
        if rank_by != "probability":  # whatever labels are ranked by, the one of the highest score is recalibrated
            tables += [(self.table("probability", self.model.log_odds), 1)]
        if self.codes is None or not np.isfinite(inputs.Phi).all():
            return None
        from smoothlink.machines.quantized import find_candidates

        added, c = self.added(inputs), self.model.n_labels
        parts = []
        for table, count in tables:
            if table is None:
                return None
            parts.append(find_candidates(self.codes, table, inputs.Phi, added, count))
        found = parts[0] if len(parts) == 1 else np.union1d(*parts)
        return found if len(found) <= max(k, self.most_share * c) else None

    def added(self, inputs: DecoderInputs) -> Array:
        """Returns what scores (b, c) have besides that of the codes; (b, 0) where they have nothing."""
        D = self.model.sparse_weights
        if D is None:
            return np.zeros((len(inputs.without_features), 0), np.float32)
        return D.products(inputs.X, self.model.n_labels)

    def table(self, rank_by: str, keys: Keys) -> KeyTable | None:
        """Returns `key_table`, made once."""
        if rank_by not in self.tables:
            self.tables[rank_by] = self.key_table(rank_by, keys)
        return self.tables[rank_by]

    def key_table(self, rank_by: str, keys: Keys) -> KeyTable | None:
        """Returns what labels are ranked by at the scores of a grid; None where it may fall with the score, or where
        nearly each label has a function of its own."""
        from smoothlink.machines.quantized import KeyTable

        model, maps = self.model, self.model.calibration.labels
        if rank_by == "probability" and maps is None:  # by the scores
            none = np.zeros((0, 0), np.float32)
            return KeyTable(np.zeros(len(self.trained), np.uint16), none.ravel(), none, 2**-22, 0.0)
        kinds = np.vstack([*([] if maps is None else maps), *([model.counts] if rank_by == "psp" else [])])
        _, first, group = np.unique(kinds[:, self.trained], axis=1, return_index=True, return_inverse=True)
        if len(first) > MOST_GROUPS or self.falls(self.trained[first]):
            return None
        grid = score_grid(model.loss)
        found = keys(np.repeat(grid[:, None], len(first), axis=1), self.trained[first]).T
        # Rounding: the shared map g has one of float32, and each map of a label three more (docs/maths.md).
        terms = np.array([1, 0, LARGEST_LOG_ODDS, 1, LARGEST_LOG_ODDS])  # that a, b, e, r and t multiply, at most
        largest = 1.0 if maps is None else float(np.abs(maps).max(axis=1) @ terms)
        relative, absolute = (2**-18 * (largest + 4), 0.0) if rank_by == "psp" else (2**-18, 2**-18 * largest)
        return KeyTable(group.ravel().astype(np.uint16), grid, np.ascontiguousarray(found), relative, absolute)

    def falls(self, labels: Array) -> bool:
        """Returns whether the log-odds of some of these labels fall anywhere with their score."""
        calibration = self.model.calibration
        if calibration.labels is None:
            return bool((np.diff(calibration.values) < 0).any())
        maps = calibration.labels[:, labels]
        return bool((maps[1] < 0).any() or (np.diff(maps[2:].T @ calibration.functions) < -ROUNDING).any())
