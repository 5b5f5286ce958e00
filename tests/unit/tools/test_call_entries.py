"""What the journal says of a call is the same to the byte, whether it was written in full or filled in."""

from pathlib import Path
from typing import Any

import pytest

from fakes.house import House, open_house
from palyra.journal.event import NewEvent
from palyra.secret import Secret
from palyra.tools import late_start
from palyra.tools.call_entries import entries_of_start, entries_ready


class Written:
    """Every first part of a call's entries: as it was made ready, and as it would be in full."""

    def __init__(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        self.redactor = house.gateway.store._redactor
        self.pairs: list[tuple[list[bytes], list[bytes]]] = []
        self.filled = 0

        def noted(asked: Any, started: Any, granted: Any, store: Any) -> list[NewEvent]:
            ready = entries_ready(asked, started, granted, store)
            whole = entries_of_start(asked, started, granted)
            assert [entry.kind for entry in ready] == [entry.kind for entry in whole]
            self.pairs.append((self.payloads(ready), [self.redactor.payload(entry.payload) for entry in whole]))
            self.filled += all(not entry.payload for entry in ready)
            return ready

        monkeypatch.setattr(late_start, "entries_ready", noted)

    def payloads(self, entries: list[NewEvent]) -> list[bytes]:
        return [self.redactor.payload_of(entry) for entry in entries]


@pytest.mark.parametrize("text", ["plain", '"quoted" and \\ and \n', "größer", "x" * 512, ""])
async def test_filled_in_and_in_full_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    async with open_house(tmp_path) as house:
        written = Written(house, monkeypatch)
        for _ in range(3):
            assert (await house.call("echo", {"text": text})).error is None
        assert len(written.pairs) == 3 and all(ready == whole for ready, whole in written.pairs)
        # The first asks policy, and is written in full.
        assert written.filled == 2


async def test_arguments_that_are_cut_are_written_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_house(tmp_path) as house:
        written = Written(house, monkeypatch)
        for text in ("x", "x" * 50_000):
            assert (await house.call("echo", {"text": text})).error is None
        assert all(ready == whole for ready, whole in written.pairs)
        assert b"[clipped: 50000 characters" in written.pairs[1][0][0]
        assert written.filled == 0


async def test_a_known_secret_in_the_arguments_is_taken_out_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_house(tmp_path) as house:
        written = Written(house, monkeypatch)
        await house.call("echo", {"text": "first"})
        house.gateway.store._redactor.register(Secret("hunter2-hunter2"))
        for _ in range(2):
            call = await house.call("echo", {"text": "hunter2-hunter2 and more"})
            said = dict(house.events(call=call.call_id))["call.requested"]["arguments"]["text"]
            assert "hunter2" not in said and "and more" in said
        await house.call("echo", {"text": "harmless"})
        assert all(ready == whole for ready, whole in written.pairs)


async def test_a_key_that_names_a_secret_is_redacted_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_house(tmp_path) as house:
        written = Written(house, monkeypatch)
        for _ in range(2):
            call = await house.call("echo", {"text": "x", "password": "p"})
        assert call.call_id and all(ready == whole for ready, whole in written.pairs)
        assert b'"p"' not in b"".join(payload for ready, _ in written.pairs for payload in ready)
