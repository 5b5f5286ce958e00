import shlex

import pytest

from palyra.sandbox.guards.exec_rule_table import EXEC_RULES
from palyra.sandbox.guards.interpreters import find_interpreter, judge_names

RUNS = r"""
env ls
env FOO=1 ls
env -i ls
env -u X ls
env -S 'sh -c id'
env -vS 'sh -c id'
env --split-string='sh -c id'
env --s 'sh'
env - sh
env FOO=1 xargs -0 sh -c id
xargs
xargs rm
xargs -0 -n1 sh -c
find . -exec sh {} ;
find . -execdir id ;
find . -ok id ;
find . -okdir id ;
make
make all
make -f x.mk
gmake
ninja
cmake -P x.cmake
nice id
nohup id
timeout 5 sh
stdbuf -o0 sh
setsid sh
chroot . sh
unshare -r sh
nsenter -t 1 sh
sudo id
su -c id
doas id
ssh -oProxyCommand=sh h
ssh -o ProxyCommand=sh h
ssh -o 'proxycommand sh' h
ssh -o ' ProxyCommand = sh' h
ssh -vo ProxyCommand=sh h
ssh -oLocalCommand=id h
ssh -oPermitLocalCommand=yes h
ssh -oKnownHostsCommand=id h
ssh -F cfg h
ssh -I lib.so h
scp -S sh a h:b
scp -oProxyCommand=sh a h:b
sftp h
sftp -S sh h
rsync -e sh a h:b
rsync -ae sh a h:b
rsync --rsh=sh a h:b
rsync --rsync-path=sh a h:b
tar --to-command=sh -xf a
tar -xf a --to-c sh
tar -I sh -xf a
tar -xIsh -f a
tar --use-compress-program=sh -xf a
tar --use sh -xf a
tar -cf a --checkpoint=1 --checkpoint-action=exec=sh .
tar -cf a --checkpoint-action exec=sh .
tar --rsh-command=sh -cf h:a .
tar -cf h:a .
tar cf h:a .
tar xIf sh a
tar xfI a sh
tar -PIsh -xf a
tar -F sh -cf a .
tar --info-script=sh -cf a .
vim x
vim.basic x
ex -c '!sh'
vi
ed x
less '+!sh' x
less --lesskey-src=x f
man -P sh ls
man --pager=sh ls
man -Hsh ls
more '+!sh'
emacs --batch
gdb x
strace ls
ltrace ls
perf stat ls
script x
watch ls
flock x ls
parallel ls
entr ls
docker run x
docker exec x sh
podman exec x sh
kubectl exec x
kubectl --kubeconfig=x get pods
systemd-run sh
at now
batch
crontab x
sed 1e f
sed -n '1e id' f
sed 's/x/y/e' f
sed -f x.sed f
sed -nf x.sed f
sed --file=x f
sed 's/a' f
zip -T -TT sh a.zip b
zip -TT 'sh #' a.zip b
zip --unzip-command=sh a b
cargo run
cargo build
npm install
npx x
pip install x
gem install x
go run x.go
go generate
go test
go build -toolexec=sh
ccache gcc x.c
gcc -wrapper sh,-c x.c
gcc -Bdir x.c
gcc -B dir x.c
gcc @args
gcc -fplugin=x.so x.c
gcc -specs=x x.c
x86_64-linux-gnu-gcc-12 -wrapper sh x.c
clang -Xclang -load x
gcc -Wl,-plugin,x.so x.c
gcc -Wl,@f x.c
rustc -C linker=sh x.rs
rustc -Clinker=sh x.rs
sqlite3 db '.shell id'
sqlite3 db '.system id'
sqlite3 db '.sh id'
sqlite3 -cmd '.shell id' db
sqlite3 -init f db
sqlite3 db '.load x'
sqlite3 db '.read f'
sqlite3 db '.once |sh'
sqlite3 db "select edit('x','sh')"
sqlite3 db "select load_extension('x')"
psql -c '\! id'
psql -c '\o |sh'
psql -f x
psql -c "copy t to program 'sh'"
mysql -e '\! id'
mysql -e 'system id'
mysql --pager=sh
dpkg -i x.deb
dpkg --pre-invoke=sh -l
apt-get install x
apt -o DPkg::Pre-Invoke::=sh list
openssl req -engine ./x.so
openssl engine x
sort --compress-program=sh x
sort --comp=sh x
split --filter=sh x
install --strip-program=./x a b
rg --pre sh x
fd -x sh
fd --exec sh
ip netns exec x sh
socat - EXEC:sh
socat TCP-LISTEN:1,fork SYSTEM:id
nc -e /bin/sh h 1
nc -lve sh -p 1
ncat --sh-exec id h 1
tcpdump -z sh
wget --use-askpass=sh x
busybox sh
busybox awk x
busybox env ls
busybox.static sh -c id
toybox xargs
coreutils --coreutils-prog=env ls
ld-linux-x86-64.so.2 /bin/sh
convert '|id' x.png
pdflatex -shell-escape x
gs -dNOSAFER x
git -c core.pager=sh log
git-upload-pack x
""".strip().splitlines()

