// Package deploy holds what the Helm chart and the Go programs share, so that it is written once.
//
// Entry points: Triggers, Files. The package imports nothing of the module and starts nothing.
package deploy

import (
	"embed"
	"io/fs"
)

// Triggers is the KEDA ScaledObject of one lane's workers, in YAML, with the placeholders
// LANE_POOL, LANE_PROFILE, LANE_BUNDLE and MAX. The chart takes its triggers, `sie-gateway dev
// --autoscale` all of it.
//
//go:embed helm/sie-cluster/files/triggers.yaml
var Triggers string

//go:embed helm/sie-cluster/files
var files embed.FS

// Files returns the folder "files" of the chart: triggers, alerts and dashboards.
func Files() fs.FS {
	sub, err := fs.Sub(files, "helm/sie-cluster/files")
	if err != nil {
		panic("deploy: internal error: " + err.Error())
	}
	return sub
}
