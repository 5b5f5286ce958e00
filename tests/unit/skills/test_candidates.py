import pytest

from palyra.ids import InvalidId, Ulid
from palyra.skills.builder import Candidate, CandidateState
from palyra.skills.candidates import CandidateBroken, Candidates, NoSuchCandidate
from palyra.skills.project import Language


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
    store.put(one.closed(CandidateState.DISCARDED))
    store.drop_files(one.id)
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
