"""The judge of ``make soak`` finds what it is there to find: a real record holds, and every way to spoil it is seen."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fakes.gateway_harness import open_harness
from soak.judge import Record, judge
from soak.leaks import memory_is_bounded, memory_of_workers_is_bounded
from soak.observations import OK, Observations
from soak.pace import GaveUp, Pace
from soak.shelf import Shelf
from soak.watch import Sample

FILE = "made/note.txt"
CALLS = "every call ended exactly once"
BUDGETS = "budgets balance"
MIB = 2**20


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Observations]:
    """A state directory after some calls, and what their caller saw."""
    folder, answers = tmp_path_factory.mktemp("lived"), Observations()
    asyncio.run(_live(folder, answers))
    return folder / "state", answers


async def _live(folder: Path, answers: Observations) -> None:
    async with open_harness(folder) as harness:
        (harness.workspace / "made").mkdir()
        write = {"path": FILE, "content": "once"}
        waiting = await harness.call("fs.write", write)
        await harness.approve(waiting.approval_id)
        for made in (
            await harness.call("fs.write", write),
            await harness.call("echo", {"text": "x"}),
            await harness.call("echo", {"text": "x"}, channel="nowhere"),
            await harness.call("echo", {"txet": "x"}),
        ):
            answers.saw("echo", {"call_id": made.call_id, "status": made.state.value})
        answers.documents.clear()
        answers.wrote(FILE, "once", "yes")


@pytest.fixture
def state(lived: tuple[Path, Observations], tmp_path: Path) -> Path:
    shutil.copytree(lived[0], tmp_path / "state")
    return tmp_path / "state"


@pytest.fixture
def database(state: Path) -> Iterator[sqlite3.Connection]:
    """In the hands of somebody who can do everything."""
    with closing(sqlite3.connect(state / "palyra.db")) as opened, opened:
        for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            opened.execute(f'DROP TRIGGER "{name}"')
        yield opened
    opened.close()


def failing(state: Path, answers: Observations) -> list[str]:
    shelf = Shelf(state / "workspace", state / "shelf")
    return [verdict.what for verdict in judge(Record(state), answers, shelf) if not verdict.holds]


def again(database: sqlite3.Connection, kind: str) -> None:
    """The last entry of this kind stands in the journal once more."""
    database.execute(
        "INSERT INTO events SELECT (SELECT max(seq) + 1 FROM events), id || 'x', time_ms, kind, actor, principal, run,"
        " call, payload, prev_hash, hash FROM events WHERE kind = ? ORDER BY seq DESC LIMIT 1",
        (kind,),
    )


def entered(database: sqlite3.Connection, kind: str, payload: bytes) -> None:
    again(database, "run.opened")
    entry = (kind, payload)
    database.execute("UPDATE events SET kind = ?, payload = ? WHERE seq = (SELECT max(seq) FROM events)", entry)


@pytest.mark.promise("P-faults")
def test_a_real_record_holds(lived: tuple[Path, Observations]) -> None:
    assert failing(*lived) == []


SPOILT: dict[str, tuple[str, Callable[[sqlite3.Connection], object]]] = {
    "reserved": (BUDGETS, lambda database: database.execute("UPDATE run_budgets SET reserved = 1")),
    "overcharged": (BUDGETS, lambda database: database.execute("UPDATE run_budgets SET used = used + 1")),
    "held": (BUDGETS, lambda database: database.execute("""UPDATE calls SET reserved = '{"calls":1}'""")),
    "endless": (CALLS, lambda database: database.execute("DELETE FROM events WHERE kind = 'call.finished'")),
    "ended twice": (CALLS, lambda database: again(database, "call.finished")),
    "begun twice": (CALLS, lambda database: again(database, "call.started")),
    "running": (CALLS, lambda database: database.execute("UPDATE calls SET state = 'running'")),
    "unrecorded": (CALLS, lambda database: database.execute("DELETE FROM events WHERE kind LIKE 'call.%'")),
    "told otherwise": (
        "callers got what is recorded",
        lambda database: database.execute("UPDATE calls SET state = 'failed' WHERE state = 'succeeded'"),
    ),
    "used twice": (
        "every approval was decided and used at most once",
        lambda database: again(database, "approval.consumed"),
    ),
    "without a yes": (
        "every approval was decided and used at most once",
        lambda database: database.execute("DELETE FROM events WHERE kind = 'approval.approved'"),
    ),
    "open lease": (
        "every lease ended exactly once",
        lambda database: entered(database, "lease.granted", b'{"lease_id": "l"}'),
    ),
    "worker called a liar": (
        "no honest worker was taken for a liar",
        lambda database: entered(database, "worker.quarantined", b'{"reason": "worker_cleanup.contradicted"}'),
    ),
}


@pytest.mark.promise("P-faults")
@pytest.mark.parametrize("how", SPOILT)
def test_a_spoilt_record_does_not(
    how: str, lived: tuple[Path, Observations], state: Path, database: sqlite3.Connection
) -> None:
    what, spoil = SPOILT[how]
    spoil(database)
    database.commit()
    assert what in failing(state, lived[1])


@pytest.mark.promise("P-faults")
@pytest.mark.parametrize("content", ["onc", None])
def test_a_file_that_is_not_what_its_call_made_is_seen(
    content: str | None, lived: tuple[Path, Observations], state: Path
) -> None:
    path = state / "workspace" / FILE
    path.unlink() if content is None else path.write_text(content)
    assert failing(state, lived[1]) == ["files are what their calls made of them"]


def test_a_fault_in_palyra_is_never_an_answer(lived: tuple[Path, Observations]) -> None:
    answers = Observations()
    answers.wrote(FILE, "once", "yes")
    answers.note("echo", OK, 0.1, 1.0)
    assert failing(lived[0], answers) == []
    answers.note("echo", "internal.bug", 0.1, 1.0, "a bug")
    assert failing(lived[0], answers) == ["no answer was wrong"]


@pytest.mark.parametrize(("end", "holds"), [(140, True), (240, False)])
def test_memory_that_grows_with_a_life_is_seen(end: int, holds: bool) -> None:
    """Lives before the last do not count: each begins anew."""
    sizes = [130 + (end - 130) * at // 99 for at in range(100)]
    before = [Sample(0.0, 1, 900 * MIB, 0, 0, 0, 0, {})] * 50
    last = [Sample(1.0, 2, size * MIB, 0, 0, 0, 0, {}) for size in sizes]
    assert memory_is_bounded([*before, *last]).holds is holds


@pytest.mark.parametrize(("end", "holds"), [(140, True), (240, False)])
def test_memory_that_grows_with_a_workers_life_is_seen(end: int, holds: bool) -> None:
    """Of the one that lived longest, whichever processes were there besides."""
    sizes = [130 + (end - 130) * at // 99 for at in range(100)]
    others = [{at: 900 * MIB} for at in range(100)]
    samples = [
        Sample(0.0, 1, 0, 0, 0, 0, 0, {7_000: size * MIB, **other}) for size, other in zip(sizes, others, strict=True)
    ]
    assert memory_of_workers_is_bounded(samples).holds is holds
    assert memory_of_workers_is_bounded([]).holds


@pytest.mark.promise("P-faults")
def test_time_in_which_the_machine_stood_still_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    pace = Pace()
    try:
        pace.wait_for(lambda: pace.awake > 0.2, "the first ticks", 30)
        before, pace._last = pace.awake, pace._last - 1_000
        pace.wait_for(lambda: pace.freezes, "the jump is seen", 30)
        assert pace.awake - before < 100 and pace.freezes[0][1] > 900
        with pytest.raises(GaveUp):
            pace.wait_for(lambda: False, "never", 0.1)
    finally:
        pace.close()
