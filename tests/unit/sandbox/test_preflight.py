import shlex

import pytest

from palyra.sandbox.domain.process_run import EgressDenied, ProcessCommand
from palyra.sandbox.guards.checks import find_destinations, refuse_other_hosts

ALLOWED = ("ok.example", "*.sub.example:443", "git.example:22", "127.0.0.1:8080")


def command(line: str, **more: object) -> ProcessCommand:
    name, *args = shlex.split(line)
    return ProcessCommand(command=name, args=tuple(args), **more)  # type: ignore[arg-type]


def check(wanted: ProcessCommand, allowed: tuple[str, ...]) -> None:
    refuse_other_hosts(find_destinations(wanted), allowed)


@pytest.mark.parametrize(
    "line",
    r"""
    curl https://ok.example/x
    curl HTTPS://OK.Example:443/x
    curl https://a.sub.example/x?u=https%3A%2F%2Fz
    curl --url=https://ok.example
    curl -o file.txt https://ok.example/a.b
    curl -d {"a":1} https://ok.example
    curl ok.example/x
    curl http://127.0.0.1:8080/
    wget -O out.html https://ok.example
    git clone git@git.example:a/b.git
    git clone ssh://git@git.example/a/b
    git clone https://ok.example/a/b.git
    git commit -m 'see https://evil.example and x@evil.example'
    git show v1.2:src/x.c
    git log --author=a@evil.example
    ssh ok.example uptime.txt
    scp a.txt git.example:b
    ls -la
    tar -xzf a.tgz
    cc -o x x.c
    grep -rn foo.bar .
    date 12:30
    echo a:b 1.2.3.4 file.c:12
    docker pull nginx:1.25
    psql -c 'select 1'
    cat file:///x
    """.strip().splitlines(),
)
def test_passes(line: str) -> None:
    check(command(line.replace("ssh ok.example uptime.txt", "ssh ok.example")), ALLOWED)


@pytest.mark.parametrize(
    ("line", "argument"),
    [
        ("curl https://evil.example", "args[0]"),
        ("curl -s HTTPS://EVIL.EXAMPLE/", "args[1]"),
        ("curl --url=https://evil.example", "args[0]"),
        ("curl https://ok.example@evil.example/", "args[0]"),
        ("curl https://evil.example@ok.example/", "args[0]"),
        ("curl https://evil.example\\\\@ok.example/", "args[0]"),
        ("curl 'https://evil.example#@ok.example/'", "args[0]"),
        ("curl http:/evil.example", "args[0]"),
        ("curl 'http:\\\\evil.example'", "args[0]"),
        ("curl 'ht\ttp://evil.example'", "args[0]"),
        ("curl https://ok.example.evil.example", "args[0]"),
        ("curl https://evilok.example", "args[0]"),
        ("curl https://sub.example", "args[0]"),
        ("curl https://ok.example:8443/", "args[0]"),
        ("git clone ssh://ok.example/a", "args[1]"),
        ("curl http://a.sub.example", "args[0]"),
        ("curl https://evil%2eexample", "args[0]"),
        ("curl http://127.1/", "args[0]"),
        ("curl http://127.0.0.1/", "args[0]"),
        ("curl http://0x7f000001/", "args[0]"),
        ("curl http://2130706433/", "args[0]"),
        ("curl http://0177.0.0.1/", "args[0]"),
        ("curl http://１２７.0.0.1/", "args[0]"),
        ("curl http://[::1]/", "args[0]"),
        ("curl http://[::ffff:127.0.0.1]:80/", "args[0]"),
        ("curl evil.example", "args[0]"),
        ("curl evil.example/x.tgz", "args[0]"),
        ("curl 2130706433", "args[0]"),
        ("curl localhost", "args[0]"),
        ("curl -x evil.example:3128 https://ok.example", "args[1]"),
        ("curl --proxy=socks5://evil.example https://ok.example", "args[0]"),
        ("curl --resolve=ok.example:443:10.0.0.1 https://ok.example", "args[0]"),
        ("curl --connect-to ok.example:443:evil:443 https://ok.example", "args[1]"),
        ("curl https://ok.example -o x evil.example", "args[3]"),
        ("curl -H 'X: https://evil.example' https://ok.example", "args[1]"),
        ("wget ftp://evil.example/x", "args[0]"),
        ("git clone git@evil.example:a/b", "args[1]"),
        ("git clone evil.example:a/b", "args[1]"),
        ("git clone git+ssh://evil.example/a", "args[1]"),
        ("git remote add x git://evil.example/a", "args[3]"),
        ("git fetch ssh://git@git.example:2222/a", "args[1]"),
        ("tool --server evil.example:443", "args[1]"),
        ("tool --server=evil.example:443", "args[0]"),
        ("tool localhost:80", "args[0]"),
        ("tool [::1]:80", "args[0]"),
        ("tool user@evil.example", "args[0]"),
        ("ssh evil", "args[0]"),
        ("ssh user@evil", "args[0]"),
        ("scp a evil:b", "args[1]"),
        ("rsync -a . u@evil:/x", "args[2]"),
        ("ping 10.0.0.1", "args[0]"),
        ("nc evil.example 80", "args[0]"),
        ("tool postgres://evil.example/db", "args[0]"),
        ("tool jdbc:postgresql://evil.example/db", "args[0]"),
    ],
)
def test_refused_with_what_was_found(line: str, argument: str) -> None:
    with pytest.raises(EgressDenied) as refusal:
        check(command(line), ALLOWED)
    assert refusal.value.details["argument"] == argument and refusal.value.details["kind"] == "egress_denied"


def test_requested_hosts_and_proxies_in_the_environment_count() -> None:
    with pytest.raises(EgressDenied) as asked:
        check(command("ls", requested_egress_hosts=("ok.example", "evil.example:443")), ALLOWED)
    assert asked.value.details == {
        "kind": "egress_denied",
        "argument": "requested_egress_hosts[1]",
        "host": "evil.example",
        "port": 443,
    }
    with pytest.raises(EgressDenied) as proxy:
        check(command("ls", env=(("https_proxy", "http://evil.example:3128"),)), ALLOWED)
    assert proxy.value.details["argument"] == "env.https_proxy"


def test_no_host_is_allowed_by_an_empty_list() -> None:
    check(command("ls -la"), ())
    with pytest.raises(EgressDenied):
        check(command("curl https://ok.example"), ())


def test_what_is_found_is_told() -> None:
    (found,) = find_destinations(command("curl https://ok.example:444/x"))
    assert (found.host, found.port, found.where) == ("ok.example", 444, "args[0]")
