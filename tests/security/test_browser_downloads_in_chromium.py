"""The twenty downloads by a real Chromium behind its fences, from a site that says of them what it likes."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from fakes.browser_engine import Guarded, attach, launching
from fakes.download_harness import DownloadHarness
from fakes.download_set import FILES
from fakes.egress_harness import server
from palyra.browser.domain.cdp_messages import CdpEvent
from palyra.browser.domain.download import DownloadRecord, Folder, Reason, to_display_name
from palyra.browser.engine.launch_plan import DOWNLOADS
from palyra.browser.tabs.download_folder import Announced

pytestmark = pytest.mark.promise("P-browser-approval")

SHOP = "shop.test"
CASES = list(FILES.values())


async def _site(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while head := await reader.readuntil(b"\r\n\r\n"):
        name, declared, body, _, _ = CASES[int(head.split(b" ")[1].strip(b"/"))]
        lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", "Cache-Control: no-store"]
        lines.append(f"Content-Disposition: attachment; filename*=UTF-8''{quote(name, safe='')}")
        lines += [f"Content-Type: {declared}"] if declared else []
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await writer.drain()


class Downloads:
    """What the daemon does with the browser's events: begin, finish."""

    def __init__(self, harness: DownloadHarness) -> None:
        self.harness = harness
        self.declared: str | None = None
        self.ended: asyncio.Queue[DownloadRecord] = asyncio.Queue()

    def on_event(self, event: CdpEvent) -> None:
        if event.method == "Browser.downloadWillBegin":
            name, address = event.params["suggestedFilename"], event.params["url"]
            announced = Announced(
                guid=event.params["guid"], suggested_name=name, source=address, declared_type=self.declared
            )
            self.harness.session.begin(announced)
        elif event.method == "Browser.downloadProgress" and event.params["state"] != "inProgress":
            complete = event.params["state"] == "completed"
            self.ended.put_nowait(self.harness.session.finish(event.params["guid"], complete=complete))


async def test_twenty_downloads_by_chromium(tmp_path: Path) -> None:
    harness = DownloadHarness(tmp_path)
    async with server(_site) as port, launching(tmp_path / "notes") as launcher:
        process = await launcher.start()
        guarded = Guarded({SHOP: ("127.0.0.1",)}, f"{SHOP}:{port}")
        guarded.serve(process)
        try:
            harness.incoming = process.downloads
            harness.session = harness.opened()
            downloads = Downloads(harness)
            process.cdp.subscribe(None, downloads.on_event)
            params: dict[str, Any] = {"behavior": "allowAndName", "downloadPath": DOWNLOADS, "eventsEnabled": True}
            await process.cdp.send("Browser.setDownloadBehavior", params)
            session = await attach(process)
            for number, (what, (name, declared, content, _, reasons)) in enumerate(FILES.items()):
                downloads.declared = declared
                await process.cdp.send("Page.navigate", {"url": f"http://{SHOP}:{port}/{number}"}, session, 60.0)
                async with asyncio.timeout(60):
                    record = await downloads.ended.get()
                _check(what, name, record, reasons)
                if record.folder is Folder.ALLOWLIST:
                    assert harness.session.read(record.id) == content
            assert list(process.downloads.iterdir()) == []
        finally:
            await guarded.close()
            await process.close(graceful=False)
    assert sum(map(len, harness.files().values())) == len(FILES)


def _check(what: str, name: str, record: DownloadRecord, reasons: tuple[Reason, ...]) -> None:
    """Chromium cleans names itself, and so may take the lie out of one; what it then is must still be judged right."""
    assert record.name == to_display_name(record.name)
    # It puts an underscore where a name would have turned around: that name says what it is.
    left = set(reasons) - ({Reason.MISLEADING_NAME} if record.name == "bill_fdp.txt" else set())
    expected = Folder.QUARANTINE if left else Folder.ALLOWLIST
    assert (what, record.folder) == (what, expected)
    assert (what, set(record.reasons)) == (what, left)
