// Package rollout restarts the pods of rendered manifests as a cluster does, with the manifests'
// own numbers: preStop, grace, probes and the order of a Deployment and a StatefulSet. The
// containers are processes of this machine.
//
// Entry points: Kubelet, which starts pods, asks their probes and ends them; Service, through which
// clients reach those that are ready; Kubelet.Roll, which replaces the pods of a workload. Pods
// have a goroutine for each probe; Kubelet.Close ends them.
package rollout
