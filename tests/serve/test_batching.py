"""Requests that arrive together are predicted together, and none suffers for another."""

import asyncio
import threading

import pytest

from smoothlink.serve.batching import Batcher
from smoothlink.serve.schema import RefusedRequest


def batcher(predict_batch, **changes):
    return Batcher(predict_batch, **{"batch_rows": 100, "max_waiting": 1000, "wait": 0.0} | changes)


def doubled(seen):
    def predict_batch(requests):
        seen.append(list(requests))
        return [2 * request for request in requests]

    return predict_batch


def test_requests_of_one_moment_are_one_batch_and_each_has_its_own_result():
    seen = []

    async def main():
        made = batcher(doubled(seen))
        return await asyncio.gather(*(made.submit(i, 1) for i in range(10)))

    assert asyncio.run(main()) == list(range(0, 20, 2))
    assert seen == [list(range(10))]


def test_a_request_to_an_idle_server_does_not_wait():
    async def main():
        made = batcher(doubled([]), wait=30.0)
        return [await asyncio.wait_for(made.submit(i, 1), 5) for i in range(3)]

    assert asyncio.run(main()) == [0, 2, 4]


def test_requests_that_arrive_during_a_batch_are_the_next_batch():
    seen, go = [], threading.Event()

    def predict_batch(requests):
        seen.append(list(requests))
        go.wait(5)
        return requests

    async def main():
        made = batcher(predict_batch)
        first = asyncio.create_task(made.submit("a", 1))
        while not seen:
            await asyncio.sleep(0.001)
        later = [asyncio.create_task(made.submit(name, 1)) for name in "bcd"]
        await asyncio.sleep(0)
        go.set()
        return await asyncio.gather(first, *later)

    assert asyncio.run(main()) == list("abcd")
    assert seen == [["a"], ["b", "c", "d"]]


def test_a_busy_server_waits_for_more():
    seen = []

    async def main():
        made = batcher(doubled(seen), batch_rows=2, wait=0.2)
        early = [asyncio.create_task(made.submit(i, 1)) for i in range(3)]  # two, and one that waits
        await asyncio.gather(*early[:2])
        late = asyncio.create_task(made.submit(3, 1))
        return await asyncio.gather(*early, late)

    asyncio.run(main())
    assert seen == [[0, 1], [2, 3]]


def test_batches_are_of_whole_requests_up_to_their_size():
    seen = []

    async def main():
        made = batcher(doubled(seen), batch_rows=10)
        await asyncio.gather(*(made.submit(i, rows) for i, rows in enumerate([4, 6, 1, 50, 3])))

    asyncio.run(main())
    assert seen == [[0, 1], [2], [3], [4]]


def test_an_error_reaches_only_the_request_that_caused_it():
    def predict_batch(requests):
        if "bad" in requests:
            raise ZeroDivisionError
        return [ValueError("mine") if request == "odd" else request for request in requests]

    async def main():
        made = batcher(predict_batch)
        return await asyncio.gather(*(made.submit(q, 1) for q in ("a", "bad", "odd", "b")), return_exceptions=True)

    a, bad, odd, b = asyncio.run(main())
    assert (a, b) == ("a", "b")
    assert isinstance(bad, ZeroDivisionError)
    assert isinstance(odd, ValueError)


def test_requests_beyond_the_queue_are_refused():
    async def main():
        made = batcher(doubled([]), max_waiting=5, batch_rows=1)
        return await asyncio.gather(*(made.submit(i, 2) for i in range(4)), return_exceptions=True)

    results = asyncio.run(main())
    assert results[:2] == [0, 2]
    assert all(isinstance(one, RefusedRequest) and one.status_code == 503 for one in results[2:])


def test_requests_whose_clients_left_are_not_predicted():
    seen, go = [], threading.Event()

    def predict_batch(requests):
        seen.append(list(requests))
        go.wait(5)
        return requests

    async def main():
        made = batcher(predict_batch)
        first = asyncio.create_task(made.submit("a", 1))
        while not seen:
            await asyncio.sleep(0.001)
        second = asyncio.create_task(made.submit("b", 1))
        await asyncio.sleep(0)
        second.cancel()
        go.set()
        await first
        assert await made.submit("c", 1) == "c"
        with pytest.raises(asyncio.CancelledError):
            await second

    asyncio.run(main())
    assert seen == [["a"], ["c"]]