RUNS_NOTHING = r"""
env
env -0
env FOO=1
env -u X
find . -name x
find . -type f -newer a -print0
find . -name '*.py' -delete
tar -xzf a.tgz
tar xzf a.tgz
tar -czf a.tgz --exclude=x src
tar --list --file a.tgz
tar -tvf a.tar
tar -cf a.tar --checkpoint=10 --checkpoint-action=dot .
tar -xf ./a:b.tar
sed s/a/b/ f
sed -i.bak 's/execute/e/g' f
sed -n '/e/p' f
sed --sandbox 1e f
sed -e p -e 's,e,e,' e.txt
gcc -o x x.c
cc -O2 -Wall -Iinclude -L. -lm -o x x.c
g++ -std=c++17 -DABC -c x.cc
ssh h uptime
ssh -o StrictHostKeyChecking=no -p 22 h
ssh -oProxyCommand=none h
scp a h:b
rsync -av a/ b/
less x
man ls
sort -k2 x
split -l 10 x
zip -r a.zip d
zip -T a.zip
go version
go build ./...
cargo metadata
docker ps
docker pull nginx:1.25
kubectl get pods
sqlite3 db 'select 1'
sqlite3 db .tables
sqlite3 ./my.db '.schema t'
psql -c 'select 1'
psql -c '\dt'
mysql -e 'select 1'
dpkg -l
dpkg -L bash
apt list --installed
openssl dgst -sha256 x
openssl rand -hex 4
rg -n foo
rg --pretty foo
ip -br addr
curl -fsSL https://example.org/x
wget -O x https://example.org
nc -z h 80
tcpdump -r f
busybox ls -la
busybox
busybox --list
ls -la
grep -r foo .
cat x
make --version
ld-linux-x86-64.so.2 --version
patch -p1 -i x.diff
ssh-keygen -t ed25519 -f k
ssh-keygen -lf k.pub
git status
""".strip().splitlines()


def judged(line: str) -> object:
    name, *args = shlex.split(line)
    return judge_names((name,), tuple(args))


@pytest.mark.parametrize("line", RUNS)
def test_a_use_that_runs_a_program_is_found(line: str) -> None:
    assert judged(line) is not None


@pytest.mark.parametrize("line", RUNS_NOTHING)
def test_a_use_that_runs_nothing_is_not(line: str) -> None:
    assert judged(line) is None


def test_no_name_stands_twice_and_every_entry_says_why() -> None:
    names = [name for rule in EXEC_RULES for name in rule.names]
    assert len(names) == len(set(names))
    assert all(rule.why and rule.names for rule in EXEC_RULES)


def test_every_entry_can_find_something() -> None:
    for rule in EXEC_RULES:
        assert rule.always or rule.flags or rule.text or rule.judge or rule.subcommands, rule.names


def test_no_entry_is_hidden_behind_an_interpreter() -> None:
    hidden = {name for rule in EXEC_RULES for name in rule.names if find_interpreter(name)}
    assert hidden == set()


def test_input_that_runs_programs_is_found() -> None:
    assert judge_names(("sqlite3",), ("db",), b"select 1;\n.shell id\n") is not None
    assert judge_names(("psql",), (), b"\\! id\n") is not None
    assert judge_names(("sqlite3",), ("db",), b"select '.shell';\n") is None
