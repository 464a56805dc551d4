"""Requests that arrive together are predicted together, and none suffers for another."""

import asyncio
import threading

import pytest
from served import run_async

from smoothlink.serve.batching import Batcher, Piece
from smoothlink.serve.schema import RefusedRequest


def batcher(predict_batch, **changes):
    given = {"batch_rows": 100, "max_waiting": 1000, "wait": 0.0} | changes
    return Batcher(predict_batch, **{"piece_rows": given["batch_rows"] // 4} | given)


def submit(made, request, rows=1, **more):
    """Returns the result of a request of one piece."""

    async def first():
        return (await made.submit([Piece(request, rows)], **more))[0]

    return first()


def doubled(seen):
    def predict_batch(requests):
        seen.append(list(requests))
        return [2 * request for request in requests]

    return predict_batch


def test_requests_of_one_moment_are_one_batch_and_each_has_its_own_result():
    seen = []

    async def main():
        made = batcher(doubled(seen))
        return await asyncio.gather(*(submit(made, i, 1) for i in range(10)))

    assert run_async(main()) == list(range(0, 20, 2))
    assert seen == [list(range(10))]


def test_a_request_to_an_idle_server_does_not_wait():
    async def main():
        made = batcher(doubled([]), wait=30.0)
        return [await asyncio.wait_for(submit(made, i, 1), 5) for i in range(3)]

    assert run_async(main()) == [0, 2, 4]


def test_requests_that_arrive_during_a_batch_are_the_next_batch():
    seen, go = [], threading.Event()

    def predict_batch(requests):
        seen.append(list(requests))
        go.wait(5)
        return requests

    async def main():
        made = batcher(predict_batch)
        first = asyncio.create_task(submit(made, "a", 1))
        while not seen:
            await asyncio.sleep(0.001)
        later = [asyncio.create_task(submit(made, name, 1)) for name in "bcd"]
        await asyncio.sleep(0)
        go.set()
        return await asyncio.gather(first, *later)

    assert run_async(main()) == list("abcd")
    assert seen == [["a"], ["b", "c", "d"]]


def test_a_busy_server_waits_for_more():
    seen = []

    async def main():
        made = batcher(doubled(seen), batch_rows=2, wait=0.2)
        early = [asyncio.create_task(submit(made, i, 1)) for i in range(3)]  # two, and one that waits
        await asyncio.gather(*early[:2])
        late = asyncio.create_task(submit(made, 3, 1))
        return await asyncio.gather(*early, late)

    run_async(main())
    assert seen == [[0, 1], [2, 3]]


def test_batches_are_of_whole_pieces_up_to_their_size():
    seen = []

    async def main():
        made = batcher(doubled(seen), batch_rows=16)
        await asyncio.gather(*(submit(made, i, rows) for i, rows in enumerate([4, 4, 4, 4, 1, 4])))

    run_async(main())
    assert seen == [[0, 1, 2, 3], [4, 5]]


def test_small_requests_take_turns_with_the_pieces_of_large_ones():
    seen = []

    async def main():
        made = batcher(doubled(seen), batch_rows=8)
        large = [made.submit([Piece(start + i, 8) for i in range(3)]) for start in (10, 20)]
        small = [submit(made, i, 2) for i in range(6)]
        return await asyncio.gather(*large, *small)

    assert run_async(main()) == [[20, 22, 24], [40, 42, 44], 0, 2, 4, 6, 8, 10]
    assert seen == [[0, 1, 2, 3], [10], [4, 5], [11], [12], [20], [21], [22]]


def test_while_small_requests_come_a_batch_of_a_large_one_is_one_piece():
    seen = []

    async def main():
        made = batcher(doubled(seen), batch_rows=8, piece_rows=2)
        large = made.submit([Piece(10 + i, 2) for i in range(7)])
        small = [submit(made, i, 2) for i in range(8)]
        await asyncio.gather(large, *small)

    run_async(main())
    assert seen == [[0, 1, 2, 3], [10], [4, 5, 6, 7], [11], [12, 13, 14, 15], [16]]


def test_pieces_of_a_request_may_be_in_one_batch():
    seen = []

    async def main():
        return await batcher(doubled(seen), batch_rows=8).submit([Piece(i, 3) for i in range(5)])

    assert run_async(main()) == [0, 2, 4, 6, 8]
    assert seen == [[0, 1], [2, 3], [4]]


def test_large_requests_that_wait_do_not_make_small_ones_refused():
    async def main():
        made = batcher(doubled([]), max_waiting=10, batch_rows=4)
        large = [Piece(i, 4) for i in range(10)]
        sent = (made.submit(large, client="a"), made.submit(large, client="b"), submit(made, 1, client="a"))
        return await asyncio.gather(*sent, return_exceptions=True)

    first, second, small = run_async(main())
    assert (first, small) == (list(range(0, 20, 2)), 2)
    assert second.status_code == 503


def test_a_request_ends_with_its_first_error_and_the_rest_of_it_is_not_predicted():
    seen = []

    def check(result):
        if result >= 4:
            raise RefusedRequest(413, "too many")

    async def main():
        made = batcher(doubled(seen), batch_rows=4)
        with pytest.raises(RefusedRequest, match="too many"):
            await made.submit([Piece(i, 4) for i in range(10)], check=check)
        await asyncio.sleep(0.05)
        return made.rows

    assert run_async(main()) == 0
    assert len(seen) <= 4


def test_what_is_prepared_does_not_hold_up_others():
    go, order = threading.Event(), []

    async def main():
        made = batcher(doubled([]))

        def prepare():
            go.wait(5)
            return [Piece(7, 1)]

        async def noted(work):
            order.append(await work)

        long = asyncio.create_task(noted(made.submit([Piece("long", 400)], prepare=prepare)))
        await asyncio.sleep(0)
        assert made.rows == 400
        await noted(submit(made, 1))
        go.set()
        await long
        return made.rows

    assert run_async(main()) == 0
    assert order == [2, [14]]


def test_a_client_has_at_most_half_of_the_queue():
    async def main():
        made = batcher(doubled([]), max_waiting=10, batch_rows=1)
        sent = [("a", 3), ("a", 2), ("a", 1), ("b", 5), ("c", 1)]
        return await asyncio.gather(*(submit(made, 1, n, client=who) for who, n in sent), return_exceptions=True)

    results = run_async(main())
    assert [getattr(one, "status_code", one) for one in results] == [2, 2, 429, 2, 503]
    assert all(one.headers == {"Retry-After": "1"} for one in results if isinstance(one, RefusedRequest))


def test_an_error_reaches_only_the_request_that_caused_it():
    def predict_batch(requests):
        if "bad" in requests:
            raise ZeroDivisionError
        return [ValueError("mine") if request == "odd" else request for request in requests]

    async def main():
        made = batcher(predict_batch)
        return await asyncio.gather(*(submit(made, q, 1) for q in ("a", "bad", "odd", "b")), return_exceptions=True)

    a, bad, odd, b = run_async(main())
    assert (a, b) == ("a", "b")
    assert isinstance(bad, ZeroDivisionError)
    assert isinstance(odd, ValueError)


def test_requests_beyond_the_queue_are_refused():
    async def main():
        made = batcher(doubled([]), max_waiting=5, batch_rows=1)
        sent = (submit(made, i, 2, client=str(i)) for i in range(4))
        return await asyncio.gather(*sent, return_exceptions=True)

    results = run_async(main())
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
        first = asyncio.create_task(submit(made, "a", 1))
        while not seen:
            await asyncio.sleep(0.001)
        second = asyncio.create_task(submit(made, "b", 1))
        await asyncio.sleep(0)
        second.cancel()
        go.set()
        await first
        assert await submit(made, "c", 1) == "c"
        with pytest.raises(asyncio.CancelledError):
            await second

    run_async(main())
    assert seen == [["a"], ["c"]]
