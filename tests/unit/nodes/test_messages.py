import msgspec

from palyra.nodes.agent.messages import Note, NoteState, Outcome, OutcomeKind


def test_outcomes_carry_what_their_kind_needs_and_notes_read_back() -> None:
    assert Outcome.succeeded(b"1").kind is OutcomeKind.SUCCEEDED
    assert Outcome.rejected("a.b", "no").kind.value == "rejected"
    failed = Outcome.failed("a.b", "no")
    note = Note(request_id="R", capability="c", state=NoteState.FINISHED, outcome=failed)
    assert msgspec.json.decode(msgspec.json.encode(note), type=Note) == note
