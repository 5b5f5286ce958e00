"""What templates make of values."""

from palyra.console.assets import Assets
from palyra.console.limits import MAX_SHOWN_CHARS
from palyra.console.rendering import clipped, duration, environment, query_of, short_id, shown_json, size, when, words


def test_everything_from_outside_is_escaped() -> None:
    made = environment(Assets.load()).from_string("{{ a }}{{ b | shown_json }}{{ c | clipped }}")
    text = made.render(a="<script>", b={"k": "<img src=x>"}, c="<b>\x1b[31m")
    assert "<script>" not in text and "<img" not in text and "<b>" not in text and "\\x1b" in text


def test_values_in_words() -> None:
    assert [size(each) for each in (0, 1023, 2048, 5 * 1024**2, 10**13)] == [
        "0 B",
        "1023 B",
        "2.0 KiB",
        "5.0 MiB",
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
