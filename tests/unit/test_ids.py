"""Ids: canonical ULIDs, one type per noun."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.errors import ExitCode
from palyra.ids import ApprovalId, CallId, EventId, InstanceId, InvalidId, RunId, TokenId, Ulid

KINDS = [RunId, CallId, ApprovalId, EventId, TokenId, InstanceId]


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_id_parses_back_to_itself_and_keeps_its_type(kind: type[Ulid]) -> None:
    made = kind.new()
    parsed = kind.parse(made)
    assert parsed == made
    assert type(parsed) is kind


def test_ids_are_unique_and_sort_by_time_at_millisecond_steps() -> None:
    made = [CallId.new() for _ in range(1000)]
    assert len(set(made)) == 1000
    stamps = [call[:10] for call in made]
    assert stamps == sorted(stamps)


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "01ARZ3NDEKTSV4RRFFQ69G5FA",
        "01ARZ3NDEKTSV4RRFFQ69G5FAVX",
        "01arz3ndektsv4rrffq69g5fav",
        "81ARZ3NDEKTSV4RRFFQ69G5FAV",
        "01ARZ3NDEKTSV4RRFFQ69G5FAI",
        "01ARZ3NDEKTSV4RRFFQ69G5FAV\n",
        " 01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "01ARZ3NDEKTSV4RRFFQ69G5FA١",
    ],
)
def test_other_spellings_are_refused(raw: str) -> None:
    with pytest.raises(InvalidId) as caught:
        RunId.parse(raw)
    assert caught.value.exit_code is ExitCode.USAGE
    assert "run id" in caught.value.message


@given(st.text(max_size=40))
def test_what_parses_is_exactly_26_characters_of_the_alphabet(raw: str) -> None:
    try:
        parsed = CallId.parse(raw)
    except InvalidId:
        return
    assert parsed == raw
    assert len(raw) == 26
    assert set(raw) <= set("0123456789ABCDEFGHJKMNPQRSTVWXYZ")


def test_a_long_hostile_id_is_cut_in_the_message() -> None:
    with pytest.raises(InvalidId) as caught:
        CallId.parse("\x1b[31m" * 10_000)
    assert len(caught.value.message) < 400
    assert "\x1b" not in caught.value.message


def test_an_id_begins_with_its_time() -> None:
    from palyra.ids import instant_of, ulid_at

    before = ulid_at(1_700_000_000_000)
    assert len(before) == 26 and instant_of(before) == 1_700_000_000_000
    made = str(CallId.new())
    assert ulid_at(instant_of(made)) <= made < ulid_at(instant_of(made) + 1)
