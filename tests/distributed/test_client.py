"""The connection to a cluster: which are possible, how arrays travel, and what is checked first."""

import importlib.metadata
from types import SimpleNamespace

import numpy as np
import pytest

import smoothlink
from smoothlink.distributed.client import Cluster, can_reach, check_version
from smoothlink.errors import ClusterError


def test_an_array_for_one_worker_goes_there_alone_and_through_the_scheduler_where_there_is_no_other_way(workers, rng):
    A = rng.standard_normal((200, 200)).astype(np.float32)
    worker = workers.workers[1]
    assert workers.direct
    assert set(workers.client.who_has(workers.send(A, worker)).popitem()[1]) == {worker}
    workers.direct = False
    try:
        future = workers.send(A)
        assert len(workers.client.who_has(future).popitem()[1]) == 1
        np.testing.assert_array_equal(workers.gather(future), A)
    finally:
        workers.direct = True
    assert not can_reach(["tcp://127.0.0.1:9"])


def test_many_workers_fetch_an_array_in_waves_and_keep_their_copies(workers, rng):
    with smoothlink.cluster(workers.client) as used:
        used.fetches = 1
        sent = used.send(rng.standard_normal((200, 200)).astype(np.float32))
        assert set(used.client.who_has(sent).popitem()[1]) == set(used.workers)


def test_a_scheduler_without_workers_is_named():
    def wait_for_workers(count, timeout):
        raise TimeoutError

    scheduler = SimpleNamespace(address="tcp://a:1")
    client = SimpleNamespace(
        scheduler=scheduler,
        scheduler_info=lambda n_workers: {"workers": {}},
        wait_for_workers=wait_for_workers,
        status="running",
    )
    with pytest.raises(ClusterError, match=r"The scheduler at tcp://a:1 has no workers.\nStart some: dask worker"):
        Cluster(client)


def test_a_client_that_has_lost_its_scheduler_says_so():
    client = SimpleNamespace(scheduler_info=lambda n_workers: {"type": "Scheduler"}, status="connecting")
    with pytest.raises(ClusterError, match=r"The scheduler of the cluster is lost .*\nStart it again"):
        Cluster(client)


def test_another_plan_is_refused(workers):
    with (
        pytest.raises(ValueError, match="plan is 'labels'; possible are 'auto', 'rows', 'columns'"),
        smoothlink.cluster(workers.client, plan="labels"),
    ):
        pass


def test_an_address_without_a_scheduler_is_refused_after_the_timeout():
    with (
        pytest.raises(ClusterError, match=r"No scheduler responds at tcp://127.0.0.1:9 .*\nStart one with"),
        smoothlink.cluster("tcp://127.0.0.1:9", timeout=0.5),
    ):
        pass


@pytest.mark.parametrize("name", ["local:0", "local:x"])
def test_other_local_clusters_are_refused(name):
    with pytest.raises(ClusterError, match="possible are local:N"), smoothlink.cluster(name):
        pass


def test_a_worker_with_another_version_is_named_with_both_versions():
    with pytest.raises(ClusterError) as error:
        check_version("numpy", "2.0", "1.26", "tcp://a:1")
    expected = "The worker tcp://a:1 has numpy 1.26, and the client has 2.0.\nInstall the same version on both."
    assert str(error.value) == expected


def test_a_worker_without_smoothlink_is_named(workers, monkeypatch):
    missing = importlib.metadata.PackageNotFoundError("smoothlink")
    monkeypatch.setattr(workers.client, "run", lambda *_, **__: {workers.workers[0]: missing})
    with (
        pytest.raises(ClusterError, match=r"has no smoothlink, and the client has"),
        smoothlink.cluster(workers.client),
    ):
        pass
