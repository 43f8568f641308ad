package plane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/sie-engine/sie/tools/kube/crds"
)

func (p *Plane) connect() (err error) {
	if p.client, err = dynamic.NewForConfig(p.Config); err != nil {
		return err
	}
	p.found, err = discovery.NewDiscoveryClientForConfig(p.Config)
	return err
}

// look asks the server which kinds it has.
func (p *Plane) look() error {
	groups, err := restmapper.GetAPIGroupResources(p.found)
	if err != nil {
		return err
	}
	p.mapper = restmapper.NewDiscoveryRESTMapper(groups)
	return nil
}

// HandleWarningHeader keeps a warning of the server.
func (p *Plane) HandleWarningHeader(_ int, _, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.warnings = append(p.warnings, text)
}

// Warnings returns what the server has warned of since the last call.
func (p *Plane) Warnings() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.warnings
	p.warnings = nil
	return all
}

var _ rest.WarningHandler = (*Plane)(nil)

// Kinds returns what the server has, as Helm's .Capabilities.APIVersions: "apps/v1" and
// "apps/v1/Deployment".
func (p *Plane) Kinds() ([]string, error) {
	_, lists, err := p.found.ServerGroupsAndResources()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, l := range lists {
		out = append(out, l.GroupVersion)
		for _, r := range l.APIResources {
			if !strings.Contains(r.Name, "/") {
				out = append(out, l.GroupVersion+"/"+r.Kind)
			}
		}
	}
	return out, nil
}

// Read splits YAML into its documents. One that holds nothing is left out.
func Read(text []byte) (out []*unstructured.Unstructured, err error) {
	d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		u := &unstructured.Unstructured{}
		err := d.Decode(&u.Object)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if len(u.Object) > 0 {
			out = append(out, u)
		}
	}
}

// ErrWarned is returned for what the server takes with a warning.
var ErrWarned = errors.New("the server warns")

// Mode says what Apply does.
type Mode int

// The modes.
const (
	Check Mode = iota // the server checks and admits, and keeps nothing
	Take              // the server keeps it
)

// Apply has the server check an object, or take it, as `kubectl apply --server-side` does with
// strict validation: a field that the server does not know, or that stands twice, is an error. A
// warning is an error too. An object without a namespace goes to namespace.
func (p *Plane) Apply(ctx context.Context, o *unstructured.Unstructured, namespace string, m Mode) error {
	into, err := p.resource(o, namespace)
	if err != nil {
		return fmt.Errorf("%s: %w", Name(o), err)
	}
	body, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	force := true
	opts := metav1.PatchOptions{
		FieldManager: "kube-check", Force: &force, FieldValidation: metav1.FieldValidationStrict,
	}
	if m == Check {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	p.Warnings()
	if _, err := into.Patch(ctx, o.GetName(), types.ApplyPatchType, body, opts); err != nil {
		return fmt.Errorf("%s: %w", Name(o), err)
	}
	if w := p.Warnings(); len(w) > 0 {
		return fmt.Errorf("%s: %w: %s", Name(o), ErrWarned, strings.Join(w, "; "))
	}
	return nil
}

// Create has the server check an object that must not be there yet, as a controller makes a pod.
func (p *Plane) Create(ctx context.Context, o *unstructured.Unstructured, namespace string, m Mode) error {
	into, err := p.resource(o, namespace)
	if err != nil {
		return fmt.Errorf("%s: %w", Name(o), err)
	}
	opts := metav1.CreateOptions{FieldManager: "kube-check", FieldValidation: metav1.FieldValidationStrict}
	if m == Check {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	p.Warnings()
	if _, err := into.Create(ctx, o, opts); err != nil {
		return fmt.Errorf("%s: %w", Name(o), err)
	}
	if w := p.Warnings(); len(w) > 0 {
		return fmt.Errorf("%s: %w: %s", Name(o), ErrWarned, strings.Join(w, "; "))
	}
	return nil
}

// Name names an object in a message.
func Name(o *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s %s", o.GetAPIVersion(), o.GetKind(), o.GetName())
}

// resource returns where an object goes.
func (p *Plane) resource(o *unstructured.Unstructured, namespace string) (dynamic.ResourceInterface, error) {
	kind := o.GroupVersionKind()
	mapping, err := p.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	into := p.client.Resource(mapping.Resource)
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return into, nil
	}
	if own := o.GetNamespace(); own != "" {
		namespace = own
	}
	return into.Namespace(namespace), nil
}

// Namespace makes a namespace that enforces a level of the Pod Security Standards, and warns of it.
// It has the service account that a controller would give it.
func (p *Plane) Namespace(ctx context.Context, name, level string) error {
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": name, "labels": map[string]any{
			"pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/warn": level,
		}}}}
	account := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ServiceAccount",
		"metadata": map[string]any{"name": "default"}}}
	return errors.Join(p.Apply(ctx, ns, "", Take), p.Apply(ctx, account, name, Take))
}

// definitions takes the chart's custom resources of other projects.
func (p *Plane) definitions(ctx context.Context, t testing.TB) {
	t.Helper()
	if err := p.look(); err != nil {
		t.Fatal(err)
	}
	files, err := crds.Files(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p.Define(ctx, t, files)
}

// Define takes the custom resources of files and waits until the server serves them.
func (p *Plane) Define(ctx context.Context, t testing.TB, files []string) {
	t.Helper()
	var made []*unstructured.Unstructured
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all, err := Read(text)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, o := range all {
			if o.GetKind() != "CustomResourceDefinition" {
				continue
			}
			o = o.DeepCopy()
			unstructured.RemoveNestedField(o.Object, "status")
			if err := p.put(ctx, o); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			made = append(made, o)
		}
	}
	for _, o := range made {
		for !p.established(ctx, o) {
			select {
			case <-ctx.Done():
				t.Fatalf("%s is not served: %v", Name(o), ctx.Err())
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	if err := p.look(); err != nil {
		t.Fatal(err)
	}
	p.Warnings()
}

// put takes an object of others as it is: it need not be strict, and warnings are theirs.
func (p *Plane) put(ctx context.Context, o *unstructured.Unstructured) error {
	into, err := p.resource(o, "")
	if err != nil {
		return err
	}
	_, err = into.Create(ctx, o, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (p *Plane) established(ctx context.Context, o *unstructured.Unstructured) bool {
	into, err := p.resource(o, "")
	if err != nil {
		return false
	}
	now, err := into.Get(ctx, o.GetName(), metav1.GetOptions{})
	if err != nil {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(now.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
			return true
		}
	}
	return false
}
