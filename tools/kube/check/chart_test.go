package check

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sie-engine/sie/tools/kube/options"
	"github.com/sie-engine/sie/tools/kube/render"
	"github.com/sie-engine/sie/tools/kube/strict"
)

const (
	chartDir   = "../../../deploy/helm/sie-cluster"
	optionsDir = "../../../deploy/options"
	everything = "testdata/everything.yaml"
	withTLS    = "testdata/tls.yaml"
)

// decoder is made once: it reads large definitions.
var decoder = sync.OnceValues(func() (*strict.Decoder, error) { return strict.New(contextTODO) })

// rendering is the chart with some values.
type rendering struct {
	name  string
	docs  []render.Document
	notes string
}

// renderings returns the chart as users install it: with its own values, with each values file,
// with the two that go together, and with everything; each for a cluster with and without other
// projects' APIs.
func renderings(t *testing.T) (all []rendering) {
	t.Helper()
	files, err := render.ValuesFiles(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 4 {
		t.Fatalf("there are %v", files)
	}
	sets := [][]string{nil, {everything}, {withTLS}}
	for _, f := range files {
		sets = append(sets, []string{f})
	}
	sets = append(sets, []string{chartDir + "/values-gke.yaml", chartDir + "/values-ha.yaml"},
		[]string{chartDir + "/values-aws.yaml", chartDir + "/values-ha.yaml"})
	for _, set := range sets {
		for _, apis := range [][]string{nil, render.AllAPIs} {
			if apis == nil && slices.Contains(set, everything) {
				continue // an HTTPRoute is refused there
			}
			var name []string
			for _, f := range set {
				name = append(name, filepath.Base(f))
			}
			r := rendering{name: fmt.Sprintf("%v with %d APIs", name, len(apis))}
			if r.docs, r.notes, err = render.Chart(chartDir, render.Options{Values: set,
				APIs: apis}); err != nil {
				t.Fatalf("%s: %v", r.name, err)
			}
			all = append(all, r)
		}
	}
	return all
}

// decode returns the objects of documents; those of other projects' kinds are nil.
func decode(t *testing.T, r rendering) []runtime.Object {
	t.Helper()
	d, err := decoder()
	if err != nil {
		t.Fatal(err)
	}
	var all []runtime.Object
	for i := range r.docs {
		o, err := d.Decode(&r.docs[i])
		if err != nil {
			t.Errorf("%s: %v", r.name, err)
			continue
		}
		all = append(all, o)
	}
	return all
}

// pods returns the pod templates among objects, by name.
func pods(objects []runtime.Object) map[string]*corev1.PodSpec {
	all := map[string]*corev1.PodSpec{}
	for _, o := range objects {
		switch x := o.(type) {
		case *appsv1.Deployment:
			all["Deployment "+x.Name] = &x.Spec.Template.Spec
		case *appsv1.StatefulSet:
			all["StatefulSet "+x.Name] = &x.Spec.Template.Spec
		case *appsv1.DaemonSet:
			all["DaemonSet "+x.Name] = &x.Spec.Template.Spec
		case *corev1.Pod:
			all["Pod "+x.Name] = &x.Spec
		}
	}
	return all
}

func containers(p *corev1.PodSpec) []*corev1.Container {
	var all []*corev1.Container
	for i := range p.InitContainers {
		all = append(all, &p.InitContainers[i])
	}
	for i := range p.Containers {
		all = append(all, &p.Containers[i])
	}
	return all
}

// configFiles returns the texts of all ConfigMaps.
func configFiles(objects []runtime.Object) (text string) {
	for _, o := range objects {
		if c, ok := o.(*corev1.ConfigMap); ok {
			for _, v := range c.Data {
				text += v + "\n"
			}
		}
	}
	return text
}

// Every document of every values file is one that Kubernetes knows to the last field; names are not
// taken twice.
func TestEveryValuesFile(t *testing.T) {
	kinds := map[string]bool{}
	for _, r := range renderings(t) {
		decode(t, r)
		seen := map[string]bool{}
		for _, d := range r.docs {
			key := d.APIVersion + " " + d.Kind + " " + d.Name
			if seen[key] || d.Name == "" {
				t.Errorf("%s: %s is there twice, or has no name", r.name, key)
			}
			seen[key] = true
			kinds[d.Kind] = true
			clusterWide := d.Kind == "PriorityClass"
			if clusterWide == (d.Namespace != "") {
				t.Errorf("%s: %s has the namespace %q", r.name, d.String(), d.Namespace)
			}
			if len(d.Name) > 63 {
				t.Errorf("%s: the name %s is too long for a label", r.name, d.Name)
			}
		}
		if !strings.Contains(r.notes, "port-forward") {
			t.Errorf("%s: no notes", r.name)
		}
	}
	for _, want := range []string{
		"Deployment", "StatefulSet", "DaemonSet", "Service", "ServiceAccount", "Secret", "ConfigMap",
		"PodDisruptionBudget", "NetworkPolicy", "Ingress", "HTTPRoute", "ScaledObject",
		"TriggerAuthentication",
		"Role", "RoleBinding", "PriorityClass", "ServiceMonitor", "PersistentVolumeClaim",
		"HorizontalPodAutoscaler", "Pod",
	} {
		if !kinds[want] {
			t.Errorf("no rendering has a %s", want)
		}
	}
}

// Restricted pod security, in every pod; a service account of its own, no token of it, and images
// and resources that are named.
func TestPodsAreRestricted(t *testing.T) {
	for _, r := range renderings(t) {
		for name, p := range pods(decode(t, r)) {
			s := p.SecurityContext
			if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil ||
				*s.RunAsUser != 1000 ||
				s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("%s: %s: pod security %+v", r.name, name, s)
			}
			if p.AutomountServiceAccountToken == nil || *p.AutomountServiceAccountToken {
				t.Errorf("%s: %s mounts a token", r.name, name)
			}
			if p.HostNetwork || p.HostPID || p.HostIPC {
				t.Errorf("%s: %s shares the host's namespaces", r.name, name)
			}
			for _, v := range p.Volumes {
				if v.HostPath != nil {
					t.Errorf("%s: %s mounts %s of the host", r.name, name, v.HostPath.Path)
				}
			}
			for _, c := range containers(p) {
				s := c.SecurityContext
				if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation ||
					s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.Capabilities == nil ||
					!slices.Contains(s.Capabilities.Drop, "ALL") || len(s.Capabilities.Add) > 0 {
					t.Errorf("%s: %s, %s: security %+v", r.name, name, c.Name, s)
				}
				if c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
					t.Errorf("%s: %s, %s has no memory to ask for, or no limit", r.name, name, c.Name)
				}
				if _, tag, ok := strings.Cut(c.Image, ":"); !ok || tag == "" || tag == "latest" {
					t.Errorf("%s: %s, %s: image %s", r.name, name, c.Name, c.Image)
				}
			}
		}
	}
}

