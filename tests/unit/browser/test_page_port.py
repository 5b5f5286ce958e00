"""The seams of the page layer fit what stands behind them."""

from palyra.browser.cdp_pipe import CdpPipe
from palyra.browser.page_port import Cdp


def test_the_pipe_is_a_connection(pipe: CdpPipe | None = None) -> None:
    def wanted(_: Cdp | None) -> None: ...

    wanted(pipe)
    assert {"send", "subscribe"} <= set(dir(CdpPipe))
