#!/bin/sh
# Makes .venv, if it is not there, and installs into it what a lock file says, then Subgrant itself.
# Run from the repository's root by `make`; takes the lock file's name.
set -eu
lock=$1
here=$(pwd)
oldest='import sys; sys.exit(sys.version_info < (3, 11))'

say() { printf '%s\n' "$*" >&2; }

# The first Python that is new enough and can make environments; or, failing that, one that is new enough.
find_python() {
    bare=
    for python in "${PYTHON:-python3}" python3 python3.11 python3.12 python3.13 python3.14; do
        "$python" -c "$oldest" 2>/dev/null || continue
        if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
            return
        fi
        bare=${bare:-$python}
    done
    python=$bare
    if [ -z "$python" ]; then
        say "Subgrant needs Python 3.11 or newer, and none is on the PATH. If one lies elsewhere: make PYTHON=/path/to/python3"
        exit 1
    fi
    install_venv
}

# Debian ships the part of Python that makes environments as a package of its own.
install_venv() {
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "Installing $package"
        if ! told=$(
            exec 2>&1
            apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$package"
        ); then
            say "$told"
            exit 1
        fi
    else
        say "$python cannot make virtual environments. Run this, then try again:  sudo apt-get install $package"
        exit 1
    fi
}

if [ "$(cat .venv/folder 2>/dev/null)" != "$here" ] || ! .venv/bin/python -c "$oldest" 2>/dev/null; then
    find_python
    "$python" -m venv --clear .venv
    printf '%s\n' "$here" >.venv/folder
fi

say "Installing what $lock says into .venv"
# Twice quiet: pip's advice about its own version or a cache is not the reader's concern; errors still are.
pip() { .venv/bin/python -m pip install -qq --disable-pip-version-check --no-input "$@"; }
pip --require-hashes -r "$lock"
pip --no-deps --no-build-isolation --editable .
