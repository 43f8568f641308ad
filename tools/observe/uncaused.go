package main

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// uncaused lists the alerts that nothing on this machine can cause, and why. Series made of numbers
// stand in for their causes, in uncaused.yaml.
var uncaused = map[string]string{
	"SIEGPUMemoryHigh":      "the null device has no memory",
	"SIEGPUTemperatureHigh": "there is no GPU, and dcgm-exporter's series are NVIDIA's",
	"SIEGPUECCErrors":       "there is no GPU that could have them",
	"SIEProvisioningStuck":  "there are no pods: kube-state-metrics tells of them",
	"SIEScaleUpFailed":      "there is no horizontal pod autoscaler",
}

// unseen lists the metrics of which no series comes here, for the same reasons.
var unseen = []string{"sie_device_memory_used_bytes", "sie_device_memory_total_bytes", "DCGM_", "kube_"}

// isUnseen reports whether an expression selects such a metric.
func isUnseen(text string) bool {
	for _, name := range unseen {
		if strings.Contains(text, name) {
			return true
		}
	}
	return false
}

//go:embed uncaused.yaml
var uncausedTests string

// writeUncaused writes promtool's tests of the rules in a file, and returns theirs.
func writeUncaused(dir, rules string) (string, error) {
	for alert := range uncaused {
		if !strings.Contains(uncausedTests, "alertname: "+alert+"\n") {
			return "", fmt.Errorf("uncaused.yaml has no test of %s", alert)
		}
	}
	path := filepath.Join(dir, "uncaused.yaml")
	return path, os.WriteFile(path, []byte("rule_files: ["+rules+"]\n"+uncausedTests), 0o600)
}
