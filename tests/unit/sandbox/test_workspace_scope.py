import pytest

from fakes.guard_harness import DictFiles
from palyra.sandbox.domain.process_run import InvalidCommand, ProcessCommand, WorkspaceScopeDenied
from palyra.sandbox.guards.argument_paths import resolve_cwd, validate_argument_workspace_scope

FILES = DictFiles(
    {
        "/home/u/ws/f": None,
        "/home/u/ws/sub/g": None,
        "/home/u/ws/out": "/etc",
        "/home/u/ws/up": "../secret",
        "/home/u/ws/in": "sub",
        "/home/u/ws/null": "/dev/null",
        "/home/u/ws/magic": "/proc/self/root",
        "/home/u/ws/loop": "loop",
        "/home/u/ws/https:/": None,
        "/home/u/secret": None,
        "/link": "/home/u/ws",
        "/etc/passwd": None,
        "/usr/include/": None,
        "/usr/escape": "/etc",
        "/lib": "usr/lib",
        "/usr/lib/": None,
        "/dev/null": None,
    }
)
ROOT = "/home/u/ws"


def check(*args: str, command: str = "tool", cwd: str = ROOT, root: str = ROOT) -> None:
    validate_argument_workspace_scope(ProcessCommand(command=command, args=args), root, cwd, FILES)


@pytest.mark.parametrize(
    "word",
    [
        "f",
        "./f",
        "sub/g",
        "in/g",
        "new/deep/file",
        "/home/u/ws/f",
        "/home/u/ws",
        "/link/f",
        "--f=sub/g",
        "--f=/home/u/ws/f",
        "a=b",
        "-la",
        "-Isub",
        "-I.",
        "origin/main",
        "s/a/b/",
        "1/2/2026",
        "text/html",
        "*/*",
        "library/nginx:latest",
        "http://example.org/../../../x",
        "--u=https://example.org/x",
        "ssh://git@h/x",
        "HEAD~1",
        "HEAD..main",
        "..main",
        "...",
        "@",
        "@f",
        "-",
        "--",
        "--opt=",
        "sub/../f",
        "out/../home/u/ws/f",
        "/dev/null",
        "/dev/stdin",
        "-o/dev/null",
        "null",
        "of=/dev/null",
        "/usr/include",
        "-I/usr/include",
        "-L/lib",
        "/lib/x.so",
        "/usr/new",
        "file:///home/u/ws/f",
        "-Wl,-rpath,/usr/lib",
        "a:b:c",
        "12:30",
        "-Iinclude/nosuch",
        "file:f",
        "key=value:other",
        "{}",
        '""',
        "''",
        "$ORIGIN/../lib",
        "50%",
        "a,b",
        "-march=x86-64",
        "--color=auto",
        "-DFOO=1",
        "-std=c++17",
        "git@h:a/b",
    ],
)
def test_inside(word: str) -> None:
    check(word)


@pytest.mark.parametrize(
    "word",
    [
        "/",
        "/etc",
        "/etc/passwd",
        "/nosuch/x",
        "..",
        "../x",
        "../../u/secret",
        "sub/../../secret",
        "out",
        "out/passwd",
        "out/new",
        "up",
        "in/../../secret",
        "--f=/etc/x",
        "--f=../x",
        "-C/etc",
        "-C..",
        "-Cout",
        "-xzf/etc/passwd",
        "-xzfout",
        "@/etc/passwd",
        "@../x",
        "-d@/etc/x",
        "k=/etc/x",
        "k=out/x",
        "of=/etc/x",
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "file:/etc/passwd",
        "file://localhost/etc/x",
        "file://server/home/u/ws/f",
        "file:///%65tc/x",
        "file:///home/u/ws/%2e%2e/secret",
        "file://%65vil/x",
        "--url=file:///etc/x",
        "f:/etc/x",
        "/usr/bin:/etc",
        "PATH=/usr/bin:..",
        "/usr/bin://etc/passwd",
        "-Wl,-rpath,/etc",
        "~",
        "~/x",
        "~root/x",
        "--f=~/x",
        "-C~/x",
        "/proc/self/environ",
        "/proc/self/cwd/f",
        "magic/etc",
        "loop",
        "/dev/sda",
        "/dev/fd/3",
        "/dev/null/../sda",
        "/usr/escape/x",
        "/usr/../etc/x",
        "/home/u",
        "/home/u/wsx",
        "/link/../x",
        "unix:///run/docker.sock",
        "type=bind,source=/etc,target=/x",
        "https://../../../etc/passwd",
    ],
)
def test_outside(word: str) -> None:
    with pytest.raises(WorkspaceScopeDenied) as refusal:
        check("ok", word)
    assert refusal.value.details["argument"] == "args[1]" and refusal.value.details["kind"] == "workspace_scope_denied"
    assert refusal.value.details["path"]


def test_relative_words_are_judged_from_the_working_directory() -> None:
    check("../f", cwd=f"{ROOT}/sub")
    with pytest.raises(WorkspaceScopeDenied):
        check("../../secret", cwd=f"{ROOT}/sub")


def test_a_workspace_behind_a_link() -> None:
    check("f", "/link/f", "/home/u/ws/f", root="/link")


def test_text_is_no_path_but_files_in_scripts_are() -> None:
    check("/^#/d", "f", command="sed")
    check("-r", "/api/v1", ".", command="grep")
    check("commit", "-m", "/etc is fixed", command="git")
    with pytest.raises(WorkspaceScopeDenied):
        check("w /etc/x", "f", command="sed")
    with pytest.raises(WorkspaceScopeDenied):
        check("-H", "@/etc/passwd", command="curl")
    with pytest.raises(WorkspaceScopeDenied):
        check("x", "/etc/passwd", command="grep")


def test_paths_of_other_machines() -> None:
    check("h:/etc/x", "f", command="scp")
    check("u@h:/srv/x.git", command="git")
    with pytest.raises(WorkspaceScopeDenied):
        check("h:/etc/x")
    with pytest.raises(WorkspaceScopeDenied):
        check("/etc/passwd", "h:x", command="scp")


def test_more_readable_roots() -> None:
    command = ProcessCommand(command="tool", args=("/opt/tool/x",))
    validate_argument_workspace_scope(command, ROOT, ROOT, FILES, ("/opt/tool",))
    with pytest.raises(WorkspaceScopeDenied):
        validate_argument_workspace_scope(command, ROOT, ROOT, FILES)


@pytest.mark.parametrize(
    ("cwd", "real"),
    [
        (None, ROOT),
        (".", ROOT),
        ("sub", f"{ROOT}/sub"),
        ("in", f"{ROOT}/sub"),
        (f"{ROOT}/sub", f"{ROOT}/sub"),
        ("/link/sub", f"{ROOT}/sub"),
    ],
)
def test_working_directories(cwd: str | None, real: str) -> None:
    assert resolve_cwd(cwd, ROOT, FILES) == real


@pytest.mark.parametrize("cwd", ["..", "/", "/etc", "out", "sub/../..", "magic", "/proc/self/cwd", "loop", "up"])
def test_working_directories_outside(cwd: str) -> None:
    with pytest.raises((WorkspaceScopeDenied, InvalidCommand)) as refusal:
        resolve_cwd(cwd, ROOT, FILES)
    assert refusal.value.details["argument"] == "cwd"


@pytest.mark.parametrize("cwd", ["f", "nosuch"])
def test_working_directories_that_are_none(cwd: str) -> None:
    with pytest.raises(InvalidCommand):
        resolve_cwd(cwd, ROOT, FILES)
