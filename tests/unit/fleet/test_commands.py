import inspect

from fakes.fleet_peers import WORKER, FleetPeers
from palyra.fleet.domain import commands, leasing, manager
from palyra.fleet.domain.commands import FleetCommand

ALL = [one for _, one in inspect.getmembers(commands, inspect.isclass) if issubclass(one, FleetCommand)]


def test_every_command_is_decided_somewhere() -> None:
    text = inspect.getsource(manager) + inspect.getsource(leasing)
    for command in set(ALL) - {FleetCommand}:
        assert f"case commands.{command.__name__}()" in text, command


def test_what_may_void_leases_is_shown_them() -> None:
    shown = {one.__name__ for one in ALL if one.with_open_leases}
    assert shown == {
        "OpenSession",
        "PresentAttestation",
        "ReportWorkspaces",
        "DeclareLost",
        "ClaimCleanup",
        "QuarantineWorker",
        "ReportViolation",
        "RemoveWorker",
        "DeclineLease",
        "SettleLease",
        "NoteTaken",
        "DisclaimLease",
        "ExpireLease",
    }


def test_only_a_new_lease_takes_a_fencing_number() -> None:
    assert [one.__name__ for one in ALL if one.with_fence] == ["LeaseWork"]
    assert [one.__name__ for one in ALL if one.with_count] == ["OpenSession"]
    assert FleetPeers().open_session().worker_id == WORKER


def test_what_begins_work_does_not_use_the_space_held_back_for_a_full_disk() -> None:
    begins = {one.__name__ for one in ALL if one.begins_work}
    assert begins == {"OpenSession", "IssueGrant", "LeaseWork", "RetryLease"}
