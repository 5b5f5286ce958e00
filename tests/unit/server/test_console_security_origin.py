"""Which page may send what."""

import pytest

from palyra.server.console.errors import CrossOrigin
from palyra.server.console.security import check_origin

OURS = "http://127.0.0.1:7142"
OTHER_PORT = "http://127.0.0.1:9999"


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", {}),
        ("GET", {"sec-fetch-site": "same-origin"}),
        ("GET", {"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}),
        ("POST", {"origin": OURS}),
        ("DELETE", {"origin": OURS, "sec-fetch-site": "same-origin"}),
    ],
)
def test_our_own_pages_and_links_from_elsewhere(method: str, headers: dict[str, str]) -> None:
    check_origin(method, OURS, headers)


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("POST", {}),
        ("POST", {"origin": "null"}),
        ("POST", {"origin": OTHER_PORT}),
        ("POST", {"origin": "https://127.0.0.1:7142"}),
        ("DELETE", {"sec-fetch-site": "same-origin"}),
        ("GET", {"origin": OTHER_PORT}),
        ("GET", {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"}),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}),
    ],
)
def test_everybody_else(method: str, headers: dict[str, str]) -> None:
    with pytest.raises(CrossOrigin):
        check_origin(method, OURS, headers)
