"""The contract of ``palyra run``, kept by the real command line without and beside a daemon."""

import json
import os
import signal
from pathlib import Path

import pytest

from fakes.eventually import eventually_sync
from fakes.processes import marked, new_mark
from fakes.sandboxed import Workshop
from palyra.sandbox.domain.profile import Layer

ISOLATED = {
    Layer.USER_NAMESPACE,
    Layer.PID_NAMESPACE,
    Layer.NETWORK_NAMESPACE,
    Layer.MOUNT_NAMESPACE,
    Layer.IPC_NAMESPACE,
    Layer.UTS_NAMESPACE,
    Layer.CAPABILITIES,
    Layer.NO_NEW_PRIVS,
    Layer.SECCOMP,
    Layer.RLIMITS,
    Layer.NEW_SESSION,
    Layer.NESTED_USERNS_OFF,
    Layer.HOST_READ_ONLY,
    Layer.MINIMAL_ROOT,
    Layer.WORKSPACE,
    Layer.PROTECTED_NAMES,
    Layer.ENVIRONMENT,
    Layer.EGRESS,
    Layer.OUTPUT_QUOTA,
    Layer.DEADLINE,
    Layer.TREE_KILL,
}
LIMITED = {
    Layer.NO_NEW_PRIVS,
    Layer.SECCOMP,
    Layer.RLIMITS,
    Layer.NEW_SESSION,
    Layer.ENVIRONMENT,
    Layer.OUTPUT_QUOTA,
    Layer.DEADLINE,
    Layer.TREE_KILL,
}
CONTROL_GROUPS = {Layer.CGROUP_MEMORY, Layer.CGROUP_PIDS}
FIELDS = {
    "exit_code",
    "stdout",
    "stderr",
    "stdout_truncated",
    "stderr_truncated",
    "duration_ms",
    "tier",
    "backend",
    "enforcement",
    "attestation",
}


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


@pytest.mark.promise("P-sandbox-holds")
def test_ls_runs_isolated_and_the_receipt_shows_every_layer(workshop: Workshop) -> None:
    workshop.write("a file.txt", "hello")
    ran = workshop.run("--", "ls", "-la", json=True)
    assert ran.status == 0
    data = ran.data
    assert data.keys() >= FIELDS
    assert (data["exit_code"], data["tier"], data["backend"]) == (0, "c", "bubblewrap")
    assert "a file.txt" in data["stdout"] and data["stderr"] == ""
    lines = {line["layer"]: line for line in data["enforcement"]}
    assert lines.keys() >= ISOLATED | CONTROL_GROUPS
    assert [name for name in ISOLATED if not lines[name]["held"]] == []
    for line in lines.values():
        assert line["asked"] and line["got"] and isinstance(line["held"], bool)


def test_the_limited_tier(workshop: Workshop) -> None:
    workshop.write("a.txt", "hello")
    data = workshop.run("--tier", "b", "--", "ls", json=True).data
    assert (data["exit_code"], data["tier"], data["stdout"]) == (0, "b", "a.txt\n")
    assert data["backend"] != "bubblewrap"
    lines = {line["layer"]: line for line in data["enforcement"]}
    assert lines.keys() >= LIMITED | CONTROL_GROUPS | {Layer.LANDLOCK, Layer.WORKSPACE}
    assert [name for name in LIMITED if not lines[name]["held"]] == []


@pytest.mark.promise("P-sandbox-works")
def test_the_commands_own_status_is_the_status(workshop: Workshop) -> None:
    workshop.compiled("leave", "#include <stdlib.h>\nint main(int c, char **v) { return atoi(v[1]); }")
    for tier, status in (("c", 1), ("b", 255), ("c", 152)):
        ran = workshop.run("--tier", tier, "--", "./leave", str(status))
        assert (ran.status, ran.out, ran.err) == (status, b"", b"")


@pytest.mark.parametrize("tier", ["b", "c"])
def test_a_signal_shows_as_in_shells(workshop: Workshop, tier: str) -> None:
    workshop.compiled("die", "#include <signal.h>\nint main(void) { raise(SIGTERM); return 0; }")
    assert workshop.run("--tier", tier, "--", "./die").status == 128 + signal.SIGTERM


