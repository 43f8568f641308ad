package accept

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sie-engine/sie/tools/kube/plane"
	"github.com/sie-engine/sie/tools/kube/render"
	"github.com/sie-engine/sie/tools/kube/stage"
)

// level is the Pod Security Standard that the namespaces of the chart enforce.
const level = "restricted"

// Values with all that the chart can do, and with certificates.
const (
	everything = "../check/testdata/everything.yaml"
	withTLS    = "../check/testdata/tls.yaml"
)

// others are what those values take from the cluster.
var others = []*unstructured.Unstructured{
	{Object: map[string]any{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
		"metadata": map[string]any{"name": "mine"}, "value": int64(1000)}},
	{Object: map[string]any{"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
		"metadata": map[string]any{"name": "nvidia"}, "handler": "nvidia"}},
}

// changes are values that an upgrade changes, none of which may touch a field that cannot change.
var changes = []string{
	"gateway.image.tag=2.0.0", "config.image.tag=2.0.0", "workers.common.image.tag=2.0.0",
	"workers.common.workerSidecar.image.tag=2.0.0", "gateway.replicas=3", "gateway.requestTimeoutSeconds=60",
	"gateway.resources.requests.cpu=300m", "nats.resources.requests.cpu=300m", "logging.json=false",
	"workers.common.drain.sidecarSeconds=20", "workers.common.modelReadyTimeoutSeconds=600",
	"queueRouting.streamMaxWaiting=5000",
}

