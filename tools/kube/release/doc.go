// Package release has the real helm command, of each major version, install, upgrade and remove the
// chart on a real kube-apiserver, as users type it, and push it to a real registry. It has tests
// only.
package release
