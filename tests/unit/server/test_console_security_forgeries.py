from pathlib import Path

import pytest

from fakes.console_user import console_user
from fakes.gateway_harness import open_harness
from palyra.server.console.limits import FORGERIES_RECORDED_EVERY_SECONDS
from palyra.server.console.security import MAX_PATH_CHARS, Forgeries
from palyra.store.port import DiskFull


class Ticking:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


@pytest.mark.promise("P-console-guarded")
async def test_a_flood_of_forged_requests_is_one_entry_a_minute_for_each_reason(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        clock = Ticking()
        forgeries = Forgeries(harness.gateway.store, clock)
        for _ in range(50):
            await forgeries.note("console.csrf", "POST", "/" + "x" * 1000, "https://" + "x" * 1000)
        await forgeries.note("console.cross_origin", "GET", "/", "null")
        clock.seconds = FORGERIES_RECORDED_EVERY_SECONDS
        await forgeries.note("console.csrf", "POST", "/again", "")
        recorded = [payload for _, payload in harness.events(kind="console.request_refused")]
        assert [(each["code"], each["count"]) for each in recorded] == [
            ("console.csrf", 1),
            ("console.cross_origin", 1),
            ("console.csrf", 50),
        ]
        assert len(recorded[0]["path"]) == len(recorded[0]["site"]) == MAX_PATH_CHARS


async def test_what_a_full_disk_keeps_from_the_record_is_told_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_harness(tmp_path) as harness:
        clock, store = Ticking(), harness.gateway.store
        forgeries = Forgeries(store, clock)

        async def full(*_given: object) -> None:
            raise DiskFull("no space")

        with monkeypatch.context() as patched:
            patched.setattr(store, "transact", full)
            await forgeries.note("console.csrf", "POST", "/", "")
        clock.seconds = FORGERIES_RECORDED_EVERY_SECONDS
        await forgeries.note("console.csrf", "POST", "/", "")
        assert [payload["count"] for _, payload in harness.events(kind="console.request_refused")] == [2]


async def test_the_overview_tells_of_it(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        assert (await known.post("/console/v1/journal/verify", {}, origin="http://127.0.0.1:9")).status == 403
        assert "console.request_refused" in await known.page("/")
