// Package deploy holds what the Helm chart and the Go programs share, so that it is written once.
package deploy

import _ "embed"

// Triggers is the KEDA ScaledObject of one lane's workers, in YAML, with the placeholders
// LANE_POOL, LANE_PROFILE, LANE_BUNDLE and MAX. The chart takes its triggers, `sie-gateway dev
// --autoscale` all of it.
//
//go:embed helm/sie-cluster/files/triggers.yaml
var Triggers string
