package dev

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/gateway/broker"
)

// A directory of models is that of sie-config and of the servers; a gateway gets its models from
// sie-config.
func TestTheDirectoryOfModels(t *testing.T) {
	for _, dir := range []string{"", "/models"} {
		o := options("/bin", "/state", 15000)
		o.ModelsDir, o.Models = dir, nil
		given := dir != ""
		server, config := o.serverSpec(0, o.Lanes[0]), o.configSpec()
		if i := slices.Index(server.argv, "--models-dir"); (i >= 0) != given ||
			given && server.argv[i+1] != dir {
			t.Errorf("server: %q", server.argv)
		}
		if slices.Contains(config.env, "SIE_MODELS_DIR="+dir) != given {
			t.Errorf("sie-config: %q", config.env)
		}
	}
}

// If the servers serve some models, sie-config has the files of those that a sie-server wrote, and
// they answer the routes that name none.
func TestDocumentsOfTheServersModels(t *testing.T) {
	state := t.TempDir()
	o := options(bin(t), state, 15000)
	if err := o.documents(t.Context()); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(state, "run", "models")
	if _, err := os.Stat(dir); err != nil || !slices.Contains(o.configSpec().env,
		"SIE_MODELS_DIR="+dir) {
		t.Errorf("%v", err)
	}
	const want = "SIE_DEFAULT_MODEL=org/b,org/a"
	if s, err := o.gatewaySpec(0, &broker.Users{}); err != nil || !slices.Contains(s.env, want) {
		t.Errorf("%v: %q lacks %s", err, s.env, want)
	}
	t.Setenv("SIE_DEFAULT_MODEL", "org/mine") // that of the caller stays
	if s, err := o.gatewaySpec(0, &broker.Users{}); err != nil || slices.Contains(s.env, want) {
		t.Errorf("%v: %q has %s", err, s.env, want)
	}
	t.Setenv("SIE_TEST_NO_MODEL", "1")
	if err := o.documents(t.Context()); err == nil || !strings.Contains(err.Error(), "no such model") {
		t.Errorf("%v", err)
	}
}
