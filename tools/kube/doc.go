// Package kube is the root of a module of its own, so that what checks the chart (Helm, Kubernetes'
// types) is no dependency of the product. Its packages: render makes manifests of the chart with
// Helm's own engine, strict decodes them, options compares them with the flags and variables of the
// programs, crds finds the definitions of other projects' kinds; cmd/chart renders, packs and
// pushes the chart.
package kube
