"""Tables at the width of a terminal: ids whole, nothing beyond the edge, nothing lost."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from palyra.cli.table import NARROWEST, draw_table, fold_line

ID = "01M7MK41GXQYSFC0GBMT4QY793"
KEY = "ed25519:c2833f59ce3cb28a5807ac88e617327d"
DIGEST = "a1" * 32
INSTANT = "2026-11-17T11:23:52.125Z"
# The widest tables that commands print, with what is usual in them.
TABLES = [
    [("approval", "state", "who asks", "tool", "until"), (ID, "pending", "agent:claude-code", "process.run", INSTANT)],
    [
        ("worker", "name", "state", "leases", "heard", "why"),
        (ID, "local-1", "quarantined", "0/4", INSTANT, "it answered too late three times"),
    ],
    [("lease", "worker", "tool", "state", "how", "granted", "call"), (ID, ID, "echo", "settled", "ok", INSTANT, ID)],
    [("publisher", "key", "state", "source", "since"), ("acme", KEY, "active", "allowlisted", INSTANT)],
    [
        ("request", "state", "device", "kind", "platform", "compare", "from", "other devices", "asked"),
        (ID, "completed", "local-1 egress", "egress", "linux-x86_64", "914376", "127.0.0.1", "", INSTANT),
    ],
    [("authority", "state", "made", "ends", "needed until"), (DIGEST, "current", INSTANT, INSTANT, INSTANT)],
    [
        ("tool", "tier", "can touch", "what it does"),
        ("browser.act", "browser", "browser, filesystem_read, network, secrets_read", "Act in a page"),
    ],
]


def draw(cells: list[tuple[str, ...]], width: int) -> list[str]:
    head, rows = draw_table(cells, width)
    return [*head, *rows]


@pytest.mark.promise("P-output")
@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("cells", TABLES, ids=lambda cells: cells[0][0])
def test_a_table_fits_and_keeps_its_ids_whole(cells: list[tuple[str, ...]], width: int) -> None:
    lines = draw(cells, width)
    assert max(map(len, lines)) <= width
    for value in cells[1]:
        if value in (ID, KEY, DIGEST):
            assert any(value in line for line in lines)
        if value == INSTANT:
            assert any(INSTANT in line or "2026-11-17T11:23:52Z" in line for line in lines)
    for word in " ".join((*cells[0], *cells[1])).split():
        if word not in (INSTANT, "other", "devices"):
            assert any(word in line for line in lines), word


def test_with_room_every_row_is_one_line_and_nothing_is_shortened() -> None:
    lines = draw(TABLES[0], 120)
    assert len(lines) == 3 and INSTANT in lines[2]
    assert lines[2].split() == [ID, "pending", "agent:claude-code", "process.run", INSTANT]


def test_a_column_without_values_and_milliseconds_make_room_first() -> None:
    head, *_, row = draw([("call", "why", "until", "who asks"), (ID, "", INSTANT, "agent:with-a-name-of-27")], 80)
    assert head.split() == ["call", "until", "who", "asks"]
    assert row.split() == [ID, "2026-11-17T11:23:52Z", "agent:with-a-name-of-27"]
    assert "why" in draw([("call", "why"), (ID, "")], 80)[0], "where there is room it stays"


def test_what_does_not_fit_goes_on_beneath_its_row_indented() -> None:
    cells = [("device", "owner", "until"), *((ID, KEY, INSTANT) for _ in range(2))]
    assert draw(cells, 80) == [
        "device                      owner",
        "  until",
        "─" * 68,
        *([f"{ID}  {KEY}", "  2026-11-17T11:23:52Z"] * 2),
    ]


def test_prose_is_folded_between_words_and_a_long_path_in_it_is_broken() -> None:
    path = "/home/somebody/" + "folder/" * 12
    lines = draw([("check", "evidence"), ("state", f"the folder {path} is private to you")], 60)
    assert max(map(len, lines)) <= 60 and len(lines) < 8
    assert "".join(line[7:] for line in lines[2:]).replace(" ", "") == f"thefolder{path}isprivatetoyou".replace(" ", "")


def test_wide_characters_count_as_what_they_take() -> None:
    lines = draw([("name", "what"), ("猫" * 10, "kočka a pes " * 8)], 60)
    assert all(cell_len(line) <= 60 for line in lines)
    assert lines[2].startswith("猫" * 10 + "  ko")


def test_an_empty_table_keeps_its_head_and_a_tiny_terminal_its_ids() -> None:
    assert draw_table([("a", "bb")], 80) == (["a  bb", "─" * 5], [])
    assert any(ID in line for line in draw([("call",), (ID,)], 10))


@pytest.mark.promise("P-output")
@given(
    st.integers(2, 7).flatmap(
        lambda columns: st.lists(
            st.tuples(*[st.text(string.ascii_letters + " -", max_size=90)] * columns), min_size=2, max_size=5
        )
    ),
    st.integers(1, 130),
)
def test_no_line_is_too_long_and_no_letter_is_lost(cells: list[tuple[str, ...]], width: int) -> None:
    head, rows = draw_table(cells, width)
    assert all(cell_len(line) <= max(width, NARROWEST) for line in (*head, *rows))
    wanted = sorted("".join("".join(row) for row in cells[1:]).replace(" ", ""))
    assert sorted("".join(rows).replace(" ", "")) == wanted
    for _, *values in zip(*cells, strict=True):
        if not any(" " in value for value in values):
            whole = [value for value in values if len(value) <= max(width, NARROWEST) - 2]
            assert all(any(value in line for line in rows) for value in whole if value)


def test_a_folded_line_is_indented_and_breaks_after_marks_before_it_breaks_values() -> None:
    line = f'24  call.requested  run={ID}  {{"argument_digest":"{DIGEST}","arguments":{{"path":"a"}}}}'
    first, *rest = fold_line(line, 80)
    assert first.startswith("24  call.requested") and all(each.startswith("  ") for each in rest)
    assert max(map(len, (first, *rest))) <= 80
    assert any(f'"{DIGEST}"' in each for each in rest) and any(ID in each for each in (first, *rest))
    assert fold_line("short", 80) == ["short"]
    assert "".join(each.strip() for each in fold_line("x" * 200, 60)) == "x" * 200
