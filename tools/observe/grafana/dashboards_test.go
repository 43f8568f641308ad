// Package grafana decodes the chart's dashboards strictly into Grafana's own types. It is a module
// of its own, so that the product does not depend on them; `make observe-check` runs its test.
package grafana

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// Each dashboard is what Grafana's schema says, and a key that it does not know is refused.
func TestDashboards(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	paths, err := filepath.Glob("../../../deploy/helm/sie-cluster/files/dashboards/*.json")
	if err != nil || len(paths) < 5 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if why := strict(text); why != "" {
			t.Errorf("%s: %s", path, why)
		}
		for _, key := range []string{`"legendFormat"`, `"gridPos"`, `"templating"`, `"reduceOptions"`} {
			broken := strings.Replace(string(text), key, `"x`+key[1:], 1)
			if broken == string(text) {
				continue
			}
			if strict([]byte(broken)) == "" {
				t.Errorf("%s: a wrong key in place of %s is taken", path, key)
			}
		}
	}
}

// strict returns what is wrong with a dashboard, or "". The SDK returns an empty list of errors for
// none.
func strict(text []byte) (why string) {
	var d dashboard.Dashboard
	if err := d.UnmarshalJSONStrict(text); err != nil {
		why = err.Error()
	}
	if err := d.Validate(); err != nil {
		why += err.Error()
	}
	return why
}
