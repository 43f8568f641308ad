package check

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sie-engine/sie/tools/kube/render"
)

// policies returns the network policies of a rendering.
func policies(t *testing.T, docs []render.Document) (all []*networkingv1.NetworkPolicy) {
	t.Helper()
	for _, o := range decode(t, rendering{docs: docs}) {
		if p, ok := o.(*networkingv1.NetworkPolicy); ok {
			all = append(all, p)
		}
	}
	return all
}

func selects(t *testing.T, s *metav1.LabelSelector, l labels.Set) bool {
	t.Helper()
	sel, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return sel.Matches(l)
}

// of returns the labels of a component's pods.
func of(component string) labels.Set {
	return labels.Set{"app.kubernetes.io/name": "sie", "app.kubernetes.io/instance": "sie-cluster",
		"app.kubernetes.io/component": component}
}

// reaches reports whether the policies let pods of one component open a connection to another's
// port: its egress and the other's ingress. "" stands for addresses outside.
func reaches(t *testing.T, all []*networkingv1.NetworkPolicy, from, to, port string, number int32) bool {
	t.Helper()
	has := func(ports []networkingv1.NetworkPolicyPort) bool {
		return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
			return p.Port.StrVal == port && port != "" || p.Port.IntVal == number
		})
	}
	matches := func(peers []networkingv1.NetworkPolicyPeer, component string) bool {
		return len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
			switch {
			case p.IPBlock != nil:
				return component == ""
			case component == "" || p.NamespaceSelector != nil && p.PodSelector == nil:
				return p.NamespaceSelector != nil && len(p.NamespaceSelector.MatchLabels) == 0
			}
			return p.PodSelector != nil && selects(t, p.PodSelector, of(component))
		})
	}
	out, in := from == "", to == ""
	for _, p := range all {
		if from != "" && selects(t, &p.Spec.PodSelector, of(from)) {
			for _, r := range p.Spec.Egress {
				out = out || has(r.Ports) && matches(r.To, to)
			}
		}
		if to != "" && selects(t, &p.Spec.PodSelector, of(to)) {
			for _, r := range p.Spec.Ingress {
				in = in || has(r.Ports) && matches(r.From, from)
			}
		}
	}
	named := to == "config" && port != "metrics" || port == "nats" ||
		port == "cluster" // the others' ports are open to callers and scrapers
	if from != "" && named && out != in {
		t.Errorf("%q to %q, port %q: one side allows it alone", from, to, port)
	}
	return out && in
}

// What reaches what, with the chart's own values; all else is denied.
func TestNetworkPolicies(t *testing.T) {
	docs, _, err := render.Chart(chartDir, render.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := policies(t, docs)
	deny := slices.IndexFunc(all, func(p *networkingv1.NetworkPolicy) bool {
		return strings.HasSuffix(p.Name, "-deny")
	})
	if deny < 0 || len(all[deny].Spec.PolicyTypes) != 2 || len(all[deny].Spec.Ingress) != 0 {
		t.Fatalf("no default deny: %+v", all)
	}
	for _, component := range []string{"gateway", "config", "worker", "nats", "test", "apply", "prepull"} {
		if !selects(t, &all[deny].Spec.PodSelector, of(component)) {
			t.Errorf("%s is not under the default deny", component)
		}
	}
	type connection struct {
		from, to, port string
		number         int32
	}
	allowed := map[connection]bool{
		{"", "gateway", "http", 0}: true, {"", "gateway", "metrics", 0}: true,
		{"gateway", "nats", "nats", 4222}: true, {"worker", "nats", "nats", 4222}: true,
		{"config", "nats", "nats", 4222}: true, {"nats", "nats", "cluster", 6222}: true,
		{"gateway", "config", "http", 8080}: true, {"worker", "config", "http", 8080}: true,
		{"test", "config", "http", 8080}: true, {"test", "gateway", "http", 8080}: true,
		{"worker", "", "", 443}: true, {"", "worker", "metrics", 0}: true, {"", "worker", "sidecar", 0}: true,
		{"", "nats", "monitor", 0}: true, {"", "config", "metrics", 0}: true,
	}
	for _, from := range []string{"", "gateway", "config", "worker", "nats", "test"} {
		for _, to := range []string{"", "gateway", "config", "worker", "nats"} {
			for port, number := range map[string]int32{
				"http": 8080, "nats": 4222, "cluster": 6222, "metrics": 9090, "sidecar": 9095,
				"monitor": 8222, "": 443,
			} {
				if (to == "") != (port == "") || from == "" && to == "" {
					continue
				}
				want := allowed[connection{from, to, port, number}] || allowed[connection{from, to, port, 0}]
				if got := reaches(t, all, from, to, port, number); got != want {
					t.Errorf("%q to %q, port %q: allowed %v, want %v", from, to, port, got, want)
				}
			}
		}
	}
	for _, x := range []struct {
		set       string
		component string
	}{
		{"payloadStore.enabled=true,payloadStore.url=s3://b/p", "gateway"},
		{"config.configStore.enabled=true,config.configStore.url=s3://b/p", "config"},
	} {
		docs, _, err := render.Chart(chartDir, render.Options{Set: []string{x.set}})
		if err != nil {
			t.Fatal(err)
		}
		if reaches(t, all, x.component, "", "", 443) || !reaches(t, policies(t, docs), x.component, "",
			"", 443) {
			t.Errorf("%s reaches its bucket not exactly where it has one", x.component)
		}
	}
}

// Every port that a policy names is one of the pods that it selects.
func TestNamedPortsAreThere(t *testing.T) {
	for _, r := range renderings(t) {
		objects := decode(t, r)
		ports := map[string]bool{}
		for _, p := range pods(objects) {
			for _, c := range containers(p) {
				for _, port := range c.Ports {
					ports[port.Name] = true
				}
			}
		}
		for _, o := range objects {
			switch x := o.(type) {
			case *networkingv1.NetworkPolicy:
				for _, in := range x.Spec.Ingress {
					for _, p := range in.Ports {
						if !ports[p.Port.StrVal] {
							t.Errorf("%s: %s names the port %q", r.name, x.Name, p.Port.StrVal)
						}
					}
				}
			case *corev1.Service:
				for _, p := range x.Spec.Ports {
					if !ports[p.TargetPort.StrVal] {
						t.Errorf("%s: service %s names the port %q", r.name, x.Name, p.TargetPort.StrVal)
					}
				}
			}
		}
	}
}
