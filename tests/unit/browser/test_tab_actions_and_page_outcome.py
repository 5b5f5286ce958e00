"""What is told after an action is within bounds and without secrets; permissions are a list of ours."""

from typing import Any

import pytest

from palyra.browser.domain.action import Made
from palyra.browser.domain.page_address import Refusals
from palyra.browser.domain.page_errors import SchemeRefused
from palyra.browser.domain.page_logs import PageLogs
from palyra.browser.tabs.tab import TabPage
from palyra.browser.tabs.tab_actions import MAX_CONSOLE_ERRORS, MAX_REFUSED, PERMISSIONS, Mark, OutcomeTeller

SECRET = "s3cret-value"


class NoDownloads:
    busy = False
    begun: tuple[str, ...] = ()


def redact(text: str) -> str:
    return text.replace(SECRET, "[redacted]")


async def test_an_outcome_is_bounded_and_has_no_secret() -> None:
    refusals, logs = Refusals(redact), PageLogs(256, 65_536, redact)
    looked: list[bool] = []

    async def look() -> None:
        looked.append(True)

    downloads: Any = NoDownloads()
    teller = OutcomeTeller(refusals, logs, downloads, look, redact)
    tab = TabPage(None, "t1", "M", "S", lambda *_: None)  # type: ignore[arg-type]
    tab.frame_table.navigate({"id": "M", "loaderId": "L", "url": f"http://u:p@a.test/{SECRET}"}, "S")
    tab.title = f"{SECRET} " * 100
    mark = Mark(refusals=1, console=1, downloads=0, tabs=1)
    for number in range(100):
        refusals.add(f"http://evil.test/{number // 2}", SchemeRefused("no"))
        logs.add_console_call({"type": "error", "args": [{"value": f"{number} {SECRET} " + "x" * 900}]}, "t1", 1)
    outcome = await teller.tell(tab, mark, Made(value_json="1"), (), active=True)
    assert looked and outcome.url == "http://a.test/[redacted]" and outcome.value_json == "1"
    assert len(outcome.title) <= 512 and SECRET not in repr(outcome)
    assert len(outcome.console_errors) == MAX_CONSOLE_ERRORS
    assert all(len(text) <= 300 for text in outcome.console_errors)
    # The same one twice is told once, the earliest first.
    assert len(outcome.refused) == MAX_REFUSED == len(set(outcome.refused))
    assert outcome.refused[0] == "http://evil.test/0 browser.scheme_refused"


@pytest.mark.parametrize("name", ["localNetworkAccess", "usb", "serial", "hid", "file-system", "window-management"])
def test_what_reaches_past_a_page_can_be_granted_to_nobody(name: str) -> None:
    assert name not in PERMISSIONS and name not in PERMISSIONS.values()
