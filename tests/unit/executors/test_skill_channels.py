from pathlib import Path

import pytest

from fakes.journal_harness import JournalHarness
from palyra.executors.wasm.channels import MAX_LISTENERS, MAX_WAITING, ChannelHub

WHO = {"skill": "acme.notes", "principal": "agent:bot", "run": "r", "call": "c"}


async def test_only_listeners_of_the_channel_hear_and_a_slow_one_is_told_what_it_missed(tmp_path: Path) -> None:
    store = JournalHarness(tmp_path).open()
    hub = ChannelHub(store, actor="palyrad")
    news, other = hub.listen("news"), hub.listen("other")
    assert news is not None and other is not None
    with news, other:
        for number in range(MAX_WAITING + 3):
            await hub.send("news", str(number), **WHO)
        assert [(await anext(news)).text for _ in range(MAX_WAITING)] == [str(n) for n in range(MAX_WAITING)]
        await hub.send("news", "late", **WHO)
        late = await anext(news)
        assert (late.text, late.missed) == ("late", 3)
        other.close()
        with pytest.raises(StopAsyncIteration):
            await anext(other)
    await hub.send("news", "nobody hears", **WHO)
    assert store.events_since(late.seq, 10)[0].payload_value()["text"] == "nobody hears"
    store.close()


async def test_the_number_of_listeners_is_bounded(tmp_path: Path) -> None:
    store = JournalHarness(tmp_path).open()
    hub = ChannelHub(store, actor="palyrad")
    for _ in range(MAX_LISTENERS):
        listening = hub.listen("news")
        assert listening is not None
        listening.__enter__()
    assert hub.listen("news") is None
    store.close()
