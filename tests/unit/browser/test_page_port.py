"""The seams of the page layer fit what stands behind them."""

from palyra.browser.domain.ports import Cdp
from palyra.browser.engine.cdp_connection import CdpPipe


def test_the_pipe_is_a_connection(pipe: CdpPipe | None = None) -> None:
    def wanted(_: Cdp | None) -> None: ...

    wanted(pipe)
    assert {"send", "subscribe"} <= set(dir(CdpPipe))
