"""Downloads of a session in a real Chromium: told with their ids, judged, kept, or refused."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fakes.eventually import eventually
from fakes.page_harness import SECRET, PageHarness, page_harness
from palyra.browser.domain.budget import SessionBudget
from palyra.browser.domain.download import DownloadRecord, Folder, Reason, rules
from palyra.browser.tabs.download_folder import DownloadSandboxSession

pytestmark = pytest.mark.asyncio(loop_scope="module")

CSV = b"name,price\nshoes,12\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[PageHarness, DownloadSandboxSession]]:
    folder = tmp_path_factory.mktemp("downloads")
    async with page_harness(folder) as harness:
        limits = {"max_download_bytes": 100_000, "max_session_downloads": 4}
        folders = DownloadSandboxSession(
            folder / "kept",
            harness.process.downloads,
            budget=SessionBudget(**limits),
            rules=rules(),
            now_ms=lambda: 1_000,
        )
        await harness.open(downloads=folders, **limits)
        yield harness, folders


def attached(body: bytes, name: str, **more: str) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Disposition": f"attachment; filename={name}", **more}, body


def record(folders: DownloadSandboxSession, id_: str) -> DownloadRecord:
    (found,) = (each for each in folders.records() if each.id == id_)
    return found


async def test_a_download_is_told_with_its_id_and_kept(place: tuple[PageHarness, DownloadSandboxSession]) -> None:
    harness, folders = place
    harness.site.pages["/list.csv"] = attached(CSV, "list.csv", **{"Content-Type": "text/csv"})
    harness.site.pages["/shelf"] = f"<title>Shelf</title><a id=a href='/list.csv?{SECRET}'>get</a>"
    await harness.go("/shelf")
    outcome = await harness.click("#a")
    assert (outcome.title, outcome.loading, outcome.refused) == ("Shelf", False, ())
    (id_,) = outcome.downloads
    kept = record(folders, id_)
    assert (kept.folder, kept.name, kept.declared_type) == (Folder.ALLOWLIST, "list.csv", "text/csv")
    assert kept.source == harness.site.url("/list.csv?[redacted]")
    assert folders.read(id_) == CSV
    # By its address as well: there is no page then, and that is no failure.
    outcome = await harness.go("/list.csv")
    assert len(outcome.downloads) == 1 and outcome.url == harness.site.url("/shelf")


async def test_a_disguise_is_seen_by_the_type_that_was_declared(
    place: tuple[PageHarness, DownloadSandboxSession],
) -> None:
    harness, folders = place
    harness.site.pages["/page.csv"] = attached(b"<html><script>x</script>", "page.csv", **{"Content-Type": "text/html"})
    outcome = await harness.go("/page.csv")
    (id_,) = outcome.downloads
    kept = record(folders, id_)
    assert kept.folder is Folder.QUARANTINE and {Reason.DECLARED, Reason.MARKUP} <= set(kept.reasons)


async def test_what_says_that_it_is_too_large_is_stopped_at_once(
    place: tuple[PageHarness, DownloadSandboxSession],
) -> None:
    harness, folders = place
    harness.site.pages["/large.csv"] = attached(b"a,b\n" * 50_000, "large.csv", **{"Content-Type": "text/csv"})
    outcome = await harness.go("/large.csv")
    assert outcome.downloads == ()
    assert outcome.refused == (f"{harness.site.url('/large.csv')} browser.download_refused",)
    assert folders.records()[-1].reasons == (Reason.TOO_LARGE,)


async def test_what_grows_too_large_is_stopped_and_quarantined(
    place: tuple[PageHarness, DownloadSandboxSession],
) -> None:
    """Without a length nobody knows how much comes: it is watched, stopped, and what came is not served."""
    harness, folders = place
    harness.site.pages["/endless.csv"] = (
        200,
        {"Content-Disposition": "attachment; filename=endless.csv", "Transfer-Encoding": "chunked"},
        b"10000\r\n" + b"a,b\n" * 16_384 + b"\r\n" + b"10000\r\n" + b"a,b\n" * 16_384 + b"\r\n",
    )
    harness.site.unsized.add("/endless.csv")
    outcome = await harness.go("/endless.csv")
    (id_,) = outcome.downloads
    await eventually(lambda: [each for each in folders.records() if each.id == id_])
    kept = record(folders, id_)
    assert kept.folder is Folder.QUARANTINE and Reason.TOO_LARGE in kept.reasons
    # Nothing is left where Chromium writes, also not of what was refused before.
    await eventually(lambda: not list(Path(harness.process.downloads).iterdir()))


async def test_a_session_without_folders_downloads_nothing(tmp_path: Path) -> None:
    async with page_harness(tmp_path) as harness:
        await harness.open()
        harness.site.pages["/list.csv"] = attached(CSV, "list.csv")
        await harness.go()
        outcome = await harness.go("/list.csv")
        assert outcome.downloads == () and outcome.title == "Shop"
        assert list(Path(harness.process.downloads).iterdir()) == []
