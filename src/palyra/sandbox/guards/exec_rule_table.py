"""The programs that run programs: what of each is refused, and why. The rest of their uses stays allowed."""

import re
from typing import Any, Final

from palyra.sandbox.guards.exec_rules import ExecRule, Finding, judge_git
from palyra.sandbox.guards.sed_script import Malformed, read_line, read_script

_ASSIGNMENT: Final = re.compile(r"[^=]+=")
# Short options of tar whose value follows.
_TAR_VALUED: Final = "fCTXKHVNgLb"
_ENV_VALUED: Final = ("-u", "-C", "--unset", "--chdir")


def judge_env(args: tuple[str, ...]) -> Finding | None:
    """``env`` alone prints the environment. The first word that is neither option nor assignment is a program."""
    skip = False
    for position, word in enumerate(args):
        if skip:
            skip = False
        elif word in _ENV_VALUED:
            skip = True
        elif word.startswith("--s") or (word.startswith("-") and not word.startswith("--") and "S" in word):
            return Finding(program="env", why="env -S splits a text into a command line and runs it", position=position)
        elif word != "--" and (not word.startswith("-") or word == "-") and not _ASSIGNMENT.match(word) and word != "-":
            return Finding(program="env", why="env runs the program it is given", position=position)
    return None


def judge_sed(args: tuple[str, ...]) -> Finding | None:
    line = read_line(args)
    if line.sandbox:
        return None
    if line.script_files:
        return Finding(
            program="sed", why="a script file can run programs; give the script itself", position=line.script_files[0]
        )
    position = min(line.positions, default=None)
    try:
        runs = read_script(line.script).runs
    except Malformed:
        return Finding(program="sed", why="the script cannot be read, so it may run programs", position=position)
    return None if runs is None else Finding(program="sed", why="sed's e runs programs", position=position)


def judge_old_style_tar(args: tuple[str, ...]) -> Finding | None:
    """Letters without a dash in the first word are options too, each with its value in a word of its own."""
    if not args or not args[0].isalnum():
        return None
    why = "this option of tar names a program, or a host to run one on"
    value = 1
    for letter in args[0]:
        if letter in "IF" or (letter == "f" and re.match("[^/=]+:", args[value] if value < len(args) else "")):
            return Finding(program="tar", why=why, position=0)
        value += letter in _TAR_VALUED
    return None


def _rule(why: str, names: str, flags: str = "", **more: Any) -> ExecRule:
    return ExecRule(names=tuple(names.split()), why=why, flags=tuple(flags.split()), **more)


def _always(why: str, names: str) -> ExecRule:
    return _rule(why, names, always=True)


def _only(why: str, names: str, subcommands: str, flags: str = "", **more: Any) -> ExecRule:
    return _rule(why, names, flags, subcommands=frozenset(subcommands.split()), **more)


# ProxyCommand and its relatives are command lines; the providers are libraries that ssh loads.
_SSH_SETTINGS: Final = (
    "-o=(proxycommand(?!\\s*[=\\s]\\s*none\\s*$)|localcommand|permitlocalcommand|knownhostscommand|pkcs11provider|"
    "securitykeyprovider|xauthlocation|include|match|proxyusefdpass)"
)