@pytest.mark.promise("P-files-inside")
def test_a_home_that_holds_palyras_keys_is_no_workspace(workshop: Workshop) -> None:
    """What an agent would read there is the operator's token, what it would write there are policies."""
    workshop.run("--", "true", check=True)
    assert list(workshop.place.root.rglob("signing.key")), "it has keys by now"
    for tier in ("c", "b"):
        words = ("--tier", tier, "--egress", "none", "--workspace", str(workshop.place.root))
        refused = workshop.run(*words, "--", "find", ".", json=True)
        assert (refused.status, refused.error["code"]) == (125, "workspace.holds_palyra")
        assert refused.error["kind"] == "workspace_scope_denied"
    started = workshop.palyra("up", "--no-browser", "--port", "0", "--workspace", str(workshop.place.root), "--json")
    assert started.status == 2 and started.error["code"] == "workspace.holds_palyra"


@pytest.mark.promise("P-files-inside")
@pytest.mark.parametrize("named_by", ["--config", "PALYRA_CONFIG"])
def test_a_project_that_holds_the_settings_file_is_no_workspace(tmp_path: Path, named_by: str) -> None:
    """Everything else is kept elsewhere. Who works there would write what the operator starts with the next time."""
    safe = tmp_path / "safe"
    (safe / "policies").mkdir(parents=True)
    settings = f'[policy]\ndir = "{safe / "policies"}"\n[vault]\nkey_file = "{safe / "vault.key"}"\n'
    workshop = Workshop(tmp_path)
    file = workshop.write("palyra.toml", settings)
    workshop.place.config.write_text(settings)
    if named_by == "PALYRA_CONFIG":
        workshop.place.config.unlink()
        workshop.place.config.symlink_to(file)
    options = ("--config", str(file)) if named_by == "--config" else ()
    attack = ("bash", "-c", "printf '[tools]\\npreapproved = [\"fs.*\"]\\n' >> palyra.toml")
    for tier in ("c", "b"):
        words = ("run", "--tier", tier, "--egress", "none", "--allow-interpreters", "--json", "--", *attack)
        refused = workshop.palyra(*options, *words)
        assert (refused.status, refused.error["code"]) == (125, "workspace.holds_palyra")
        assert refused.error["kind"] == "workspace_scope_denied"
    work = ("--workspace", str(workshop.workspace), "--json")
    started = workshop.palyra(*options, "up", "--no-browser", "--port", "0", *work)
    assert started.status == 2 and started.error["code"] == "workspace.holds_palyra"
    assert file.read_text() == settings
    # Without a daemon, in the workspace that is meant: the agent still has to ask.
    asked = workshop.palyra(*options, "call", "fs.write", "--input", '{"path": "a", "content": "x"}', "--json")
    assert asked.error["code"] == "call.needs_approval"


@pytest.mark.promise("P-obligations")
def test_hosts_in_tier_b_are_refused_with_the_way_out(workshop: Workshop) -> None:
    refused = workshop.run("--tier", "b", "--allow-host", "a.example", "--", "true", json=True)
    assert (refused.status, refused.error["code"]) == (125, "sandbox.hosts_need_tier_c")
    assert refused.error["kind"] == "invalid_input"
    assert "machine" not in refused.error["message"] and "--tier c" in refused.error["hint"]
    assert workshop.run("--tier", "b", "--", "true").status == 0
    assert workshop.run("--tier", "c", "--allow-host", "a.example", "--", "true").status == 0


def test_not_found_and_not_executable(workshop: Workshop) -> None:
    workshop.write("plain.txt", "text")
    workshop.write("script", "#!/nonexistent/interpreter\n").chmod(0o755)
    missing = workshop.run("--", "no-such-program", json=True)
    assert missing.status == 127 and missing.error["kind"] == "spawn_failed"
    assert workshop.run("--", "./plain.txt").status == 126
    assert workshop.run("--", "./").status == 126
    for tier in ("c", "b"):
        broken = workshop.run("--tier", tier, "--allow-interpreters", "--", "./script", json=True)
        assert broken.status == 127 and broken.error["kind"] == "spawn_failed"


