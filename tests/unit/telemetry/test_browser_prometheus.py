"""Counters of the browser daemon: what a dashboard reads, and no label that a caller or a page can choose."""

from palyra.browser.service.metrics import BrowserMetrics
from palyra.egress.domain.events import Closed, Connected, Refused
from palyra.egress.domain.refusal import HostNotAllowed
from palyra.egress.domain.target import Target

TARGET = Target("https", "shop.example", 443)


def test_what_happens_is_counted_under_closed_labels() -> None:
    metrics = BrowserMetrics()
    metrics.watch(lambda: 2, lambda: 1)
    metrics.opened()
    metrics.closed("idle")
    metrics.acted("click", "")
    metrics.acted("click", "browser.too_many_actions")
    metrics.acted("click", "made.up")
    metrics.egress(Connected(target=TARGET, address="1.2.3.4", face="socks5"))
    metrics.egress(Refused.of(HostNotAllowed("no", host="evil.example", port=80), "socks5"))
    metrics.egress(Closed(target=TARGET, up=3, down=5, reason="done"))
    shown = metrics.render().decode()
    for line in (
        "palyra_browser_sessions_opened_total 1.0",
        'palyra_browser_sessions_closed_total{reason="idle"} 1.0',
        'palyra_browser_actions_total{kind="click",outcome="done"} 1.0',
        'palyra_browser_actions_total{kind="click",outcome="failed"} 2.0',
        'palyra_browser_action_errors_total{code="browser.too_many_actions"} 1.0',
        'palyra_browser_action_errors_total{code="unknown"} 1.0',
        "palyra_browser_connections_total 1.0",
        'palyra_browser_refusals_total{code="egress.host_not_allowed"} 1.0',
        'palyra_browser_bytes_total{direction="down"} 5.0',
        "palyra_browser_sessions 2.0",
        "palyra_browser_ready 1.0",
    ):
        assert line in shown
    assert "example" not in shown and "made.up" not in shown
