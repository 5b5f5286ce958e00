from palyra.store.event import Event


def make(**changes):
    fields = {
        "seq": 1, "id": "01J", "time_ms": 5, "kind": "a.b", "actor": "ü", "principal": "", "run": "", "call": "",
        "payload": b"{}", "prev_hash": b"p", "hash": b"h",
    }  # fmt: skip
    return Event(**{**fields, **changes})


def test_a_row_gives_the_event_back():
    event = make()
    assert Event.from_row(event.row()) == event


def test_undecodable_text_becomes_visible_instead_of_failing():
    row = make().row()
    assert Event.from_row((*row[:4], b"\xff\xfe", *row[5:])).actor == "\\xff\\xfe"


def test_a_payload_that_is_no_longer_json_is_shown_as_text():
    assert make(payload=b'{"a": 1}').payload_value() == {"a": 1}
    assert make(payload=b"{broken\xff").payload_value() == "{broken\\xff"
    assert make(payload=b'{"a": "\xff"}').payload_value() == '{"a": "\\xff"}'
    assert make(payload=b"[" * 100_000).payload_value() == "[" * 100_000