@pytest.mark.promise("P-sandbox-works")
@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("--", "sh", "-c", "true"), "interpreter_denied"),
        (("--", "cat", "/etc/shadow"), "workspace_scope_denied"),
        (("--", "cat", "../outside"), "workspace_scope_denied"),
        (("--", "ls", "https://example.com/x"), "egress_denied"),
        (("--", "ls", *["a"] * 129), "invalid_input"),
        (("--", "ls", "a" * 4097), "invalid_input"),
        (("--", "ls", b"not \xff text"), "invalid_input"),
    ],
)
def test_refusals_come_before_the_start_with_their_kind(
    workshop: Workshop, words: tuple[str | bytes, ...], kind: str
) -> None:
    ran = workshop.run(*words, json=True)
    assert ran.status == 125, ran
    assert ran.error["kind"] == kind and ran.error["hint"]


def test_a_sandbox_that_is_switched_off(tmp_path: Path) -> None:
    ran = Workshop(tmp_path, "[sandbox]\nenabled = false\n").run("--", "ls", json=True)
    assert ran.status == 125 and ran.error["kind"] == "disabled"


def test_policy_has_the_last_word(workshop: Workshop) -> None:
    (workshop.place.policies / "own.cedar").write_text(
        '@id("own.no-programs") forbid (principal, action, resource == Tool::"process.run");'
    )
    ran = workshop.run("--", "ls", json=True)
    assert ran.status == 125 and ran.error["code"] == "call.denied"


def test_a_deadline_ends_it_with_what_it_had_printed(workshop: Workshop) -> None:
    mark = new_mark()
    script = f"echo before; sleep 300 & echo {mark} >/dev/null; sleep 300"
    ran = workshop.run("--timeout", "0.7", "--allow-interpreters", "--", "sh", "-c", script, json=True)
    assert ran.status == 124 and ran.error["kind"] == "timed_out"
    assert ran.error["details"]["result"]["stdout"] == "before\n"
    assert marked(mark) == {}


@pytest.mark.promise("P-limits")
def test_too_much_output_ends_it_with_the_part_up_to_the_limit(workshop: Workshop) -> None:
    ran = workshop.run("--max-output", "1K", "--", "yes", json=True)
    assert ran.status == 137 and ran.error["kind"] == "quota_exceeded"
    result = ran.error["details"]["result"]
    assert result["stdout"] == "y\n" * 512 and result["stdout_truncated"] and not result["stderr_truncated"]
    streamed = workshop.run("--max-output", "1K", "--", "yes")
    assert streamed.status == 137 and streamed.out == b"y\n" * 512


def test_a_program_that_ends_before_its_flood_is_read_gets_the_same_answer(workshop: Workshop) -> None:
    assert workshop.run("--max-output", "1K", "--", "head", "-c", "1100", "/dev/zero").status == 137


@pytest.mark.parametrize("tier", ["b", "c"])
def test_processor_time_and_memory_are_limited(workshop: Workshop, tier: str) -> None:
    workshop.compiled("spin", "int main(void) { for (volatile long i = 0;; i++); }")
    assert workshop.run("--tier", tier, "--cpu-seconds", "1", "--", "./spin").status == 137
    workshop.compiled(
        "eat",
        "#include <stdlib.h>\n#include <string.h>\n"
        "int main(void) { for (int i = 0; i < 64; i++) { char *p = malloc(8 << 20); if (!p) return 9;"
        " memset(p, 1, 8 << 20); } return 0; }",
    )
    assert workshop.run("--tier", tier, "--memory", "128M", "--", "./eat").status in (9, 137)


def test_read_only_shows_everything_and_changes_nothing(workshop: Workshop) -> None:
    workshop.write("a.txt", "hello")
    for tier in ("c", "b"):
        assert workshop.run("--tier", tier, "--read-only", "--", "cat", "a.txt").out == b"hello"
        script = "touch new; rm -f a.txt; cp a.txt b.txt; mkdir folder; echo x > a.txt; mv a.txt c.txt"
        assert workshop.run("--tier", tier, "--read-only", "--allow-interpreters", "--", "sh", "-c", script).status == 1
    assert os.listdir(workshop.workspace) == ["a.txt"]


