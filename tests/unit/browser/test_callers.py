"""Rights: each request of the service has one, and none reaches further than it says."""

import pytest

from palyra.browser.domain.session_api import Caller
from palyra.browser.service.access import RIGHTS, OperatorOnly, OwnerOnly, Right, admit
from palyra.ids import InvalidPrincipal
from palyra.wire.browser.v1 import browser_pb2 as wire

METHODS = [method.name for method in wire.DESCRIPTOR.services_by_name["BrowserService"].methods]
OWNER = Caller(principal="agent:a")
OPERATOR = Caller(operator="user:o")


@pytest.mark.promise("P-own-only")
def test_every_request_has_a_right_and_no_other_has_one() -> None:
    assert set(RIGHTS) == set(METHODS)
    assert [name for name, right in RIGHTS.items() if right is Right.ANYONE] == ["Health"]


@pytest.mark.parametrize("method", [name for name in METHODS if RIGHTS[name] is not Right.ANYONE])
def test_a_right_lets_in_whom_it_names(method: str) -> None:
    right = RIGHTS[method]
    if right is Right.OPERATOR:
        with pytest.raises(OperatorOnly):
            admit(method, OWNER)
    else:
        assert admit(method, OWNER) == OWNER
    if right is Right.OWNER:
        with pytest.raises(OwnerOnly):
            admit(method, OPERATOR)
    else:
        assert admit(method, OPERATOR) == OPERATOR


@pytest.mark.parametrize(
    "caller",
    [
        Caller(),
        Caller(principal="root"),
        Caller(principal="agent:a\n"),
        Caller(operator="x"),
        Caller(principal="agent:"),
    ],
)
def test_names_that_are_none_are_refused(caller: Caller) -> None:
    with pytest.raises(InvalidPrincipal):
        admit("GetSession", caller)
