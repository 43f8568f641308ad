package accept

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/sie-engine/sie/tools/kube/crds"
	"github.com/sie-engine/sie/tools/kube/plane"
	"github.com/sie-engine/sie/tools/kube/stage"
)

// gitopsNamespaces are those of the examples; ours is restricted, as the chart's are.
var gitopsNamespaces = map[string]string{"argocd": "baseline", "flux-system": "baseline", "sie": level}

// The examples of Argo CD and Flux are taken by a server that has these projects' own definitions,
// checked strictly, and each typo in them is refused. What Kustomize makes of the models is taken
// too, and its pod admitted.
func TestTheServerTakesTheGitOpsExamples(t *testing.T) {
	stage.Full(t)
	files, err := crds.GitOps(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := plane.Start(t)
	p.Define(t.Context(), t, files)
	for name, level := range gitopsNamespaces {
		if err := p.Namespace(t.Context(), name, level); err != nil {
			t.Fatal(err)
		}
	}
	examples := filepath.Join(stage.Root(t), "deploy", "gitops")
	var all []*unstructured.Unstructured
	for _, file := range []string{"argocd/sie-cluster.yaml", "flux/sie-cluster.yaml"} {
		text, err := os.ReadFile(filepath.Join(examples, file))
		if err != nil {
			t.Fatal(err)
		}
		objects, err := plane.Read(text)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, objects...)
	}
	kinds, typos := map[string]bool{}, 0
	for _, o := range all {
		kinds[o.GetKind()] = true
		for _, mode := range []plane.Mode{plane.Check, plane.Take} {
			if err := p.Apply(t.Context(), o, "", mode); err != nil {
				t.Errorf("%v", err)
			}
		}
		for _, bad := range withTypos(o) {
			typos++
			if err := p.Apply(t.Context(), bad.object, "", plane.Check); err == nil {
				t.Errorf("%s: a typo in %s is not refused", plane.Name(o), bad.where)
			}
		}
	}
	if len(all) != 6 || len(kinds) != 5 || typos < 50 {
		t.Errorf("%d typos in %d objects of %d kinds", typos, len(all), len(kinds))
	}
	t.Logf("%d objects were taken, %d typos in them refused", len(all), typos)

	made := kustomized(t, filepath.Join(examples, "models"))
	takes(t, p, "sie", made)
	if len(pods(made)) != 1 {
		t.Errorf("Kustomize makes %d pods of the models", len(pods(made)))
	}
}

// kustomized returns what Kustomize makes of a folder, as Argo CD and Flux have it do.
func kustomized(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	m, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := m.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	all, err := plane.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	return inOrder(all)
}

// A model that changes gives the models' ConfigMap another name, and so the Job another pod:
// the Job is made anew.
func TestAModelThatChangesRunsTheJobAgain(t *testing.T) {
	stage.Full(t)
	dir := t.TempDir()
	models := os.DirFS(filepath.Join(stage.Root(t), "deploy", "gitops", "models"))
	if err := os.CopyFS(dir, models); err != nil {
		t.Fatal(err)
	}
	names := func() (config, job string) {
		for _, o := range kustomized(t, dir) {
			switch o.GetKind() {
			case "ConfigMap":
				config = o.GetName()
				if data, _, _ := unstructured.NestedStringMap(o.Object, "data"); len(data) != 1 {
					t.Errorf("the ConfigMap has %d files", len(data))
				}
			case "Job":
				volumes, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "volumes")
				i := slices.IndexFunc(volumes, func(v any) bool {
					return v.(map[string]any)["name"] == "models"
				})
				if i < 0 {
					t.Fatalf("the Job has the volumes %v", volumes)
				}
				job, _, _ = unstructured.NestedString(volumes[i].(map[string]any), "configMap", "name")
			}
		}
		return config, job
	}
	config, job := names()
	if config != job || !regexp.MustCompile(`^sie-models-[a-z0-9]+$`).MatchString(config) {
		t.Errorf("the Job reads %q, the models are in %q", job, config)
	}
	file := filepath.Join(dir, "models", "example.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(text, "# changed\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if other, again := names(); other != again || other == config {
		t.Errorf("after a change the Job reads %q, the models are in %q, before in %q", again, other, config)
	}
}
