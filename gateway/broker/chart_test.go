package broker

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/sie-engine/sie/internal/testrig"
)

var update = flag.Bool("update", false, "write the chart's nats-permissions.conf")

// The chart gives each user what the broker of one machine gives it.
func TestTheChartHasThePermissions(t *testing.T) {
	path := filepath.Join(testrig.Root(t), "deploy/helm/sie-cluster/files/nats-permissions.conf")
	if *update {
		if err := os.WriteFile(path, []byte(Permissions()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != Permissions() {
		t.Errorf("%s is not what gateway/broker/permissions.go says (%v); "+
			"go test ./gateway/broker -run TheChartHas -update writes it", path, err)
	}
}
