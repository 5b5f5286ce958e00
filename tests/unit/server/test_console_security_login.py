"""Wrong tokens are counted by the token they name, and all together."""

import pytest

from palyra.ids import TokenId
from palyra.server.console.errors import TooManyLogins
from palyra.server.console.limits import LOGIN_WINDOW_SECONDS, MAX_WRONG_LOGINS, MAX_WRONG_LOGINS_PER_TOKEN
from palyra.server.console.security import LoginThrottle


def token(name: str) -> str:
    return f"plr_{name}_{'x' * 43}"


def test_one_token_is_tried_a_few_times_and_another_still_may() -> None:
    throttle, name = LoginThrottle(), str(TokenId.new())
    for _ in range(MAX_WRONG_LOGINS_PER_TOKEN):
        throttle.count_wrong(token(name), 0.0)
    with pytest.raises(TooManyLogins):
        throttle.count_wrong(token(name), 1.0)
    throttle.count_wrong(token(str(TokenId.new())), 1.0)
    throttle.count_wrong(token(name), LOGIN_WINDOW_SECONDS)


@pytest.mark.promise("P-console-guarded")
def test_nonsense_counts_as_one_and_naming_many_gains_nothing() -> None:
    throttle = LoginThrottle()
    for number in range(MAX_WRONG_LOGINS_PER_TOKEN):
        throttle.count_wrong(f"nonsense {number}", 0.0)
    with pytest.raises(TooManyLogins):
        throttle.count_wrong("other nonsense", 0.0)
    for _ in range(MAX_WRONG_LOGINS - MAX_WRONG_LOGINS_PER_TOKEN):
        throttle.count_wrong(token(str(TokenId.new())), 0.0)
    with pytest.raises(TooManyLogins):
        throttle.count_wrong(token(str(TokenId.new())), 0.0)
