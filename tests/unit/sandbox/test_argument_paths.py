import pytest

from palyra.sandbox.guards.argument_paths import NamedPath, RemoteFile, named_paths, names_home


def texts(word: str) -> set[str]:
    return {named.text for named in named_paths(word) if isinstance(named, NamedPath)}


@pytest.mark.parametrize(
    ("word", "path"),
    [
        ("/etc/passwd", "/etc/passwd"),
        ("../x", "../x"),
        ("a/b", "a/b"),
        ("--file=/etc/x", "/etc/x"),
        ("--file=../x", "../x"),
        ("of=/etc/x", "/etc/x"),
        ("a.b-c=/x", "/x"),
        ("-C/etc", "/etc"),
        ("-C../x", "../x"),
        ("-C~/x", "~/x"),
        ("-xzf/etc/x", "/etc/x"),
        ("-xzf../x", "../x"),
        ("-xzfname", "name"),
        ("@/etc/x", "/etc/x"),
        ("-d@/etc/x", "/etc/x"),
        ("data=@/etc/x", "/etc/x"),
        ("/usr/bin:/etc", "/etc"),
        ("a:../b", "../b"),
        ("PATH=/usr/bin:/etc", "/etc"),
        ("-Wl,-rpath,/x", "/x"),
        ("-Wl,-rpath=/x", "/x"),
        ("-I'/x'", "/x"),
        ('--f="/x"', "/x"),
        ("file:///etc/x", "/etc/x"),
        ("FILE:///etc/x", "/etc/x"),
        ("file:/etc/x", "/etc/x"),
        ("file://localhost/etc/x", "/etc/x"),
        ("file:///%65tc/x", "/etc/x"),
        ("file:///%2565tc/x", "/etc/x"),
        ("file:///a/%2e%2e/x", "/a/../x"),
        ("file:///etc/x?y#z", "/etc/x"),
        ("file://", "/"),
        ("git+file:///etc/x", "/etc/x"),
        ("--url=file:///etc/x", "/etc/x"),
        ("unix:///run/x", "/run/x"),
        ("unix:/run/x", "/run/x"),
        ("sqlite:////etc/x", "/etc/x"),
        ("type=bind,source=/etc,target=/x", "/etc"),
        ("--/etc", "/etc"),
    ],
)
def test_the_path_in_a_word_is_found(word: str, path: str) -> None:
    assert path in texts(word)


def test_a_file_of_another_machine_is_told() -> None:
    assert RemoteFile("server") in named_paths("file://server/share/x")
    assert not any(isinstance(named, RemoteFile) for named in named_paths("file://LOCALHOST/x"))


@pytest.mark.parametrize(
    "word",
    [
        "https://example.org/etc/x",
        "ssh://h/etc",
        "--url=https://h/x",
        "origin/main",
        "1/2/2026",
        "text/html",
        "s/a/b/",
        "-la",
        "foo",
    ],
)
def test_no_certain_reading_leads_to_the_root(word: str) -> None:
    assert not [
        named
        for named in named_paths(word)
        if isinstance(named, NamedPath) and named.text.startswith("/") and not named.guess
    ]


def test_the_letters_before_a_slash_are_a_guess() -> None:
    assert NamedPath("/sys", guess=True) in named_paths("-Iinclude/sys")
    assert NamedPath("/sys") in named_paths("-I/sys")


def test_nested_words_end_somewhere() -> None:
    assert len(named_paths("a=" * 2000)) < 100
    assert len(named_paths(":" * 4000)) < 100
    assert len(named_paths(",a=:" * 1000)) < 5000


def test_homes() -> None:
    assert all(map(names_home, ("~", "~/x", "~root/x", "~a.b/")))
    assert not any(map(names_home, ("~1", "HEAD~1", "x~", "a/~/x", "~$doc", "~backup")))
