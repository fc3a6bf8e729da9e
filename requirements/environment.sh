# shellcheck shell=sh
# Sourced by `run` and `test` with `root` set to the project: finds Python, keeps the virtual environment current.
# Afterwards `venv` is the environment and `python` its interpreter. POSIX sh; says nothing when all is well.

venv=${SKEWGATE_VENV:-$root/.venv}
case $venv in
    /*) ;;
    *) venv=$PWD/$venv ;;
esac
python=$venv/bin/python

# Prints the first suitable interpreter. Each is asked, since a name on the path (a shim, say) promises nothing.
find_python() {
    # shellcheck disable=SC2086  # a list of words, unless the user named one interpreter
    for candidate in ${SKEWGATE_PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    found=$("${SKEWGATE_PYTHON:-python3}" --version 2>/dev/null) || found="no ${SKEWGATE_PYTHON:-python3}"
    echo "skewgate: needs Python 3.11, 3.12, 3.13 or 3.14 on the PATH, or named by SKEWGATE_PYTHON; found $found." >&2
    echo "skewgate: on Debian 12 and later or Ubuntu 24.04 and later: apt-get install python3 python3-venv" >&2
    return 1
}

# ensure_environment runtime|dev: nothing to do but two checksums and a comparison when it stands already.
ensure_environment() {
    stamp=$(cd "$root" && echo "$root" && cksum pyproject.toml requirements/install.py "requirements/$1.txt" \
        gateway/dataplane/http1/layout_matcher.c) || return 1
    if [ -x "$python" ] && [ -r "$venv/.skewgate-$1" ] && [ "$(cat "$venv/.skewgate-$1")" = "$stamp" ]; then
        return 0
    fi
    interpreter=$(find_python) || return 1
    "$interpreter" "$root/requirements/install.py" "$venv" "$1" "$stamp" </dev/null
}
