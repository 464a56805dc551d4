"""Metrics for Prometheus. Where PROMETHEUS_MULTIPROC_DIR is set, /metrics covers all processes, whichever responds."""

from __future__ import annotations

import logging
import operator
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from smoothlink.serve.served_rows import RowFigures

if sys.platform != "win32":
    import fcntl

MULTIPROCESS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client looks for it when it is imported
TIMED_PATHS = ("/predict", "/explain", "/labels", "/table", "/table/file", "/corrections", "/update", "/forget")
PATHS = (*TIMED_PATHS, "/model", "/health", "/metrics", "/")  # all others count as "other"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
ENDED: dict[str, Callable[[float, float], float]] = {  # kinds of values that outlive their process: what joins two
    "counter": operator.add,
    "histogram": operator.add,
    "gauge_min": min,
}
ENDED_BYTES = 1 << 20  # of a file of them, which is written through memory: its room is taken when it is made
RATIOS = (  # name, help, and the counters of which it is the ratio, over all processes
    (
        "smoothlink_expected_precision_at_1",
        "Expected P@1 since the start: mean probability of top labels.",
        "smoothlink_expected_hits_total",
        "smoothlink_watched_rows_total",
    ),
    (
        "smoothlink_unknown_word_share",
        "Share of the words of texts that the model does not know, since the start.",
        "smoothlink_unknown_words_total",
        "smoothlink_words_total",
    ),
)


class ServerMetrics(Collector):
    """The metrics of one process. `model` describes what it serves."""

    def __init__(self) -> None:
        self.model: dict[str, str] = {}
        self.registry = registry = CollectorRegistry()
        started = Gauge(
            "smoothlink_start_time_seconds",
            "When the server was started, in Unix time.",
            registry=registry,
            multiprocess_mode="min",
        )
        started.set_to_current_time()
        self.requests = Counter(
            "smoothlink_requests", "Requests by path and status.", ["path", "status"], registry=registry
        )
        self.rows = Counter("smoothlink_rows", "Texts and vectors that were predicted.", registry=registry)
        self.waiting = Gauge(
            "smoothlink_waiting_rows",
            "Texts and vectors in the queue; a long one counts for several.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.seconds = Histogram(
            "smoothlink_request_seconds",
            "Seconds from the head of a request to the end of its response.",
            ["path"],
            registry=registry,
            buckets=SECONDS,
        )
        self.watched = Counter("smoothlink_watched_rows", "Rows that drift is measured on.", registry=registry)
        self.expected_hits = Counter(
            "smoothlink_expected_hits", "Sum of the probabilities of their top labels.", registry=registry
        )
        self.words = Counter("smoothlink_words", "Different words of their texts.", registry=registry)
        self.unknown_words = Counter(
            "smoothlink_unknown_words", "Words of their texts that the model does not know.", registry=registry
        )
        self.evidence = Gauge(
            "smoothlink_drift_evidence",
            "Logarithm of the largest capital of bets against unchanged rows, over the number of bets.",
            registry=registry,
            multiprocess_mode="livemax",
        )
        self.alarm = Gauge(
            "smoothlink_drift_alarm",
            "1 from the moment that rows are found to have changed, 0 before.",
            registry=registry,
            multiprocess_mode="livemax",
        )
        self.batches = Histogram(
            "smoothlink_batch_requests",
            "Requests, or pieces of large ones, per batch.",
            registry=registry,
            buckets=BATCH_SIZES,
        )

        self.changes = Counter(
            "smoothlink_changes", "Updates and forgets that were acknowledged.", ["kind"], registry=registry
        )
        self.changed_rows = Counter(
            "smoothlink_changed_rows", "Rows that the model learnt or forgot.", ["kind"], registry=registry
        )
        self.visible = Histogram(
            "smoothlink_visible_seconds",
            "Seconds from an update or forget until the process that received it predicts with it.",
            registry=registry,
            buckets=SECONDS,
        )

    def count_change(self, kind: str, rows: int) -> None:
        """Counts an update or forget that was acknowledged."""
        self.changes.labels(kind).inc()
        self.changed_rows.labels(kind).inc(rows)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Counts a request that has its response."""
        self.requests.labels(path if path in PATHS else "other", status).inc()
        if path in TIMED_PATHS:
            self.seconds.labels(path).observe(seconds)

    def count_rows(self, found: RowFigures) -> None:
        """Counts rows whose predictions were compared with held-out rows."""
        self.watched.inc(found.rows)
        self.expected_hits.inc(found.expected_hits)
        self.words.inc(found.words)
        self.unknown_words.inc(found.unknown_words)
        self.evidence.set(found.evidence)
        self.alarm.set(found.alarm)

    def collect(self) -> Iterable[Metric]:
        """Yields all metrics: those of all processes where they share a folder, else those of this one."""
        yield InfoMetricFamily("smoothlink_model", "The model that is served.", self.model)
        if MULTIPROCESS_FOLDER in os.environ:
            with locked(exclusive=False):
                found = list(MultiProcessCollector(None).collect())  # type: ignore[no-untyped-call]
        else:
            found = list(self.registry.collect())
        yield from found
        totals = {sample.name: sample.value for metric in found for sample in metric.samples}
        for name, text, part, whole in RATIOS:
            if totals.get(whole, 0) > 0:
                yield GaugeMetricFamily(name, text, totals[part] / totals[whole])

    def text(self) -> bytes:
        """Returns all metrics in Prometheus's text format."""
        return generate_latest(self)


def merge_ended(pid: int | None) -> None:
    """Adds what an ended process counted to the files of all such processes, and removes its own: of each process that
    is replaced there would be three more, all of which /metrics reads."""
    mark_process_dead(pid)  # type: ignore[no-untyped-call]
    folder = Path(os.environ[MULTIPROCESS_FOLDER])
    try:
        with locked(exclusive=True):
            for kind, combine in ENDED.items():
                own, ended = folder / f"{kind}_{pid}.db", folder / f"{kind}_ended.db"
                if not own.exists():
                    continue
                if not ended.exists():
                    ended.write_bytes(bytes(ENDED_BYTES))
                total = MmapedDict(str(ended))  # type: ignore[no-untyped-call]
                former = {key: value for key, value, _ in total.read_all_values()}  # type: ignore[no-untyped-call]
                for key, value, at, _ in MmapedDict.read_all_values_from_file(str(own)):  # type: ignore[no-untyped-call]
                    total.write_value(key, combine(former[key], value) if key in former else value, at)  # type: ignore[no-untyped-call]
                total.close()  # type: ignore[no-untyped-call]
                own.unlink()
    except (OSError, RuntimeError) as error:  # as of a full disk, or of a file that a killed process left unfinished
        logging.getLogger("smoothlink.serve").error("The metrics of process %d stay as they are: %s", pid, error)


@contextmanager
def locked(*, exclusive: bool) -> Iterator[None]:
    """Lets either many processes read the files of metrics, or one merge them."""
    if sys.platform == "win32":
        yield
        return
    with open(os.path.join(os.environ[MULTIPROCESS_FOLDER], "lock"), "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
