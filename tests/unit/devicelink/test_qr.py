from xml.etree import ElementTree

from palyra.devicelink.pairing.code import qr_svg, qr_terminal
from palyra.secret import Secret

PAYLOAD = Secret("palyra://pair?v=1&k=node&a=192.0.2.10%3A7143&h=" + "ab" * 32 + "&n=123&t=AAAAAAAAAAAAAAAAAAAAAA")


def test_a_terminal_of_eighty_columns_shows_it_whole():
    lines = qr_terminal(PAYLOAD).splitlines()
    assert 20 < len(lines) <= 40
    import re

    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in lines) <= 80


def test_the_svg_is_one_element_that_holds_no_text():
    root = ElementTree.fromstring(qr_svg(PAYLOAD))
    assert root.tag.endswith("svg")
    assert "palyra" not in qr_svg(PAYLOAD)


def test_another_payload_is_another_picture():
    assert qr_svg(PAYLOAD) != qr_svg(Secret(PAYLOAD.reveal() + "x"))