def test_variables_are_given_and_nothing_else_is(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop.compiled(
        "variables",
        "#include <stdio.h>\nextern char **environ;\nint main(void) { for (char **e = environ; *e; e++) puts(*e); }",
    )
    monkeypatch.setenv("SECRET_TOKEN", "do-not-leak")
    for tier in ("c", "b"):
        ran = workshop.run("--tier", tier, "--env", "GREETING=a=b c", "--env", "EMPTY=", "--", "./variables")
        lines = ran.out.decode().splitlines()
        assert "GREETING=a=b c" in lines and "EMPTY=" in lines
        assert b"do-not-leak" not in ran.out and not any(line.startswith("PALYRA") for line in lines)
    assert workshop.run("--env", "novalue", "--", "ls").status == 2


def test_input_is_piped_through(workshop: Workshop) -> None:
    every_byte = bytes(range(256)) * 64
    for tier in ("c", "b"):
        ran = workshop.run("--tier", tier, "--", "cat", stdin=every_byte)
        assert ran.status == 0 and ran.out == every_byte
    assert workshop.run("--", "wc", "-c", stdin=b"").out.strip() == b"0"
    large = os.urandom(3 << 20)
    ran = workshop.run("--", "cat", stdin=large)
    assert ran.status == 0 and ran.out == large


@pytest.mark.parametrize("tier", ["b", "c"])
def test_input_that_never_ends_keeps_nothing_from_starting_or_ending(workshop: Workshop, tier: str) -> None:
    reading, writing = os.pipe()
    process = workshop.start("--tier", tier, "--", "echo", "hi", stdin=reading)
    assert process.communicate(timeout=60)[0] == b"hi\n" and process.returncode == 0
    conversation = workshop.start("--tier", tier, "--", "cat", stdin=reading)
    os.close(reading)
    for line in (b"first\n", b"second\n"):
        os.write(writing, line)
        assert conversation.stdout is not None and conversation.stdout.readline() == line
    os.close(writing)
    assert conversation.communicate(timeout=60)[0] == b"" and conversation.returncode == 0


@pytest.mark.parametrize("tier", ["b", "c"])
def test_the_program_gets_a_pipe_and_never_the_callers_own_input(workshop: Workshop, tier: str, tmp_path: Path) -> None:
    """A file on standard input could be opened for writing through /proc/self/fd/0, wherever it lies."""
    precious = tmp_path / "precious"
    content = b"x" * (1 << 20)
    precious.write_bytes(content)
    script = "import os; print(os.readlink('/proc/self/fd/0')); os.open('/proc/self/fd/0', os.O_WRONLY | os.O_TRUNC)"
    with precious.open("rb") as file:
        process = workshop.start(
            "--tier", tier, "--allow-interpreters", "--", "python3", "-c", script, stdin=file.fileno()
        )
        out, _ = process.communicate(timeout=60)
    assert out.startswith(b"pipe:")
    assert precious.read_bytes() == content


def test_a_program_whose_output_nobody_reads_ends(workshop: Workshop) -> None:
    with workshop.start("--timeout", "60", "--", "yes") as process:
        assert process.stdout is not None and process.stdout.readline() == b"y\n"
        process.stdout.close()
        assert process.stderr is not None and process.stderr.read() == b""
        assert process.wait(timeout=60) == 1


def test_a_person_may_see_more_than_an_agent(workshop: Workshop) -> None:
    ran = workshop.run("--", "head", "-c", "3000000", "/dev/zero")
    assert ran.status == 0 and ran.out == bytes(3_000_000)
    assert workshop.run("--", "head", "-c", "17000000", "/dev/zero").status == 137
    # What the settings say still counts.
    (workshop.workspace / "other").mkdir()
    limited = Workshop(workshop.workspace / "other", "[sandbox]\nmax_output_bytes = 1000\n")
    assert limited.run("--", "head", "-c", "1001", "/dev/zero").status == 137


def test_output_comes_as_it_is_printed(workshop: Workshop) -> None:
    process = workshop.start(
        "--allow-interpreters", "--timeout", "60", "--", "sh", "-c", "echo first; read line < gate"
    )
    os.mkfifo(workshop.workspace / "gate")
    try:
        assert process.stdout is not None
        # Not before the program has ended: it waits for us.
        assert process.stdout.readline() in (b"first\n",)
        eventually_sync(lambda: _opened(workshop.workspace / "gate"))
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


def _opened(gate: Path) -> bool:
    try:
        descriptor = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    os.write(descriptor, b"go\n")
    os.close(descriptor)
    return True


def test_it_works_in_the_current_folder_or_in_the_one_named(workshop: Workshop, tmp_path: Path) -> None:
    assert workshop.run("--", "pwd").out.decode().strip() == str(workshop.workspace)
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to("other")
    ran = workshop.run("--workspace", str(tmp_path / "link"), "--", "touch", "here")
    assert ran.status == 0 and os.listdir(tmp_path / "other") == ["here"]
    assert workshop.run("--workspace", "/", "--", "ls").status == 125
    for place in ("/usr", "/etc"):
        system = workshop.run("--workspace", place, "--", "ls", json=True)
        assert (system.status, system.error["code"]) == (125, "sandbox.bad_profile")
        assert system.error["kind"] == "invalid_input" and "the folder of a project" in system.error["hint"]
        assert system.error["message"] == f"{place} cannot be a workspace: a sandbox has that place for itself"
    refused = workshop.run("--workspace", str(tmp_path / "missing"), "--", "ls", json=True)
    assert (refused.status, refused.error["code"]) == (125, "workspace.bad_root")
    assert refused.error["kind"] == "invalid_input" and not (tmp_path / "missing").exists()


def test_the_statement_verifies_and_the_journal_has_the_call(workshop: Workshop, tmp_path: Path) -> None:
    data = workshop.run("--", "echo", "hi", json=True).data
    saved = tmp_path / "statement.json"
    saved.write_text(json.dumps(data["attestation"]))
    assert workshop.place.palyra("attest", "verify", str(saved)).status == 0
    events = workshop.place.palyra("journal", "tail", "--json").data["events"]
    mine = [event["kind"] for event in events if event["call"] == data["call_id"]]
    assert {"call.started", "call.finished"} <= set(mine), mine
    refused = workshop.run("--", "sh", json=True).error["details"]["call_id"]
    events = workshop.place.palyra("journal", "tail", "--json").data["events"]
    assert any(event["call"] == refused for event in events)
    assert workshop.place.palyra("journal", "verify", "--json").status == 0


def test_it_works_beside_a_daemon_on_the_same_state(workshop: Workshop) -> None:
    with workshop.place.daemon():
        data = workshop.run("--", "echo", "hi", json=True).data
        assert data["stdout"] == "hi\n"
        events = workshop.place.palyra("journal", "tail", "--json").data["events"]
        assert any(event["call"] == data["call_id"] for event in events)
    assert workshop.place.palyra("journal", "verify", "--json").status == 0


@pytest.mark.parametrize(
    ("tier", "how"), [("b", signal.SIGKILL), ("c", signal.SIGKILL), ("b", signal.SIGINT), ("c", signal.SIGTERM)]
)
def test_nothing_outlives_the_command_line(workshop: Workshop, tier: str, how: signal.Signals) -> None:
    mark = new_mark()
    process = workshop.start(
        "--tier", tier, "--allow-interpreters", "--", "sh", "-c", f"setsid sleep 300 & : {mark}; sleep 300"
    )
    try:
        eventually_sync(lambda: any("sh -c" in words and "palyra" not in words for words in marked(mark).values()))
        process.send_signal(how)
        process.wait(60)
        eventually_sync(lambda: not marked(mark))
    finally:
        process.kill()
        process.communicate()


def test_git_tar_and_cc_need_no_flag_for_ordinary_work(workshop: Workshop) -> None:
    workshop.write("x.c", "int main(void) { return 5; }")
    assert workshop.run("--", "cc", "-o", "x", "x.c").status == 0
    assert workshop.run("--", "./x").status == 5
    assert workshop.run("--", "tar", "-czf", "a.tgz", "x.c").status == 0
    assert workshop.run("--", "tar", "-tzf", "a.tgz").out == b"x.c\n"
    assert workshop.run("--", "git", "init", "-q").status == 0
    assert b"x.c" in workshop.run("--", "git", "status").out
