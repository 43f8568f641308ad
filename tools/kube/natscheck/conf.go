package natscheck

import (
	"encoding/json"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sie-engine/sie/tools/kube/render"
	"github.com/sie-engine/sie/tools/kube/stage"
)

// Conf returns the nats.conf that the chart renders with some values.
func Conf(t testing.TB, set ...string) string {
	t.Helper()
	dir := filepath.Join(stage.Root(t), "deploy", "helm", "sie-cluster")
	docs, _, err := render.Chart(dir, render.Options{KubeVersion: "v1.36.0", Set: set})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range docs {
		m := corev1.ConfigMap{}
		if d.Kind != "ConfigMap" || json.Unmarshal(d.JSON, &m) != nil {
			continue
		}
		if conf, ok := m.Data["nats.conf"]; ok {
			return conf
		}
	}
	t.Fatal("the chart has no ConfigMap with nats.conf")
	return ""
}
