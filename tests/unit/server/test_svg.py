"""Charts are markup of ours around text of anybody's."""

from xml.etree import ElementTree

from palyra.server.console.svg import Bar, Span, bars, meter, span


def test_columns_are_as_high_as_their_numbers_and_say_them() -> None:
    drawn = str(bars([Bar(label="1", parts=(("succeeded", 3), ("refused", 1))), Bar(label="2", parts=())], '<&">'))
    tree = ElementTree.fromstring(drawn)
    heights = {each.get("class"): float(each.get("height", 0)) for each in tree.iter("rect")}
    assert heights["chart-succeeded"] == 24.0 and heights["chart-refused"] == 8.0
    assert [each.text for each in tree.iter("title")] == ["1: 3 succeeded, 1 refused", "2: nothing"]
    assert tree.get("aria-label") == '<&">' and "style=" not in drawn


def test_a_meter_never_leaves_its_box() -> None:
    for used, reserved, cap in ((0, 0, 0), (5, 10, 10), (50, 50, 10), (1, 0, 10**9)):
        tree = ElementTree.fromstring(str(meter(used, reserved, cap, "x")))
        ends = [float(each.get("x", 0)) + float(each.get("width", 0)) for each in tree.iter("rect")]
        assert max(ends) <= 100.0
        seen = [each for each in tree.iter("rect") if each.get("class") in ("chart-ok", "chart-bad")]
        assert (float(seen[0].get("width", 0)) > 0) == (used > 0)


def test_a_short_call_can_still_be_seen() -> None:
    tree = ElementTree.fromstring(str(span(Span(waited=(0.0, 0.5), ran=(0.5, 0.50001), good=False), "x")))
    widths = {each.get("class"): float(each.get("width", 0)) for each in tree.iter("rect")}
    assert widths["chart-waits"] == 50.0 and widths["chart-bad"] > 0.5
