#!/usr/bin/env bash
# Builds kube-apiserver into build/kube, and puts etcd beside it. A second run does nothing. Fetches
# from the Go proxy and Debian only; the build takes about 7 minutes of CPU. etcd is Debian's, unpacked
# and not installed: a package that is installed starts a service.
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
