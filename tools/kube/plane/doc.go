// Package plane runs the control plane that manifests are checked against: etcd and kube-apiserver
// as processes of this machine, with the definitions of custom resources in it. There is no kubelet
// and no controller: nothing that is created is ever run.
//
// Entry points: Start, and the Plane that it returns; Plane.Apply, which has the server check a
// manifest, or take it. tools/setup/kube.sh makes the programs. Each process ends with the test.
package plane
