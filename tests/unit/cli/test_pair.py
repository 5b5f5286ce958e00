import asyncio

import pytest

from fakes.command_line import command_line_in
from fakes.daemon import Place
from fakes.node_state_harness import code_record, pairing_record
from fakes.pairing_harness import Device
from palyra.config.state_dir import StateDir
from palyra.daemon.gateway_wiring import Gateway
from palyra.daemon.settings import Settings
from palyra.devicelink.pairing.code import DeviceFacts, ServerAddress, parse_code


@pytest.fixture
def cli(tmp_path):
    return command_line_in(tmp_path)


def prepare(cli, tmp_path, *records):
    async def put():
        state = (await gateway.nodes.opened()).state
        await state.transact(
            lambda unit: [(unit.codes if hasattr(one, "nameplate") else unit.pairings).put(one) for one in records]
        )

    gateway = Gateway(Settings(), StateDir.open(cli.state_dir), tmp_path / "policies", channel="cli")
    try:
        asyncio.run(put())
    finally:
        gateway.close()


def test_without_a_code_no_picture_of_one_is_left(cli, tmp_path):
    picture = tmp_path / "code.svg"
    refused = cli("pair", "code", "--method", "qr", "--svg", str(picture), "--json")
    assert not refused.document["ok"]
    assert not picture.exists()


def test_without_a_daemon_no_code_is_made_and_it_says_why(cli):
    refused = cli("pair", "code", "--json")
    assert (refused.status, refused.document["error"]["code"]) == (6, "pairing.not_listening")


def test_requests_are_listed_and_decided_without_a_daemon_too(cli, tmp_path):
    hostile = DeviceFacts(name="laptop [2J")
    waiting, other, code = pairing_record(facts=hostile), pairing_record(), code_record(nameplate="777")
    prepare(cli, tmp_path, waiting, other, code)
    shown = cli("pair", "list")
    assert str(waiting.id) in shown.out and "123456" in shown.out and "777" in shown.out
    for listed in (cli("approvals", "list"), cli("approvals", "list", "--state", "all")):
        assert str(waiting.id) in listed.out
    assert cli("approvals", "list", "--state", "denied", "--json").document["data"]["pairings"] == []
    wrong = cli("pair", "approve", str(waiting.id), "--compare", "000000", "--json")
    assert wrong.document["error"]["code"] == "pairing.wrong_comparison_code"
    approved = cli("pair", "approve", str(waiting.id), "--compare", "123456")
    assert approved.status == 0 and "approved" in approved.out
    assert cli("pair", "reject", str(other.id), "--reason", "no", "--json").document["data"]["state"] == "rejected"
    assert cli("pair", "reject", str(code.id), "--json").document["data"]["state"] == "withdrawn"
    unknown = cli("pair", "reject", "nothing", "--json")
    assert unknown.document["error"]["code"] == "pairing.unknown_code"


@pytest.mark.parametrize("method", ["pin", "qr"])
def test_a_code_made_at_a_daemon_pairs_a_device(tmp_path, method):
    place = Place(tmp_path)
    with place.daemon():
        made = place.palyra("pair", "code", "--method", method, "--json").data
        shown = place.palyra("pair", "code", "--method", method)
        assert shown.status == 0 and "palyra node run" in shown.stdout
        assert ("▀" in shown.stdout or "▄" in shown.stdout) is (method == "qr")
        picture = tmp_path / "code.svg"
        drawn = place.palyra("pair", "code", "--method", method, "--svg", str(picture), "--json")
        assert drawn.status == (0 if method == "qr" else 2) and picture.exists() is (method == "qr")
        if method == "qr":
            assert picture.read_text().startswith("<svg") and picture.stat().st_mode & 0o777 == 0o600
            again = place.palyra("pair", "code", "--method", method, "--svg", str(picture), "--json")
            assert again.error["code"] == "cli.qr_not_saved"
        device = Device(ServerAddress.parse(made["addresses"][0]))
        proved = asyncio.run(device.prove(parse_code(made["code"])))
        (waiting,) = place.palyra("approvals", "list", "--json").data["pairings"]
        assert waiting["comparison_code"] == proved.comparison_code
        place.palyra("pair", "approve", waiting["id"])
        assert asyncio.run(device.ask(proved, wait_ms=30_000)).state == "completed"
