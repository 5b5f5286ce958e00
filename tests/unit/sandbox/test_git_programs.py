import pytest

from palyra.sandbox.guards.program_runners import git_finding

RUNS = """
-c alias.x=!sh x
-c core.pager=sh log
-c core.sshCommand=sh fetch
-c CORE.SSHCOMMAND=sh fetch
-c core.editor=sh commit
-c core.fsmonitor=./x status
-c core.hooksPath=. commit
-c credential.helper=!sh fetch
-c diff.external=sh diff
-c filter.x.clean=sh add .
-c uploadpack.packObjectsHook=sh clone .
-c protocol.ext.allow=always clone x
-c url.ext::sh.insteadOf=x fetch
-c include.path=x status
-c gpg.program=sh commit
-c some.futureSetting=sh status
-c core.pager log
-C sub -c core.pager=sh log
-p -c core.pager=sh log
--no-pager --config-env=core.pager=X log
--exec-path=. status
x
lazy
difftool
mergetool
filter-branch --tree-filter x
bisect run x
submodule foreach x
rebase -x sh main
rebase --exec sh main
rebase --exec=sh main
rebase --ex sh main
rebase -ix sh
clone -u sh x
clone --upload-pack=sh x
clone --upload-p sh x
clone -c core.pager=sh x
clone --config core.pager=sh x
clone --template=t x
clone ext::sh
clone EXT::sh%20-c%20id
remote add x ext::sh
fetch --upload-pack sh
ls-remote --upload-pack=sh x
ls-remote --exec=sh x
push --receive-pack=sh
push --exec=sh
archive --remote=x --exec=sh HEAD
grep -Osh x
grep -nOsh x
grep --open-files-in-pager=sh x
init --template=x
log --ext-diff
help -w log
send-email x
instaweb
daemon
shell
hook run x
for-each-repo x
remote-ext sh
config alias.x !sh
config --global alias.x !sh
config --add core.pager sh
config --replace-all core.pager sh
config --file user.name core.pager sh
config -f user.name core.pager sh
config set core.pager sh
config --edit
config user.name x --edit
""".strip().splitlines()

RUNS_NOTHING = """
status
status --short
--version
commit -m x
commit -am x --no-verify
-c user.name=A -c user.email=b@c commit -m x
-c core.pager=cat log
-c color.ui=always diff
-C sub status
--git-dir=.git --work-tree=. status
--no-pager log --oneline -n 5
push -u origin main
fetch -u
stash -u
clean -xn
cherry-pick -x abc
log --format=%H --stat
diff HEAD~1..HEAD -- src
show HEAD:src/x
clone https://example.org/x.git
clone --depth 1 -b main https://example.org/x.git d
clone -c core.autocrlf=false x
remote add origin git@example.org:x/y.git
rebase -i main
rebase --continue
init
init -b main
add :/
tag -a v1 -m x
worktree add ../x
config user.email a@b.c
config --global user.name A
config --get core.pager
config core.pager
config --list
config --unset alias.x
submodule update --init
bisect start
merge --no-ff x
grep -n foo
help log
""".strip().splitlines()


@pytest.mark.parametrize("line", RUNS)
def test_it_runs_a_program(line: str) -> None:
    finding = git_finding(tuple(line.split()))
    assert finding is not None and finding.why and finding.program == "git"
    assert finding.position is not None and finding.position < len(line.split())


@pytest.mark.parametrize("line", RUNS_NOTHING)
def test_it_runs_nothing(line: str) -> None:
    assert git_finding(tuple(line.split())) is None


def test_nothing_at_all() -> None:
    assert git_finding(()) is None
