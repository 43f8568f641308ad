#!/usr/bin/env bash
# Builds kube-apiserver, Helm and an OCI registry into build/kube, and puts etcd beside them. A second
# run does nothing. Fetches from the Go proxy and Debian only; the builds take about 12 minutes of CPU.
# etcd is Debian's, unpacked and not installed: a package that is installed starts a service.
set -euo pipefail
cd "$(dirname "$0")/../.."
kubernetes=v1.36.3
mkdir -p build/kube

if [ ! -e build/kube/etcd ]; then
  if command -v etcd >/dev/null; then
    ln -s "$(command -v etcd)" build/kube/etcd
  elif command -v apt-get >/dev/null; then
    echo "sie: etcd, from Debian's package etcd-server"
    unpack=$(mktemp -d build/kube/etcd.XXXXXX)
    trap 'rm -rf "$unpack"' EXIT
    (
      cd "$unpack"
      get() { apt-get download -qq etcd-server 2>log; }
      get || { apt-get update -qq && get; } || { cat log >&2; exit 1; }
      dpkg-deb -x etcd-server_*.deb .
    )
    mv "$unpack/usr/bin/etcd" build/kube/etcd
  else
    echo "sie: please install etcd 3.4 or newer" >&2
    exit 1
  fi
fi

server=build/kube/kube-apiserver-$kubernetes
if [ ! -e "$server" ]; then
  echo "sie: building kube-apiserver $kubernetes (about 7 minutes of CPU, once)"
  minor=${kubernetes#v1.}
  v=k8s.io/component-base/version
  (
    cd tools/kube/apiserver
    # -v names each package: a line for every hundred says that it goes on, and errors pass.
    GOFLAGS=-mod=readonly CGO_ENABLED=0 go build -v -trimpath -o "../../../$server.next" \
      -ldflags "-s -w -X $v.gitVersion=$kubernetes -X $v.gitMajor=1 -X $v.gitMinor=${minor%%.*}" \
      k8s.io/kubernetes/cmd/kube-apiserver 2>&1 |
      awk '!/^go: downloading/ && !/^[^ :]+$/ { print; next }
           ++n % 100 == 0 { print "sie: kube-apiserver: " n " packages"; fflush() }'
  )
  mv "$server.next" "$server"
fi

# Both major versions of Helm that users have, and the CNCF's registry, each with what it requires itself.
for program in helm.sh/helm/v3/cmd/helm@v3.22.0 helm.sh/helm/v4/cmd/helm@v4.3.1 \
  github.com/distribution/distribution/v3/cmd/registry@v3.1.2; do
  version=${program#*@}
  name=${program%@*}
  name=${name##*/}
  [ ! -e "build/kube/$name-$version" ] || continue
  echo "sie: building $name $version (about 2 minutes of CPU, once)"
  dir=$(mktemp -d build/kube/install.XXXXXX)
  (cd "$dir" && GOFLAGS=-mod=mod CGO_ENABLED=0 GOBIN=$PWD go install -trimpath -ldflags "-s -w" "$program" 2>log) ||
    { grep -v '^go: downloading' "$dir/log" >&2; rm -rf "$dir"; exit 1; }
  mv "$dir/$name" "build/kube/$name-$version"
  rm -rf "$dir"
done
