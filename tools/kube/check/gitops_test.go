package check

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"

	"github.com/sie-engine/sie/tools/kube/options"
	"github.com/sie-engine/sie/tools/kube/render"
)

const gitopsDir = "../../../deploy/gitops"

// application is Argo CD's Application as far as the example uses it. Its module has no part that
// holds the types alone; package accept has its definition judge the example.
type application struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Spec struct {
		Project string `json:"project"`
		Source  struct {
			RepoURL        string `json:"repoURL"`
			TargetRevision string `json:"targetRevision"`
			Path           string `json:"path"`
			Helm           *struct {
				ReleaseName  string         `json:"releaseName"`
				ValueFiles   []string       `json:"valueFiles"`
				ValuesObject map[string]any `json:"valuesObject"`
			} `json:"helm"`
		} `json:"source"`
		Destination struct {
			Server    string `json:"server"`
			Namespace string `json:"namespace"`
		} `json:"destination"`
		SyncPolicy struct {
			Automated struct {
				Prune    bool `json:"prune"`
				SelfHeal bool `json:"selfHeal"`
			} `json:"automated"`
			SyncOptions []string `json:"syncOptions"`
		} `json:"syncPolicy"`
	} `json:"spec"`
}

// kustomization is a kustomization.yaml as far as the example uses it.
type kustomization struct {
	APIVersion         string   `json:"apiVersion"`
	Kind               string   `json:"kind"`
	Namespace          string   `json:"namespace"`
	Resources          []string `json:"resources"`
	ConfigMapGenerator []struct {
		Name  string   `json:"name"`
		Files []string `json:"files"`
	} `json:"configMapGenerator"`
}

// gitops returns the documents of the examples, without the model files.
func gitops(t *testing.T) (all []render.Document) {
	t.Helper()
	err := filepath.WalkDir(gitopsDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" || strings.Contains(path,
			"/models/models/") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		docs, err := render.Split(path, text)
		all = append(all, docs...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// gitopsStarts returns how the examples start programs.
func gitopsStarts(t *testing.T, known *options.Known) (all []options.Start) {
	t.Helper()
	d, err := decoder()
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range gitops(t) {
		if doc.Kind != "Job" {
			continue
		}
		o, err := d.Decode(&doc)
		if err != nil {
			t.Fatal(err)
		}
		for i := range o.(*batchv1.Job).Spec.Template.Spec.Containers {
			s, err := known.Check(&o.(*batchv1.Job).Spec.Template.Spec.Containers[i], "")
			if err != nil {
				t.Error(err)
			}
			all = append(all, s)
		}
	}
	return all
}

// The examples are what Flux, Argo CD and Kubernetes read, to the last field; what they name is
// there.
func TestGitOps(t *testing.T) {
	d, err := decoder()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, doc := range gitops(t) {
		seen[doc.Kind]++
		var err error
		switch doc.APIVersion + " " + doc.Kind {
		case "source.toolkit.fluxcd.io/v1 OCIRepository":
			err = yaml.UnmarshalStrict(doc.Raw, &sourcev1.OCIRepository{})
		case "source.toolkit.fluxcd.io/v1 GitRepository":
			err = yaml.UnmarshalStrict(doc.Raw, &sourcev1.GitRepository{})
		case "kustomize.toolkit.fluxcd.io/v1 Kustomization":
			var k kustomizev1.Kustomization
			err = yaml.UnmarshalStrict(doc.Raw, &k)
			exists(t, k.Spec.Path)
		case "helm.toolkit.fluxcd.io/v2 HelmRelease":
			var r helmv2.HelmRelease
			if err = yaml.UnmarshalStrict(doc.Raw, &r); err == nil {
				taken(t, r.Spec.Values.Raw)
			}
		case "argoproj.io/v1alpha1 Application":
			var a application
			err = yaml.UnmarshalStrict(doc.Raw, &a)
			exists(t, a.Spec.Source.Path)
			if h := a.Spec.Source.Helm; h != nil {
				text, failed := yaml.Marshal(h.ValuesObject)
				if failed != nil {
					t.Fatal(failed)
				}
				taken(t, text, h.ValueFiles...)
			}
		case "kustomize.config.k8s.io/v1beta1 Kustomization":
			var k kustomization
			err = yaml.UnmarshalStrict(doc.Raw, &k)
			for _, f := range append(k.Resources, k.ConfigMapGenerator[0].Files...) {
				exists(t, filepath.Join("deploy/gitops/models", f))
			}
		default:
			_, err = d.Decode(&doc)
		}
		if err != nil {
			t.Errorf("%s: %v", doc.String(), err)
		}
	}
	if seen["Application"] != 2 || seen["HelmRelease"] != 1 || seen["Job"] != 1 ||
		seen["Kustomization"] != 2 {
		t.Errorf("the examples have %v", seen)
	}
}

func exists(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join("../../..", path)); err != nil || path == "" {
		t.Errorf("%q: %v", path, err)
	}
}

// taken renders the chart with an example's values.
func taken(t *testing.T, values []byte, files ...string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, values, 0o600); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range files {
		all = append(all, filepath.Join(chartDir, f))
	}
	docs, _, err := render.Chart(chartDir, render.Options{Values: append(all, path), APIs: render.AllAPIs})
	if err != nil || len(docs) < 20 {
		t.Errorf("%s\n%v", values, err)
	}
}
