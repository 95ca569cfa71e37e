# Makes .venv in the repository root and installs localspec into it. Sourced by the scripts beside it:
#
#   prepare_venv app    what the chat needs: the package and the embedded pair
#   prepare_venv dev    the same, and what tests, types and lint need
#
# A stamp in .venv says what was installed; while it holds, all of this costs one start of Python. A marker says that
# an installation is under way: where an earlier run left it behind, .venv is made anew. All messages go to stderr.
# Written for bash 3.2 (macOS) and later. How llama.cpp is compiled is decided in _choose_build.sh.

root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=$root/.venv
setup_log=$venv/setup.log
unfinished=$venv/.unfinished
advice='' # printed when an installation fails

# shellcheck source=scripts/_choose_build.sh
. "$root/scripts/_choose_build.sh"
# shellcheck source=scripts/_run_logged.sh
. "$root/scripts/_run_logged.sh"

prepare_venv() {
    local level=$1
    choose_build
    is_prepared "$level" && return
    find_python
    mkdir -p "$venv" 2>/dev/null && [ -w "$venv" ] ||
        fail "Cannot write to $venv, where everything is installed." "It has to be a folder that you may write to."
    lock
    is_prepared "$level" || install "$level" # another run may have done it while this one waited
    unlock
}

# Asking for help installs nothing.
help_before_installation() {
    case " $* " in *" -h "* | *" --help "*) ;; *) return ;; esac
    choose_build
    is_prepared app && return
    { read -r && read -r; } <"$0" # the line that says what the script does
    echo "${REPLY#\# }"
    echo "The options are listed once localspec is installed in .venv; scripts/chat installs it, and so does this script."
    exit 0
}

is_prepared() {
    [ ! -e "$unfinished" ] && [ "$(cat "$venv/.prepared-$1" 2>/dev/null)" = "$(stamp)" ]
}

# Console scripts and the editable install hold absolute paths, so a moved repository counts as unprepared too.
stamp() {
    echo "$root"
    "$venv/bin/python" -c 'import sys; print(sys.version)' 2>/dev/null || echo "no python"
    cksum <"$root/pyproject.toml"
    echo "$backend"
}

# Sets `python` to the first interpreter that is new enough and can make a virtual environment.
find_python() {
    local candidate version found='' without_venv=''
    for candidate in python3.13 python3.12 python3.11 python3; do
        # Started, not only looked up: version managers leave commands on the PATH that refuse to run.
        version=$("$candidate" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) || continue
        if ! "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
            found="$found, $candidate is $version"
        elif ! "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
            without_venv=${without_venv:-$candidate}
        else
            python=$candidate
            return
        fi
    done
    if [ -n "$without_venv" ]; then
        fail "$without_venv cannot make virtual environments: its venv module is incomplete." \
            "Debian, Ubuntu   sudo apt-get install $without_venv-venv"
    fi
    found=${found:-, none}
    fail "localspec needs Python 3.11 or newer; found: ${found#, }." \
        "Debian, Ubuntu   sudo apt-get install python3 python3-venv" \
        "Fedora           sudo dnf install python3" \
        "Arch             sudo pacman -S python" \
        "macOS            brew install python@3.13"
}

# One installation at a time. Python takes the lock, since macOS has no flock command; the shell holds it through the
# shared descriptor, and so do its children: a pip that outlives a killed shell still keeps others out.
lock() {
    exec 9<"$root/pyproject.toml"
    local take='import fcntl, sys
try:
    fcntl.flock(9, fcntl.LOCK_EX | (fcntl.LOCK_NB if sys.argv[1] == "try" else 0))
except BlockingIOError:
    sys.exit(1)
except OSError:
    pass  # a file system without locks'
    "$python" -c "$take" try && return
    say "Another run is installing into .venv; waiting for it."
    "$python" -c "$take" wait
}

unlock() {
    exec 9<&-
}

install() {
    local level=$1
    if ! is_sound; then
        [ ! -e "$venv/bin/python" ] ||
            say "The .venv that is there is unfinished, too old or of another folder: it is made anew."
        say "Making .venv with $("$python" --version)."
        rm -rf -- "$venv"
        mkdir -p "$venv"
        touch "$unfinished"
        local output
        output=$("$python" -m venv "$venv" 2>&1) || fail "$python could not make .venv: $output"
        choose_build
    fi
    touch "$unfinished"
    : >"$setup_log"
    # Dependency groups are known to pip from 25.1 on.
    run_logged "Updating pip." pip install 'pip>=25.1' || installation_failed
    install_llama_cpp || installation_failed
    if [ "$level" = dev ]; then
        run_logged "Installing localspec and its development tools into .venv." \
            pip install -e '.[demo]' --group dev || installation_failed
        stamp >"$venv/.prepared-dev"
    else
        run_logged "Installing localspec into .venv." pip install -e '.[demo]' || installation_failed
    fi
    run_logged "" "$venv/bin/python" -c 'import llama_cpp' || installation_failed
    stamp >"$venv/.prepared-app"
    rm -f "$unfinished"
    say "Ready."
}

# True for a .venv that can be installed into as it is, also one that was made by hand.
is_sound() {
    [ ! -e "$unfinished" ] || return
    "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || return
    local stamped
    for stamped in "$venv"/.prepared-*; do
        [ ! -e "$stamped" ] || [ "$(head -n 1 "$stamped")" = "$root" ] || return
    done
    "$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$venv/bin/python" -m ensurepip >/dev/null 2>&1
}

# -v: the log shows what the compiler does. --no-input: a question would be asked where nobody sees it.
pip() {
    (cd "$root" && "$venv/bin/python" -m pip --no-input "$@" -v)
}

# pip undoes what it began when it fails, so .venv is no worse than before; only a killed run leaves the marker behind.
installation_failed() {
    rm -f "$unfinished"
    {
        echo
        tail -n 25 "$setup_log"
        echo
    } >&2
    fail "The installation failed; its last lines are above." "The whole log: $setup_log" ${advice:+"$advice"}
}

say() {
    printf 'localspec: %s\n' "$1" >&2
}

# fail MESSAGE [WHAT TO DO]...
fail() {
    say "$1"
    shift
    [ $# -eq 0 ] || printf '  %s\n' "$@" >&2
    exit 1
}