// Each component has an account of its own, and nothing but KEDA's path has rights.
func TestAccountsAndRights(t *testing.T) {
	for _, r := range renderings(t) {
		accounts := map[string]string{}
		for name, p := range pods(decode(t, r)) {
			component := strings.Fields(name)[1]
			component, _, _ = strings.Cut(component, "-worker-")
			if p.ServiceAccountName == "" {
				continue // tests and pulling images need none
			}
			if other, taken := accounts[p.ServiceAccountName]; taken && other != component {
				t.Errorf("%s: %s and %s share the account %s", r.name, other, component, p.ServiceAccountName)
			}
			accounts[p.ServiceAccountName] = component
		}
		want := 4
		if strings.Contains(r.name, filepath.Base(withTLS)) {
			want = 3 // NATS is another release's
		}
		if len(accounts) != want {
			t.Errorf("%s: accounts %v", r.name, accounts)
		}
		for _, d := range r.docs {
			if strings.HasSuffix(d.Kind, "Role") || strings.HasSuffix(d.Kind, "RoleBinding") {
				if !strings.HasSuffix(d.Source, "/keda.yaml") || strings.HasPrefix(d.Kind, "Cluster") {
					t.Errorf("%s: %s", r.name, d.String())
				}
			}
		}
	}
}

