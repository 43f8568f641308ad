package server

import (
	"os"
	"strings"
)

// WorkerName returns the name that a worker reports: the operator's, else the host's.
func WorkerName() string {
	for _, k := range []string{"SIE_WORKER_ID", "HOSTNAME", "POD_NAME"} {
		if v := strings.TrimSpace(os.Getenv(k)); v != "" {
			return v
		}
	}
	h, _ := os.Hostname()
	return h
}