EXEC_RULES: Final[tuple[ExecRule, ...]] = (
    # Wrappers: their arguments are a command line.
    ExecRule(names=("env", "genv"), why="env runs the program it is given", judge=judge_env),
    _always(
        "it runs the program it is given",
        "xargs gxargs nice nohup timeout gtimeout stdbuf setsid ionice chrt taskset setarch linux32 linux64 uname26 "
        "i386 x86_64 time gtime choom prlimit numactl cgexec eatmydata faketime fakeroot fakechroot catchsegv unbuffer "
        "rlwrap xvfb-run dbus-run-session dbus-launch ssh-agent start-stop-daemon daemon daemonize run-parts run-one "
        "chpst setuidgid softlimit envdir execlineb tini dumb-init catatonit logsave caffeinate hyperfine watch script "
        "scriptlive flock parallel sem chronic ifne vidir vipe pee entr watchexec reflex modd nodemon inotifyd "
        "incrontab setpriv sg newgrp pkexec run0 capsh firejail bwrap proot unshare nsenter chroot systemd-run "
        "systemd-nspawn machinectl systemd-cat systemd-inhibit cpulimit trickle torsocks tsocks proxychains "
        "proxychains4 xdg-open run-mailcap see gio gtk-launch exo-open open rundll32 regsvr32 forfiles launchctl "
        "msgexec msgfilter",
    ),
    _always("it runs programs as another user", "sudo sudoedit su doas runuser gosu su-exec"),
    _always("it runs programs later, outside this call", "at batch crontab anacron fcrontab"),
    _always(
        "it runs programs under its control",
        "gdb gdbserver cgdb lldb lldb-server rr strace ltrace perf valgrind uftrace bpftrace stap dtrace criu",
    ),
    _always(
        "it runs commands inside a terminal", "screen tmux byobu dtach abduco ttyd mosh xterm uxterm konsole kitty"
    ),
    # Build tools: their files are programs.
    _always(
        "it runs shells from a file of the workspace",
        "make gmake bmake pmake nmake ninja samu cmake ctest cpack meson scons waf bazel bazelisk buck buck2 just task "
        "rake mage tup redo ant mvn gradle sbt bundle bundler doxygen logrotate",
    ),
    _always(
        "it runs code of the packages it handles",
        "npm npx pnpm pnpx yarn yarnpkg corepack bunx pip pipx uv uvx poetry pdm hatch conda mamba tox nox gem cpan "
        "cpanm composer luarocks cabal stack opam nix nix-shell nix-build nix-env guix brew snap flatpak easy_install",
    ),
    _only(
        "cargo runs build scripts and programs",
        "cargo rustup",
        "version help metadata tree locate-project search pkgid fmt show verify-project read-manifest",
        "--config -Z",
    ),
    _only(
        "go runs the programs it builds, and tools",
        "go",
        "version env help doc fmt list mod build vet clean",
        "-toolexec -exec -vettool -overlay -modfile -w",
        clusters=False,
    ),
    _always("it runs a compiler of your choice", "ccache distcc sccache icecc colorgcc libtool"),
    _rule(
        "this option makes the compiler run or load something else, or hides options in a file",
        "gcc g++ cc c++ cpp c89 c99 gfortran gnat gdc gccgo clang clang++ clang-cl icc icx nvcc ld ld.bfd ld.gold lld "
        "ld.lld gold collect2 c89-gcc c99-gcc",
        "-wrapper -B -specs --specs -fplugin -fpass-plugin -plugin --plugin -Xclang --ld-path --gcc-toolchain "
        "-fuse-ld=.*/ -iplugindir --config",
        clusters=False,
        text=r"^@|,@|^-Wl,.*-plugin|^-Wp,|^-f(pass-)?plugin",
    ),
    _rule("a plug-in is code", "as ar nm ranlib gcc-ar gcc-nm gcc-ranlib objdump", "--plugin", text=r"^@"),
    _rule(
        "this option names a linker or plug-in",
        "rustc rustdoc",
        "-C=(linker|ar)\\b -Clinker -Z --test-runtool --runtool -Car --codegen=(linker|ar)\\b",
        clusters=False,
        text=r"^@|^-C(linker|ar)=",
    ),
    # Files and archives.
    _rule("find runs a program for what it finds", "find gfind", "-exec -execdir -ok -okdir"),
    _rule("fd runs a program for what it finds", "fd fdfind", "-x -X --exec --exec-batch", valued="edEtSojc"),
    _rule(
        "this option of tar names a program, or a host to run one on",
        "tar gtar bsdtar star",
        "--to-command --use-compress-program -I --rsh-command --rmt-command --info-script --new-volume-script -F "
        "--checkpoint-action=.*exec -f=[^/=]+: --file=[^/=]+:",
        valued=_TAR_VALUED,
        harmless=("--files-from", "--force-local"),
        judge=judge_old_style_tar,
    ),
    _rule(
        "this option of cpio names a program or a remote host",
        "cpio",
        "--rsh-command --rmt-command -F=[^/]+: --file=[^/]+:",
    ),
    _rule("zip -TT names a program that tests the archive", "zip", "-TT --unzip-command", text=r"^-[A-Za-z]*TT"),
    _rule("--compress-program names a program", "sort gsort", "--compress-program"),
    _rule("--filter names a program", "split gsplit", "--filter"),
    _rule("--strip-program names a program", "install ginstall", "--strip-program"),
    _rule("this option names a program", "diff3 sdiff", "--diff-program"),
    _rule("ed scripts in patches run programs", "patch gpatch", "-e --ed", valued="BDdFgioprVYxz"),
    ExecRule(names=("sed", "gsed"), why="sed's e runs programs", judge=judge_sed),
    _rule("--pre names a program", "rg ripgrep ag ack bat batcat", "--pre --hostname-bin --pager"),
    _rule("--xcmd names a program", "ctags", "--xcmd --options --_xcmd"),
    _rule("fzf runs its previews", "fzf", "--preview --bind --with-shell --listen"),
    # Version control.
    ExecRule(names=("git",), why="git runs a program", judge=judge_git),
    _rule(
        "this option names a program", "svn svnadmin", "--diff-cmd --diff3-cmd --editor-cmd --config-option --merge-cmd"
    ),
    _rule("this option names a program", "hg", "--config --ssh --remotecmd -e"),
    _rule("this option names a program", "cvs", "-e --rsh"),
    # Remote copies and connections.
    _rule(
        "this option makes ssh run a program on this machine, or load a library",
        "ssh slogin autossh",
        f"{_SSH_SETTINGS} -F -I",
        valued="BbcDEeFIiJLlmOopQRSWw",
    ),
    _rule("this option makes scp run a program", "scp", f"{_SSH_SETTINGS} -S -F -D", valued="cDFiJloPSX"),
    _always("its commands include !, which runs programs", "sftp ftp lftp telnet tnftp ncftp"),
    _rule("this option names a program", "rsync", "-e --rsh --rsync-path --config -M --remote-option", valued="fBTM"),
    _rule(
        "this option runs a program for each connection",
        "nc ncat netcat",
        "-e -c --exec --sh-exec --lua-exec",
        valued="pswqiXxIOTVg",
    ),
    ExecRule(names=("socat", "socat1"), why="this address runs a program", text=r"(^|[,!])\s*(exec|system|shell)\s*:"),
    _rule(
        "this option names a program", "wget wget2", "--use-askpass -e --execute --config", valued="oaiBtOTwQPUlADIXR"
    ),
    _rule("aria2c runs a program on events", "aria2c", "--on-download --on-bt --conf-path", text=r"^--on-"),
    _rule("-z names a program", "tcpdump", "-z", valued="BcCEFGijMmQrsTVwWy"),
    _rule("scripts of nmap are programs", "nmap", "--script -sC -A --datadir"),
    ExecRule(
        names=("ip",), why="ip netns exec and its relatives run a program", text=r"^(e|ex|exe|exec)$|^-ba?t?c?h?$"
    ),
    _rule("this option names a program", "rclone restic borg", "--password-command --rsh --remote-path -o"),
    # Editors and pagers.
    _always(
        "its commands include !, which runs programs",
        "vim vi view ex rvim rview gvim vimdiff nvim nvi vile ed emacs emacsclient xemacs zile mg jed joe jmacs nano "
        "pico rnano micro kak hx helix mcedit mc ranger nnn vifm editor mail mailx s-nail mutt neomutt",
    ),
    _rule(
        "this option gives less commands",
        "less pager",
        "-k --lesskey-src --lesskey-file --lesskey-content",
        valued="bhjopPtTxyzD",
        text=r"^\+",
    ),
    _rule("this option gives more commands", "more most", "-p --command", text=r"^\+[^/\d]"),
    _rule(
        "this option names a program",
        "man",
        "-P --pager -H --html -C --config-file -X --gxditview -p --preprocessor",
        valued="LmMsSeErR",
    ),
    _rule("unsafe mode lets documents run programs", "groff troff nroff pic", "-U", valued="dfFImMnoPrTwWL"),
    _rule(
        "this option lets documents run programs",
        "tex latex etex pdftex pdflatex xetex xelatex lualatex dvilualatex latexmk tectonic mf mpost",
        "-shell-escape --shell-escape -enable-write18 --enable-write18 -e -pdflatex -latex",
        clusters=False,
        text=r"write18|shell-escape",
    ),
    _rule("unsafe PostScript runs programs", "gs ghostscript", "-dNOSAFER", text=r"NOSAFER|%pipe%|-c$"),
    ExecRule(
        names=("convert", "magick", "identify", "mogrify", "composite", "montage", "display", "animate", "import"),
        why="ImageMagick runs what follows a bar, and scripts",
        text=r"^\s*(\w+:)?@?\||^(msl|mvg|ephemeral|url|show|win|x):",
    ),
    # Databases.
    ExecRule(
        names=("sqlite3", "sqlite", "sqlite3.exe"),
        why="this command of sqlite3 runs a program or loads code",
        flags=("-init",),
        clusters=False,
        text=r"^[ \t]*\.(?=[a-z])(?!(tables?|schema|mode|headers?|index(es)?|indices|databases|dbinfo|help|width|"
        r"separator|nullvalue|timeout|timer|stats|show|quit|exit|dump|print|echo|changes|explain|eqp|bail|"
        r"fullschema|parameter)\b)"
        r"|load_extension\s*\(|\bedit\s*\(",
        reads_input=True,
        unless="-safe",
    ),
    ExecRule(
        names=("psql", "pgcli"),
        why="this command of psql runs a program or reads commands from a file",
        flags=("-f", "--file", "-o=\\|", "--output=\\|"),
        valued="cdFhLoPpRTUv",
        text=r"\\(!|o\s*\||w\s*\||g\w*\s*\||copy\b|i|e|s\s*\||watch|set|prompt)|\b(to|from)\s+program\b",
        reads_input=True,
    ),
    _rule(
        "this command of mysql runs a program or loads code",
        "mysql mariadb mycli",
        "--pager --plugin-dir --default-auth --init-command --defaults-file --defaults-extra-file",
        text=r"\\[!eP.]|(^|;)\s*(system|pager|source|edit)\b",
        reads_input=True,
    ),
    # Containers and clusters.
    _only(
        "it runs programs in places this sandbox does not see",
        "docker podman nerdctl crictl ctr buildah lxc lxc-attach lxc-execute incus docker-compose podman-compose",
        "version info images ps inspect pull search history port top stats",
        "-H --host --config --context",
    ),
    _only(
        "it runs programs in places this sandbox does not see",
        "kubectl oc k3s minikube helm",
        "version get describe explain api-resources api-versions cluster-info logs top",
        "--kubeconfig --as",
    ),
    # Packages of the system.
    _only(
        "apt runs hooks and maintainers' scripts",
        "apt apt-get aptitude apt-cache",
        "list show search policy depends rdepends madison showsrc",
        "-o -c --option --config-file",
    ),
    _rule(
        "dpkg runs hooks and maintainers' scripts",
        "dpkg",
        "--install --unpack --configure --remove --purge --pre-invoke --post-invoke --status-logger --triggers-only "
        "--root --instdir --admindir",
        text=r"^-[A-Za-z]*[irP]",
        clusters=False,
    ),
    _rule(
        "rpm runs scripts and macros",
        "rpm rpmbuild",
        "--install --upgrade --erase --eval --pipe --define --macros --load --rcfile",
        text=r"^-(?![-qVK])[A-Za-z]*[iUFeED]",
    ),
    # Cryptography.
    _rule(
        "this option loads code",
        "openssl",
        "-engine -provider -provider-path -config -loader",
        clusters=False,
        text=r"^engine$",
    ),
    _rule(
        "this option names a program",
        "gpg gpg2 gpgv gpgsm",
        "--photo-viewer --exec-path --agent-program --dirmngr-program --keyboxd-program --options",
    ),
    _rule("gpg-agent runs a program", "gpg-agent", "--daemon --pinentry-program --scdaemon-program"),
    _rule("this option loads code", "ssh-keygen", "-D -w", valued="bCEfFIMNnOPrRtVWYZz"),
    _rule("this option loads code", "ssh-add", "-s -S -e", valued="EtHhT"),
    _rule(
        "curl reads options from a file, and loads engines",
        "curl",
        "-K --config --engine",
        valued="AbcCdDeEFHmoPQrtTuUwxXyYz",
    ),
)