// Every values file is taken: checked strictly, created, its pods admitted under the restricted
// standard, and upgraded to the next release's versions with other values and back, all without a
// warning.
func TestTheServerTakesEveryValuesFile(t *testing.T) {
	stage.Full(t)
	p := plane.Start(t)
	files, err := render.ValuesFiles(chartDir(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range others {
		if err := p.Apply(t.Context(), o, "", plane.Take); err != nil {
			t.Fatal(err)
		}
	}
	next, taken := later(t), 0
	for i, file := range append([]string{"", everything, withTLS}, files...) {
		var values []string
		name := "values.yaml"
		if file != "" {
			values, name = []string{file}, filepath.Base(file)
		}
		t.Run(name, func(t *testing.T) {
			namespace := fmt.Sprintf("sie-%d", i)
			if err := p.Namespace(t.Context(), namespace, level); err != nil {
				t.Fatal(err)
			}
			all := objects(t, p, chartDir(t), namespace, values)
			t.Logf("%d objects", len(all))
			taken += len(all)
			takes(t, p, namespace, all)
			takes(t, p, namespace, objects(t, p, next, namespace, values, changes...))
			takes(t, p, namespace, all) // and back
		})
	}
	if taken < 40 {
		t.Errorf("%d objects were taken", taken)
	}
}

// takes has the server check all objects, create them, and admit their pods.
func takes(t *testing.T, p *plane.Plane, namespace string, all []*unstructured.Unstructured) {
	t.Helper()
	for _, mode := range []plane.Mode{plane.Check, plane.Take} {
		for _, o := range all {
			if o.GetKind() == "Pod" || o.GetKind() == "Job" {
				continue // a hook, which Helm deletes before it creates it again
			}
			if err := p.Apply(t.Context(), o, namespace, mode); err != nil {
				t.Errorf("%v", err)
			}
		}
	}
	for _, o := range all {
		if o.GetKind() == "Job" {
			if err := p.Create(t.Context(), o, namespace, plane.Check); err != nil {
				t.Errorf("%v", err)
			}
		}
	}
	for _, pod := range pods(all) {
		if err := p.Create(t.Context(), pod, namespace, plane.Check); err != nil {
			t.Errorf("the pod of %v", err)
		}
	}
}

// The chart of an earlier commit is upgraded to this one: the server takes both, one over the
// other.
func TestTheChartOfAnEarlierCommitIsUpgraded(t *testing.T) {
	stage.Full(t)
	commit := cmp.Or(os.Getenv("SIE_BASE"), "HEAD~1")
	dir, err := render.Commit(t.Context(), stage.Root(t), commit, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if dir == "" {
		t.Skipf("%s has no chart", commit)
	}
	p := plane.Start(t)
	files, err := render.ValuesFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, file := range files {
		now := filepath.Join(chartDir(t), filepath.Base(file))
		if _, err := os.Stat(now); err != nil {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			namespace := fmt.Sprintf("sie-%d", i)
			if err := p.Namespace(t.Context(), namespace, level); err != nil {
				t.Fatal(err)
			}
			for _, o := range objects(t, p, dir, namespace, []string{file}) {
				if o.GetKind() == "Pod" || o.GetKind() == "Job" {
					continue
				}
				// What it is warned of was mended since.
				err := p.Apply(t.Context(), o, namespace, plane.Take)
				if err != nil && !errors.Is(err, plane.ErrWarned) {
					t.Fatal(err)
				}
			}
			takes(t, p, namespace, objects(t, p, chartDir(t), namespace, []string{now}))
		})
	}
}

// What is wrong on purpose is refused: a typo at each level of every kind, a field of another type,
// a pod that may do too much, a change of a field that cannot change.
func TestWhatIsWrongIsRefused(t *testing.T) {
	stage.Full(t)
	p := plane.Start(t)
	const namespace = "sie"
	if err := p.Namespace(t.Context(), namespace, level); err != nil {
		t.Fatal(err)
	}
	files, err := render.ValuesFiles(chartDir(t))
	if err != nil {
		t.Fatal(err)
	}
	kinds, typos := map[string]bool{}, 0
	for _, file := range files {
		for _, o := range objects(t, p, chartDir(t), namespace, []string{file}) {
			if kinds[o.GetKind()] {
				continue
			}
			kinds[o.GetKind()] = true
			for _, bad := range withTypos(o) {
				typos++
				if err := p.Apply(t.Context(), bad.object, namespace, plane.Check); err == nil {
					t.Errorf("%s: a typo in %s is not refused", plane.Name(o), bad.where)
				}
			}
		}
	}
	if len(kinds) < 10 || typos < 100 {
		t.Errorf("%d typos in %d kinds", typos, len(kinds))
	}
	t.Logf("%d typos in %d kinds were refused", typos, len(kinds))

	all := objects(t, p, chartDir(t), namespace, files[:1])
	for _, o := range all {
		if o.GetKind() != "Pod" && o.GetKind() != "Job" {
			if err := p.Apply(t.Context(), o, namespace, plane.Take); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, pod := range pods(all) {
		for what, change := range map[string]func(spec map[string]any, first map[string]any){
			"root": func(spec, _ map[string]any) {
				_ = unstructured.SetNestedField(spec, false, "securityContext", "runAsNonRoot")
			},
			"host network": func(spec, _ map[string]any) { spec["hostNetwork"] = true },
			"privileges": func(_, c map[string]any) {
				delete(c, "securityContext")
			},
			"a host path": func(spec, _ map[string]any) {
				spec["volumes"] = append(spec["volumes"].([]any), map[string]any{"name": "x",
					"hostPath": map[string]any{"path": "/"}})
			},
		} {
			bad := pod.DeepCopy()
			spec := bad.Object["spec"].(map[string]any)
			if _, has := spec["volumes"].([]any); !has {
				spec["volumes"] = []any{}
			}
			change(spec, spec["containers"].([]any)[0].(map[string]any))
			if err := p.Create(t.Context(), bad, namespace, plane.Check); err == nil {
				t.Errorf("%s with %s is admitted", pod.GetName(), what)
			}
		}
	}
	for _, o := range all {
		if o.GetKind() != "Deployment" && o.GetKind() != "StatefulSet" {
			continue
		}
		bad := o.DeepCopy()
		for _, path := range [][]string{
			{"spec", "selector", "matchLabels"}, {"spec", "template", "metadata", "labels"},
		} {
			_ = unstructured.SetNestedField(bad.Object, "x", append(path, "other")...)
		}
		if err := p.Apply(t.Context(), bad, namespace, plane.Check); err == nil {
			t.Errorf("%s: another selector is taken", plane.Name(o))
		}
	}
}

// typo is an object with one key that has a letter too many.
type typo struct {
	object *unstructured.Unstructured
	where  string
}

// free are the maps whose keys are anybody's: a typo there is no typo.
var free = map[string]bool{
	"labels": true, "annotations": true, "matchLabels": true, "data": true, "stringData": true,
	"nodeSelector": true, "limits": true, "requests": true, "metadata": true, "binaryData": true,
	"values": true, "valuesObject": true, // of a chart
}

// withTypos returns the object with one wrong key each: the first key of every map at every depth.
func withTypos(o *unstructured.Unstructured) (out []typo) {
	var walk func(v any, path []any)
	walk = func(v any, path []any) {
		switch v := v.(type) {
		case map[string]any:
			for key, value := range v {
				at := append(append([]any{}, path...), key)
				anybodys := len(path) > 0 && free[fmt.Sprint(path[len(path)-1])] ||
					o.GetKind() == "Service" && fmt.Sprint(path) == "[spec selector]"
				if len(path) > 0 && !anybodys {
					c := o.DeepCopy()
					rename(c.Object, at)
					out = append(out, typo{c, fmt.Sprint(at)})
				}
				if !free[key] {
					walk(value, at)
				}
			}
		case []any:
			for i, value := range v {
				if i == 0 { // the others have the same keys
					walk(value, append(append([]any{}, path...), i))
				}
			}
		}
	}
	for key, value := range o.Object {
		if key != "metadata" && key != "apiVersion" && key != "kind" {
			walk(value, []any{key})
		}
	}
	return out
}

// rename gives the key at the end of a path a letter too many.
func rename(v any, path []any) {
	for _, step := range path[:len(path)-1] {
		switch s := step.(type) {
		case string:
			v = v.(map[string]any)[s]
		case int:
			v = v.([]any)[s]
		}
	}
	m, key := v.(map[string]any), path[len(path)-1].(string)
	m[key+"x"] = m[key]
	delete(m, key)
}
