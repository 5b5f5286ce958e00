"""The service is whole: each request of the protocol is answered here, and none without asking who it is for."""

import inspect

from palyra.browser.service.grpc_server import BrowserService
from palyra.wire.browser.v1 import browser_pb2 as wire

METHODS = wire.DESCRIPTOR.services_by_name["BrowserService"].methods


def test_every_request_has_an_answer_of_its_own() -> None:
    for method in METHODS:
        assert method.name in vars(BrowserService), method.name


def test_every_answer_names_its_own_right() -> None:
    """``for_caller`` looks the right up by the name of the method that it wraps."""
    for method in METHODS:
        answer = vars(BrowserService)[method.name]
        assert answer.__name__ == method.name
        source = inspect.getsource(inspect.unwrap(answer))
        assert source.lstrip().startswith("@for_caller\n") == (method.name != "Health"), method.name


def test_every_request_but_health_says_for_whom() -> None:
    for method in METHODS:
        fields = wire.DESCRIPTOR.message_types_by_name[method.input_type.name].fields_by_name
        assert ("caller" in fields) == (method.name != "Health"), method.name
