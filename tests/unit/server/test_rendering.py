"""What templates make of values."""

import re
from importlib.resources import files
from pathlib import Path

import pytest
from markupsafe import Markup

from palyra.pipeline.domain.receipt_text import format_size
from palyra.server.console.limits import MAX_SHOWN_CHARS
from palyra.server.console.rendering import (
    Assets,
    cedar_name,
    clipped,
    duration,
    environment,
    moment,
    query_of,
    sentence,
    short_id,
    shown_json,
    texts,
    ticked,
    when,
    words,
)

TEMPLATES = Path(str(files("palyra.server.console"))) / "templates"


def test_everything_from_outside_is_escaped() -> None:
    made = environment(Assets.load()).from_string("{{ a }}{{ b | shown_json }}{{ c | clipped }}")
    text = made.render(a="<script>", b={"k": "<img src=x>"}, c="<b>\x1b[31m")
    assert "<script>" not in text and "<img" not in text and "<b>" not in text and "\\x1b" in text


def test_a_receipt_shows_its_bytes_in_larger_units_and_keeps_the_number() -> None:
    made = environment(Assets.load()).from_string("{{ text | sized(layer) }}")
    quota = made.render(text="65536 bytes, <b>then</b>", layer="output_quota")
    assert quota == '<span title="65536 bytes">64 KiB</span>, &lt;b&gt;then&lt;/b&gt;'
    spent = made.render(text="70000", layer="network bytes")
    assert spent == '<span title="70000">68 KiB</span> <span class="muted">(70,000)</span>'


def test_values_in_words() -> None:
    assert [format_size(each) for each in (0, 1023, 2048, 5 * 1024**2, 10**13)] == [
        "0 B",
        "1023 B",
        "2 KiB",
        "5 MiB",
        "9313 GiB",
    ]
    assert [duration(each) for each in (None, 5, 1500, 600_000, 10_000_000)] == [
        "–",
        "5 ms",
        "1.5 s",
        "10 min",
        "2.8 h",
    ]
    assert words("needs_approval") == "needs approval" and short_id("") == "–" and short_id("0123456789") == "23456789"
    assert 'datetime="1970-01-01T00:00:01.000Z"' in when(1000) and "–" in when(None)
    assert shown_json({"a": "ä"}) == '{\n  "a": "ä"\n}'


def test_long_text_is_cut_and_says_so() -> None:
    assert clipped("x" * (MAX_SHOWN_CHARS + 7)).endswith("… 7 more characters")


def test_a_query_keeps_the_rest_of_itself() -> None:
    assert query_of({"tool": "a b", "before": "1"}, before="2") == "?tool=a+b&before=2"
    assert query_of({"before": "1"}, before=None) == "?"


def test_an_instant_is_never_without_its_zone() -> None:
    assert "1970-01-01 00:00:01 UTC" in when(1000)
    assert moment(1000).startswith('<span class="instant">1970-01-01 00:00:01 UTC</span>') and moment(None) == when(
        None
    )


def test_what_stands_in_backticks_is_code_and_everything_is_escaped() -> None:
    assert ticked("run `palyra <x>` & wait") == "run <code>palyra &lt;x&gt;</code> &amp; wait"
    assert ticked("an `odd one") == "an `odd one"


def test_a_sentence_begins_with_a_capital_unless_it_begins_with_a_name() -> None:
    assert sentence("the path is wrong") == "The path is wrong."
    assert sentence("a.example:80 is not allowed") == "a.example:80 is not allowed."
    assert sentence("is it?") == "Is it?"


def test_text_of_several_lines_is_shown_as_it_is_read() -> None:
    assert texts({"content": "a\nb\n", "path": "x", "n": 1, "end": "a\n"}) == [("content", "a\nb\n")]
    assert texts("a\nb") == [] and texts(None) == []


def test_names_of_policies_entities_are_those_of_everything_else() -> None:
    assert [cedar_name(each) for each in ('Agent::"coder"', 'Tool::"fs.read"', "odd")] == [
        "agent:coder",
        "fs.read",
        "odd",
    ]


def test_on_a_phone_each_cell_names_its_column() -> None:
    """There a row is told in lines, and the head of the table is not seen."""
    tables = 0
    for template in TEMPLATES.glob("*.html"):
        for table in re.findall(
            r'<table class="list[^"]*">.*?</table>', template.read_text(encoding="utf-8"), re.DOTALL
        ):
            head, _, body = table.partition("</thead>")
            columns = [re.sub("<[^>]*>", "", each) for each in re.findall(r"<th[^>]*>(.*?)</th>", head)]
            assert re.findall(r'<td data-label="([^"]*)"', body) == columns, template.name
            assert body.count("<td") == len(columns), template.name
            tables += 1
    assert tables > 15


@pytest.mark.promise("P-approval-shown")
def test_no_page_shows_text_from_outside_with_invisible_characters() -> None:
    template = environment(Assets.load()).from_string("<p title='{{ x }}'>{{ x }}</p>{{ y }}")
    shown = template.render(x="a\u202e<b>\u200b\U000e0041", y=Markup("<i>\u2014</i>"))
    text = "a\\u202e&lt;b&gt;\\u200b\\U000e0041"
    assert shown == f"<p title='{text}'>{text}</p><i>\u2014</i>"
