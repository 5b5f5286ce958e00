"""The fakes of the ports keep the ports' promises, so that tests with them mean something."""

import pytest

from fakes.fetch_harness import PUBLIC, FetchHarness, answer
from palyra.egress.client.request import Connector, Credentials, Prepared
from palyra.egress.domain.grant import ByteBudget, Meter
from palyra.egress.domain.refusal import AddressForbidden, HostNotAllowed
from palyra.egress.domain.target import Target
from palyra.egress.tls import Connection


async def test_a_door_judges_before_it_connects() -> None:
    harness = FetchHarness({"a.test:80": [[answer(b"x")]]}, answers={"b.test": [["10.0.0.1"]]})
    connector: Connector = harness.stage
    meter = Meter(ByteBudget(1000))
    connection: Connection
    connection, address = await connector.connect(harness.grant, Target("http", "a.test", 80), meter)
    assert address == PUBLIC
    await connection.write(b"abc")
    assert (await connection.read(5)) == b"HTTP/" and (meter.up, meter.down) == (3, 5)
    with pytest.raises(HostNotAllowed):
        await connector.connect(harness.grant, Target("http", "c.test", 80), meter)
    with pytest.raises(AddressForbidden):
        await connector.connect(harness.grant, Target("http", "b.test", 80), meter)


async def test_credentials_leave_other_requests_alone() -> None:
    harness = FetchHarness()
    credentials: Credentials = harness.credentials
    prepared: Prepared = await credentials.prepare(
        harness.grant, Target("http", "a.test", 80), "GET", "/", (("X", "1"),)
    )
    redaction = prepared.redaction
    assert prepared.headers == (("X", "1"),) and redaction.whole(b"x") == b"x" and prepared.secrets == ()
