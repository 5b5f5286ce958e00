import msgspec
import pytest

from palyra.ids import InvalidId, Ulid
from palyra.skills.build.candidates import CandidateBroken, Candidates, NoSuchCandidate
from palyra.skills.build.generation import (
    MAX_CALLS,
    MAX_NOTES,
    MAX_NOTES_CHARS,
    MAX_PROMPT_CHARS,
    Candidate,
    CandidateState,
)
from palyra.skills.build.project import Language


def candidate():
    return Candidate(id=str.__str__(Ulid.new()), skill_id="a", language=Language.C, generator="g", created_ms=1)


def test_candidates_are_kept_and_found(tmp_path):
    store = Candidates(tmp_path / "c")
    assert store.all() == ()
    one = candidate()
    project = store.add(one, {"skill.toml": "x", "src/main.c": "y"})
    assert store.all() == (one,)
    assert store.get(one.id) == one
    assert store.files(one.id) == {"skill.toml": b"x", "src/main.c": b"y"}
    # What a build leaves is no part of a review.
    (project / "build").mkdir()
    (project / "build" / "x").write_text("x")
    assert set(store.files(one.id)) == {"skill.toml", "src/main.c"}
    assert store.discard(one.id) == one.closed(CandidateState.DISCARDED)
    assert store.get(one.id).state is CandidateState.DISCARDED
    assert store.files(one.id) == {}


def test_ids_are_no_paths(tmp_path):
    store = Candidates(tmp_path / "c")
    with pytest.raises(InvalidId):
        store.get("../x")
    with pytest.raises(NoSuchCandidate):
        store.get(Ulid.new())


def test_links_in_a_candidate_are_refused(tmp_path):
    store = Candidates(tmp_path / "c")
    one = candidate()
    project = store.add(one, {"a": "x"})
    (project / "b").symlink_to("/etc/passwd")
    with pytest.raises(CandidateBroken):
        store.files(one.id)


def test_a_candidate_that_cannot_be_written_whole_is_not_there(tmp_path):
    store = Candidates(tmp_path / "c")
    with pytest.raises(OSError):
        store.add(candidate(), {"a": "x", "a/b": "y"})
    assert store.all() == ()


def test_a_record_of_another_candidate_is_refused(tmp_path):
    store = Candidates(tmp_path / "c")
    one, two = candidate(), candidate()
    store.add(one, {})
    store.add(two, {})
    (tmp_path / "c" / two.id / "candidate.json").write_bytes((tmp_path / "c" / one.id / "candidate.json").read_bytes())
    with pytest.raises(CandidateBroken):
        store.get(two.id)


def test_the_longest_record_that_is_allowed_can_be_read_again(tmp_path):
    store = Candidates(tmp_path / "c")
    longest = msgspec.structs.replace(
        candidate(),
        prompt="\x01" * MAX_PROMPT_CHARS,
        runs=(str.__str__(Ulid.new()),) * MAX_CALLS,
        notes=("\x01" * (MAX_NOTES_CHARS // MAX_NOTES),) * MAX_NOTES,
    )
    store.add(longest, {"a": "x"})
    assert store.all() == (longest,)


def test_no_record_is_written_that_could_not_be_read(tmp_path):
    store = Candidates(tmp_path / "c")
    with pytest.raises(CandidateBroken, match="bytes"):
        store.add(msgspec.structs.replace(candidate(), notes=("x" * 1024 * 1024,)), {"a": "x"})
    assert (store.all(), store.broken(), list((tmp_path / "c").iterdir())) == ((), {}, [])
    one = candidate()
    store.add(one, {"a": "x"})
    with pytest.raises(CandidateBroken, match="bytes"):
        store.put(msgspec.structs.replace(one, notes=("x" * 1024 * 1024,)))
    assert store.all() == (one,)


@pytest.mark.parametrize("record", [b"", b"{", b"[" * 100_000, b'{"id": 1}', b" " * 1024 * 1024 + b"{}", None])
def test_a_candidate_that_cannot_be_read_is_in_nobodys_way_and_can_be_discarded(tmp_path, record):
    store = Candidates(tmp_path / "c")
    one, two = candidate(), candidate()
    store.add(one, {"a": "x"})
    store.add(two, {"a": "x"})
    place = tmp_path / "c" / one.id / "candidate.json"
    place.unlink()
    if record is not None:
        place.write_bytes(record)
    assert store.all() == (two,)
    assert set(store.broken()) == {one.id}
    assert store.discard(one.id) is None
    assert (store.all(), store.broken()) == ((two,), {})
    with pytest.raises(NoSuchCandidate):
        store.discard(one.id)
