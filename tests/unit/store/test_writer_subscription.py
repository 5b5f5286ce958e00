import asyncio

import pytest

from palyra.store.sqlite.writer import EventsLost, Subscription


async def test_events_wait_for_their_reader_and_close_ends_the_iteration():
    closed = []
    subscription = Subscription(closed.append)
    subscription.deliver(["a", "b"], others_wrote=False)
    subscription.close()
    assert [event async for event in subscription] == ["a", "b"]
    assert closed == [subscription]


async def test_a_waiting_reader_is_woken():
    subscription = Subscription(lambda _: None)
    task = asyncio.create_task(anext(subscription))
    await asyncio.sleep(0)
    subscription.deliver(["a"], others_wrote=False)
    assert await task == "a"


async def test_a_waiting_reader_is_woken_by_close():
    subscription = Subscription(lambda _: None)
    task = asyncio.create_task(anext(subscription, None))
    await asyncio.sleep(0)
    subscription.close()
    assert await task is None


@pytest.mark.parametrize(("events", "others_wrote"), [(["a", "b", "c"], False), (["a"], True)])
async def test_loss_is_told_once_and_nothing_older_is_delivered_after(events, others_wrote):
    subscription = Subscription(lambda _: None, capacity=2)
    subscription.deliver(["0"], others_wrote=False)
    subscription.deliver(events, others_wrote=others_wrote)
    subscription.deliver(["dropped too"], others_wrote=False)
    assert subscription.lost
    with pytest.raises(EventsLost):
        await anext(subscription)
    subscription.deliver(["d"], others_wrote=False)
    assert await anext(subscription) == "d"