// The images have the reference's names.
func TestImageNames(t *testing.T) {
	want := map[string]string{
		"gateway": "ghcr.io/superlinked/sie-gateway", "nats": "ghcr.io/superlinked/sie-gateway",
		"config": "ghcr.io/superlinked/sie-config", "worker": "ghcr.io/superlinked/sie-server",
		"worker-sidecar": "ghcr.io/superlinked/sie-server-sidecar", "pull": "ghcr.io/superlinked/sie-server",
		"hold": "registry.k8s.io/pause",
	}
	for _, r := range renderings(t) {
		seen := map[string]bool{}
		for name, p := range pods(decode(t, r)) {
			for _, c := range containers(p) {
				image, tag, _ := strings.Cut(c.Image, ":")
				if image != want[c.Name] {
					t.Errorf("%s: %s, %s: %s, want %s", r.name, name, c.Name, image, want[c.Name])
				}
				if c.Name == "worker" && !strings.HasPrefix(tag, "0.10.1-c") {
					t.Errorf("%s: %s: tag %s has no platform", r.name, name, tag)
				}
				seen[c.Name] = true
			}
		}
		if !seen["worker-sidecar"] || !seen["gateway"] || !seen["config"] {
			t.Errorf("%s: containers %v", r.name, seen)
		}
	}
}

// Every flag and variable in a manifest is one that its program knows, and every one that a program
// knows is in the values or on the list of reasons.
func TestFlagsAndVariables(t *testing.T) {
	known, err := options.Load(optionsDir)
	if err != nil {
		t.Fatal(err)
	}
	var used []options.Start
	for _, r := range renderings(t) {
		objects := decode(t, r)
		files := configFiles(objects)
		for name, p := range pods(objects) {
			for _, c := range withHooks(containers(p)) {
				s, err := known.Check(c, files)
				if err != nil {
					t.Errorf("%s: %s, %s: %v", r.name, name, c.Name, err)
				}
				used = append(used, s)
			}
		}
	}
	used = append(append(used, gitopsStarts(t, known)...),
		composeStarts(t, known, composed(t, "compose.yaml"))...)
	if err := known.Uncovered(used, settings(t)); err != nil {
		t.Error(err)
	}
}

// withHooks adds to containers what their preStop runs, as containers whose program is the hook's.
func withHooks(all []*corev1.Container) []*corev1.Container {
	for _, c := range slices.Clone(all) {
		if c.Lifecycle == nil || c.Lifecycle.PreStop == nil || c.Lifecycle.PreStop.Exec == nil {
			continue
		}
		argv := c.Lifecycle.PreStop.Exec.Command
		hook := &corev1.Container{Name: c.Name + "'s preStop", Image: c.Image, Args: argv[1:]}
		if argv[0] != options.Program(c.Image) {
			hook.Command = argv // which Check refuses: an image has nothing but its program
		}
		all = append(all, hook)
	}
	return all
}

// settings returns the variables that the schema lets users set, by program.
func settings(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(chartDir + "/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for program, path := range map[string]string{
		"sie-gateway": "gateway", "sie-config": "config", "sie-server": "workers common",
		"sie-sidecar": "workers common workerSidecar",
	} {
		at := schema
		for _, key := range append(strings.Fields(path), "settings") {
			at = at.(map[string]any)["properties"].(map[string]any)[key]
		}
		for name := range at.(map[string]any)["properties"].(map[string]any) {
			all[program] = append(all[program], name)
		}
	}
	return all
}

// A variable that no flag has is read where variables.yaml says it is.
func TestVariablesAreRead(t *testing.T) {
	known, err := options.Load(optionsDir)
	if err != nil {
		t.Fatal(err)
	}
	for program, list := range known.Variables() {
		for name, where := range list {
			if strings.HasPrefix(where, "the OpenTelemetry SDK") || strings.HasPrefix(where,
				"the Go runtime") ||
				strings.HasPrefix(where, "the AWS SDK") || strings.HasPrefix(where, "Google's") {
				continue
			}
			text, err := os.ReadFile(filepath.Join("../../..", where))
			if err != nil || !strings.Contains(string(text), `"`+name) {
				t.Errorf("%s: %s is not read in %s: %v", program, name, where, err)
			}
		}
	}
}
