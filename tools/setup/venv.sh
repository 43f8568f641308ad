#!/usr/bin/env bash
# Makes build/venv-NAME from tools/setup/requirements-NAME.txt; a second run does nothing. Usage:
# venv.sh NAME A line "# python 3.12" asks for that release of Python or a newer one, looked for on
# the PATH and where pyenv keeps them. A line "--no-deps SPEC" is installed on its own, without its
# dependencies and without its Python bound; a line "--target DIR SPEC" goes into
# build/venv-NAME/DIR, so that several releases of one package stand side by side.
set -euo pipefail
cd "$(dirname "$0")/../.."
name=$1
list=tools/setup/requirements-$name.txt
[ "$name" = golden ] && list=tools/golden/requirements.txt
venv=build/venv-$name

# The first Python that is new enough; python3 where the list asks for none.
want=$(sed -n 's/^# python //p' "$list")
python=""
for candidate in python3 python3.{12..15} "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python3; do
  "$candidate" - "${want:-3.0}" 2>/dev/null <<<'import ensurepip, sys, venv
sys.exit(sys.version_info < tuple(map(int, sys.argv[1].split("."))))' || continue
  python=$candidate
  break
done
[ -n "$python" ] || { echo "sie: $list needs Python ${want:-3} or newer with venv; none was found" >&2; exit 1; }

release=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
stamp=$venv/.stamp-$(cat "$list" "$0" | sha256sum | cut -c1-16)-$release
[ -e "$stamp" ] && exit 0

echo "sie: Python packages for '$name' into $venv"
rm -rf "$venv"
mkdir -p build
"$python" -m venv --without-pip "$venv"
pip() { tools/setup/pip.sh --python "$venv" "$@"; }
plain=$(mktemp)
trap 'rm -f "$plain"' EXIT
grep -vE '^(#|--no-deps|--target|$)' "$list" > "$plain" || true
if [ -s "$plain" ]; then
  pip install --progress-bar off --no-compile -r "$plain"
fi
mapfile -t alone < <(sed -n 's/^--no-deps //p' "$list")
if [ ${#alone[@]} -gt 0 ]; then
  pip install -q --no-compile --no-deps --ignore-requires-python "${alone[@]}"
fi
while read -r _ dir spec; do
  pip install -q --no-compile --no-deps --ignore-requires-python --target "$venv/$dir" "$spec" </dev/null
done < <(grep -E '^--target ' "$list" || true)
touch "$stamp"
