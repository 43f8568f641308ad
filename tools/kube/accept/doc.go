// Package accept has a real kube-apiserver take the chart: each values file rendered, checked,
// created and upgraded. It has tests only.
package accept
