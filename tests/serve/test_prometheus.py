"""Metrics of several processes: what those that have ended counted stays, and takes no more room with each of them."""

from collections import Counter

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.multiprocess import MultiProcessCollector

from smoothlink.serve.prometheus import MULTIPROCESS_FOLDER, merge_ended


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The files of three processes."""
    monkeypatch.setenv(MULTIPROCESS_FOLDER, str(tmp_path))
    for pid, started in ((1, 50.0), (2, 40.0), (3, 60.0)):
        write(tmp_path / f"counter_{pid}.db", "requests", {"/": 10 * pid, f"/{pid}": 1})
        write(tmp_path / f"histogram_{pid}.db", "seconds", {"/": pid})
        write(tmp_path / f"gauge_min_{pid}.db", "started", {"/": started})
        write(tmp_path / f"gauge_livesum_{pid}.db", "waiting", {"/": pid})
    return tmp_path


def write(path, name, values):
    file = MmapedDict(str(path))
    for label, value in values.items():
        file.write_value(mmap_key(name, name, ["path"], [label], "Help."), value, 0.0)
    file.close()


def totals():
    """Returns the values of all processes together by name and path."""
    found = Counter()
    for metric in MultiProcessCollector(None).collect():
        for sample in metric.samples:
            found[sample.name, sample.labels["path"]] = sample.value
    return found


def test_what_ended_processes_counted_stays_in_one_file_of_each_kind(folder):
    before = totals()
    merge_ended(1)
    merge_ended(2)
    assert totals() == {**before, ("waiting", "/"): 3}
    assert (before["requests", "/"], before["started", "/"]) == (60, 40.0)
    kinds = "counter", "histogram", "gauge_min"
    own = {f"{kind}_{name}.db" for kind in kinds for name in ("3", "ended")}
    assert {path.name for path in folder.glob("*.db")} == {*own, "gauge_livesum_3.db"}


def test_metrics_that_cannot_be_merged_stay_as_they_are(folder, caplog):
    before = totals()
    (folder / "counter_ended.db").mkdir()
    merge_ended(1)
    assert "The metrics of process 1 stay as they are" in caplog.text
    (folder / "counter_ended.db").rmdir()
    assert totals() == {**before, ("waiting", "/"): 5}
