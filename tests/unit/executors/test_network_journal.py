from pathlib import Path

from fakes.gateway_harness import open_harness
from palyra.egress.domain.events import Connected, Refused
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.refusal import HostNotAllowed
from palyra.egress.domain.target import Target
from palyra.executors.network import journal
from palyra.executors.network.journal import JournalObserver

TARGET = Target("https", "a.test", 443)
CONNECTED = Connected(target=TARGET, address="93.184.216.34", face="fetch")


def grant(number: int) -> EgressGrant:
    return EgressGrant(
        grant_id=f"g{number}", principal="agent:bot", run="r", call=f"c{number}", tool="http.fetch", rules=()
    )


async def test_entries_are_written_in_order_with_whose_they_are(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        observer = JournalObserver(harness.gateway.store, actor="palyrad")
        observer.observe(grant(1), CONNECTED)
        observer.observe(grant(1), Refused.of(HostNotAllowed("no", host="b.test", port=80), "fetch"))
        observer.observe(grant(2), CONNECTED)
        assert harness.kinds(call="c1") == []
        await observer.flush()
        await observer.flush()
        assert harness.kinds(call="c1") == ["egress.connected", "egress.refused"]
        (kind, payload), *_ = harness.events(call="c2")
        assert kind == "egress.connected" and payload["address"] == CONNECTED.address
        assert (
            payload["target"] == {"scheme": "https", "host": "a.test", "port": 443} and payload["tool"] == "http.fetch"
        )


async def test_a_call_that_connects_for_ever_is_counted(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        observer = JournalObserver(harness.gateway.store, actor="palyrad")
        for _ in range(journal.MAX_ENTRIES_PER_GRANT + 7):
            observer.observe(grant(1), CONNECTED)
        await observer.flush()
        entries = harness.events(call="c1")
        assert len(entries) == journal.MAX_ENTRIES_PER_GRANT + 1
        assert entries[-1][0] == "egress.entries_dropped" and entries[-1][1]["count"] == 7
        observer.forget("g1")
        observer.observe(grant(1), CONNECTED)
        await observer.flush()
        assert len(harness.events(call="c1")) == journal.MAX_ENTRIES_PER_GRANT + 2
