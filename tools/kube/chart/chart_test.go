package chart

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	helm "helm.sh/helm/v3/pkg/registry"

	"github.com/sie-engine/sie/tools/kube/render"
)

const dir = "../../../deploy/helm/sie-cluster"

// The chart is packed with everything that it is rendered from, pushed to a registry, and comes
// back from there as it was.
func TestPackageAndPush(t *testing.T) {
	path, err := Package(dir, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(path) != "sie-cluster-0.10.1.tgz" {
		t.Errorf("packed as %s", path)
	}
	from, _, err := render.Chart(dir, render.Options{APIs: render.AllAPIs,
		Set: []string{"nats.auth.existingSecret=x"}})
	if err != nil {
		t.Fatal(err)
	}
	packed, _, err := render.Chart(path, render.Options{APIs: render.AllAPIs,
		Set: []string{"nats.auth.existingSecret=x"}})
	if err != nil || len(packed) != len(from) {
		t.Fatalf("the packed chart gives %d documents, the folder %d: %v", len(packed), len(from), err)
	}
	for i := range from {
		if !bytes.Equal(from[i].JSON, packed[i].JSON) {
			t.Errorf("%s differs in the packed chart", from[i].String())
		}
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	ref, err := Push(path, "oci://"+host+"/charts", true, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(ref, "oci://"+host+"/charts/sie-cluster --version 0.10.1 (sha256:") {
		t.Errorf("pushed to %s", ref)
	}
	client, err := helm.NewClient(helm.ClientOptPlainHTTP(), helm.ClientOptWriter(io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := client.Pull(host + "/charts/sie-cluster:0.10.1")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(pulled.Chart.Data, want) {
		t.Errorf("what comes back has %d bytes, what was pushed %d: %v", len(pulled.Chart.Data),
			len(want), err)
	}
	for to, part := range map[string]string{host: "write oci://", "oci://": "write oci://"} {
		if _, err := Push(path, to, true, io.Discard); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", to, err)
		}
	}
}
