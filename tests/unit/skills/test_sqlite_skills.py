import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import msgspec
import pytest

from fakes.skill_harness import ACTOR, SKILL, SkillHarness, artifact
from palyra.errors import PalyraError
from palyra.journal import search
from palyra.skills.registry.lifecycle import SkillEvent, SkillState
from palyra.skills.registry.records import ChangedMeanwhile, NotRunnable, RecordChanged, SkillVersion, UnknownSkill
from palyra.skills.registry.skill_tables import InstalledSkillsIndex, SkillTables
from palyra.skills.trust.publisher_keys import TrustLevel


def fresh(version: str = "1.0.0") -> SkillVersion:
    skill = artifact(version)
    return SkillVersion(
        skill_id=SKILL,
        version=version,
        digest=skill.digest,
        state=SkillState.INGESTED,
        publisher="acme",
        key_id="K",
        trust=TrustLevel.ALLOWLISTED,
        size=1,
        manifest=skill.manifest,
    )


def put(harness: SkillHarness, version: str, *events: SkillEvent) -> SkillVersion:
    def work(tx: object) -> SkillVersion:
        tables = SkillTables(tx)  # type: ignore[arg-type]
        moved = tables.ingest(fresh(version), actor=ACTOR)
        for event in events:
            moved = tables.move(moved, event, actor=ACTOR)
        return moved

    return harness.store.transact_blocking(work)


APPROVED = (SkillEvent.AUDIT, SkillEvent.QUARANTINE, SkillEvent.APPROVE)


def test_each_step_is_a_row_an_event_and_an_entry_of_the_history(harness: SkillHarness) -> None:
    moved = put(harness, "1.0.0", *APPROVED)
    index = InstalledSkillsIndex(harness.store)
    assert index.versions(SKILL) == [moved] == index.active() and moved.approved_by == ACTOR
    kinds = ["skill.ingested", "skill.audited", "skill.quarantined", "skill.approved"]
    assert harness.kinds() == kinds and [entry.kind for entry in index.history(SKILL)] == kinds[::-1]
    assert index.revision() == index.history(SKILL)[0].seq
    index.require_active(SKILL, moved.digest)
    with pytest.raises(NotRunnable):
        index.require_active(SKILL, "x")


def test_two_who_move_the_same_version_cannot_both_succeed(harness: SkillHarness) -> None:
    seen = put(harness, "1.0.0", *APPROVED)
    harness.store.transact_blocking(lambda tx: SkillTables(tx).move(seen, SkillEvent.DISABLE, actor="one"))
    with pytest.raises(ChangedMeanwhile):
        harness.store.transact_blocking(lambda tx: SkillTables(tx).move(seen, SkillEvent.REMOVE, actor="two"))
    assert harness.kinds().count("skill.removed") == 0


def test_the_database_itself_refuses_two_versions_in_use(harness: SkillHarness) -> None:
    put(harness, "1.0.0", *APPROVED)
    with pytest.raises((sqlite3.IntegrityError, PalyraError)):
        put(harness, "2.0.0", *APPROVED)
    assert [one.version for one in InstalledSkillsIndex(harness.store).active()] == ["1.0.0"]


def test_a_version_that_comes_again_keeps_that_it_was_approved(harness: SkillHarness) -> None:
    gone = put(harness, "1.0.0", *APPROVED, SkillEvent.REMOVE)
    again = harness.store.transact_blocking(lambda tx: SkillTables(tx).ingest(fresh(), actor="user:two"))
    assert again.state is SkillState.INGESTED and again.ingested_by == "user:two"
    assert again.approved_ms == gone.approved_ms


def test_the_record_has_to_agree_with_the_journal(harness: SkillHarness) -> None:
    moved = put(harness, "1.0.0", *APPROVED)
    index = InstalledSkillsIndex(harness.store)
    index.require_record(moved)
    quarantined = put(harness, "2.0.0", *APPROVED[:2])
    # What somebody with the file in hand would write.
    forged = msgspec.structs.replace(quarantined, state=SkillState.APPROVED)
    with closing(sqlite3.connect(harness.journal.database)) as database, database:
        database.execute("UPDATE skill_versions SET state = 'removed' WHERE version = '1.0.0'")
        database.execute(
            "UPDATE skill_versions SET state = 'approved', record = ? WHERE version = '2.0.0'",
            (msgspec.json.encode(forged),),
        )
        for seq in (0, 3, 4, 10_000):
            database.execute("UPDATE skill_versions SET decided_seq = ? WHERE version = '2.0.0'", (seq,))
            database.commit()
            with pytest.raises(RecordChanged):
                index.require_record(forged)
    database.close()


def test_the_journal_is_asked_by_its_index_and_from_where_it_was_told_before(
    harness: SkillHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for statement in search.SCHEMA:
        harness.store.transact_blocking(lambda tx, statement=statement: tx.execute(statement))
    asked: list[tuple[str, Sequence[Any]]] = []
    read = harness.store.read
    monkeypatch.setattr(harness.store, "read", lambda sql, params=(): asked.append((sql, params)) or read(sql, params))
    moved = put(harness, "1.0.0", *APPROVED)
    index = InstalledSkillsIndex(harness.store)
    index.require_record(moved)
    index.require_record(moved)
    (first, second) = (len(read(sql, params)) for sql, params in asked)
    assert (first, second) == (3, 1)
    plan = " ".join(row[3] for row in read(f"EXPLAIN QUERY PLAN {asked[0][0]}", asked[0][1]))
    assert "events_of_rare_kinds (kind=? AND seq>?)" in plan and "SCAN" not in plan


def test_an_unknown_skill_is_an_error_and_not_an_empty_list(harness: SkillHarness) -> None:
    with pytest.raises(UnknownSkill):
        InstalledSkillsIndex(harness.store).versions("nobody")


async def test_many_at_once_move_it_once(harness: SkillHarness) -> None:
    seen = put(harness, "1.0.0", *APPROVED)
    ended = await asyncio.gather(
        *(
            harness.store.transact(lambda tx: SkillTables(tx).move(seen, SkillEvent.DISABLE, actor=ACTOR))
            for _ in range(20)
        ),
        return_exceptions=True,
    )
    assert sum(isinstance(one, SkillVersion) for one in ended) == 1 and harness.kinds().count("skill.disabled") == 1
