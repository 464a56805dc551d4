"""Questions that come together are answered together, and none suffers for another."""

import asyncio
import threading

import pytest

from smoothlink.serve.batching import Batcher
from smoothlink.serve.http_errors import Refused


def batcher(answer_all, **changes):
    return Batcher(answer_all, **{"batch_rows": 100, "max_waiting": 1000, "wait": 0.0} | changes)


def doubled(seen):
    def answer_all(questions):
        seen.append(list(questions))
        return [2 * question for question in questions]

    return answer_all


def test_questions_of_one_moment_are_one_batch_and_each_has_its_own_answer():
    seen = []

    async def main():
        asked = batcher(doubled(seen))
        return await asyncio.gather(*(asked.ask(i, 1) for i in range(10)))

    assert asyncio.run(main()) == list(range(0, 20, 2))
    assert seen == [list(range(10))]


def test_a_question_to_an_idle_server_does_not_wait():
    async def main():
        asked = batcher(doubled([]), wait=30.0)
        return [await asyncio.wait_for(asked.ask(i, 1), 5) for i in range(3)]

    assert asyncio.run(main()) == [0, 2, 4]


def test_what_comes_while_a_batch_is_answered_is_the_next_batch():
    seen, go = [], threading.Event()

    def answer_all(questions):
        seen.append(list(questions))
        go.wait(5)
        return questions

    async def main():
        asked = batcher(answer_all)
        first = asyncio.create_task(asked.ask("a", 1))
        while not seen:
            await asyncio.sleep(0.001)
        later = [asyncio.create_task(asked.ask(name, 1)) for name in "bcd"]
        await asyncio.sleep(0)
        go.set()
        return await asyncio.gather(first, *later)

    assert asyncio.run(main()) == list("abcd")
    assert seen == [["a"], ["b", "c", "d"]]


def test_a_busy_server_waits_for_more():
    seen = []

    async def main():
        asked = batcher(doubled(seen), batch_rows=2, wait=0.2)
        early = [asyncio.create_task(asked.ask(i, 1)) for i in range(3)]  # two, and one that waits
        await asyncio.gather(*early[:2])
        late = asyncio.create_task(asked.ask(3, 1))
        return await asyncio.gather(*early, late)

    asyncio.run(main())
    assert seen == [[0, 1], [2, 3]]


def test_batches_are_of_whole_questions_up_to_their_size():
    seen = []

    async def main():
        asked = batcher(doubled(seen), batch_rows=10)
        await asyncio.gather(*(asked.ask(i, rows) for i, rows in enumerate([4, 6, 1, 50, 3])))

    asyncio.run(main())
    assert seen == [[0, 1], [2], [3], [4]]


def test_an_error_is_told_to_the_question_that_earned_it_alone():
    def answer_all(questions):
        if "bad" in questions:
            raise ZeroDivisionError
        return [ValueError("mine") if question == "odd" else question for question in questions]

    async def main():
        asked = batcher(answer_all)
        return await asyncio.gather(*(asked.ask(q, 1) for q in ("a", "bad", "odd", "b")), return_exceptions=True)

    a, bad, odd, b = asyncio.run(main())
    assert (a, b) == ("a", "b")
    assert isinstance(bad, ZeroDivisionError)
    assert isinstance(odd, ValueError)


def test_too_many_waiting_rows_are_sent_away():
    async def main():
        asked = batcher(doubled([]), max_waiting=5, batch_rows=1)
        return await asyncio.gather(*(asked.ask(i, 2) for i in range(4)), return_exceptions=True)

    said = asyncio.run(main())
    assert said[:2] == [0, 2]
    assert all(isinstance(one, Refused) and one.status_code == 503 for one in said[2:])


def test_questions_whose_askers_left_are_not_put():
    seen, go = [], threading.Event()

    def answer_all(questions):
        seen.append(list(questions))
        go.wait(5)
        return questions

    async def main():
        asked = batcher(answer_all)
        first = asyncio.create_task(asked.ask("a", 1))
        while not seen:
            await asyncio.sleep(0.001)
        second = asyncio.create_task(asked.ask("b", 1))
        await asyncio.sleep(0)
        second.cancel()
        go.set()
        await first
        assert await asked.ask("c", 1) == "c"
        with pytest.raises(asyncio.CancelledError):
            await second

    asyncio.run(main())
    assert seen == [["a"], ["c"]]
