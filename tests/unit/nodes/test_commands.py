import pytest

from palyra.nodes.server.dispatcher import Cancel, CertificateNews, Command, Dispatch, Goodbye
from palyra.nodes.server.stream import to_wire


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (Dispatch("r", "c", b"{}", 5, 9), "dispatch"),
        (Cancel("r", "why"), "cancel"),
        (CertificateNews(b"pem", True), "certificate_news"),
        (Goodbye("a.b", "bye"), "goodbye"),
    ],
)
def test_every_command_has_its_form_on_the_wire(command: Command, name: str) -> None:
    sent = to_wire(command)
    assert sent.WhichOneof("command") == name
    for field in command.__struct_fields__:
        assert getattr(getattr(sent, name), field) == getattr(command, field)
