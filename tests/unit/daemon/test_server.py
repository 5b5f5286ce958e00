"""Where the daemon listens, and where it does not."""

import contextlib
import json
import signal
import socket
from pathlib import Path

import pytest

from fakes.daemon import Place
from palyra.daemon.palyrad import InsecureBind, PortTaken, bind


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.53"])
def test_loopback_is_listened_on(host: str) -> None:
    with bind(host, 0) as listener:
        assert listener.getsockname()[1] > 0


def test_the_loopback_of_ipv6_is_not_called_insecure() -> None:
    # A machine without IPv6 has no such address.
    with contextlib.suppress(PortTaken), bind("::1", 0) as listener:
        assert listener.getsockname()[0] == "::1"


@pytest.mark.promise("P-api-local")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "8.8.8.8", "example.com", "", "127.0.0.1.nip.io"])
def test_anything_else_is_refused_before_a_socket_is_made(host: str) -> None:
    with pytest.raises(InsecureBind):
        bind(host, 0)


def test_a_port_in_use_is_not_available() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(PortTaken):
        bind("127.0.0.1", taken.getsockname()[1])


@pytest.mark.promise("P-service")
def test_the_daemons_life_on_its_state_directory(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.daemon() as daemon:
        written = json.loads((place.state / "daemon.json").read_text())
        assert written == {"url": daemon.url, "pid": daemon.process.pid}
        second = place.palyra("up", "--port", "0", "--json")
        assert second.status == 6 and second.error["code"] == "daemon.already_running"
        assert json.loads((place.state / "daemon.json").read_text()) == written, "a second start breaks nothing"
        assert daemon.stop() == 0
    assert not (place.state / "daemon.json").exists()
    kinds = [event["kind"] for event in place.palyra("journal", "tail", "--json").data["events"]]
    assert (kinds[0], kinds[-1]) == ("daemon.started", "daemon.stopped")
    verified = place.palyra("journal", "verify", "--json")
    assert verified.status == 0 and verified.data["unsealed"] == 0, "stopping seals the journal"


@pytest.mark.promise("P-service")
def test_ctrl_c_stops_it_in_order_too(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.daemon() as daemon:
        daemon.process.send_signal(signal.SIGINT)
        assert daemon.process.wait(30) == 0
    assert not (place.state / "daemon.json").exists()
