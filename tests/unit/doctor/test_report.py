"""The report: probes asked one by one, and what makes a machine not ready."""

import pytest

from palyra.doctor.report import Finding, NotReady, Probe, Status, examine, missing, ok, warn
from palyra.errors import ExitCode


def probe(name: str, finding: Finding, *, required: bool = True) -> Probe:
    return Probe(name=name, purpose="is tested", required=required, look=lambda: finding)


def test_only_a_missing_required_check_makes_the_machine_not_ready() -> None:
    report = examine(
        [
            probe("a", ok("seen")),
            probe("b", warn("weak", "strengthen it")),
            probe("c", missing("gone", "install it"), required=False),
        ]
    )
    assert report.unmet == ()
    report.raise_if_not_ready()
    assert [check.status for check in report.checks] == [Status.OK, Status.WARN, Status.MISSING]


def test_a_machine_that_is_not_ready_says_what_is_missing_and_carries_the_checks() -> None:
    report = examine([probe("a", ok("seen")), probe("b", missing("gone", "install it"))])
    with pytest.raises(NotReady, match=r"needs: b$") as caught:
        report.raise_if_not_ready()
    assert caught.value.exit_code is ExitCode.UNAVAILABLE
    assert [check["name"] for check in caught.value.details["checks"]] == ["a", "b"]
    assert caught.value.details["checks"][1]["fix"] == "install it"


def test_a_probe_that_breaks_counts_as_a_no_and_does_not_stop_the_others() -> None:
    def breaks() -> Finding:
        raise RuntimeError("boom")

    broken = Probe(name="a", purpose="is tested", required=True, look=breaks)
    report = examine([broken, probe("b", ok("seen"))])
    assert [check.status for check in report.checks] == [Status.MISSING, Status.OK]
    assert "boom" in report.checks[0].evidence
    assert report.unmet == (report.checks[0],)
