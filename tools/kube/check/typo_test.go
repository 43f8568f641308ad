package check

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sie-engine/sie/tools/kube/options"
	"github.com/sie-engine/sie/tools/kube/render"
)

// A typo in a manifest is found: in Kubernetes' own kinds, and in each of the other projects'.
func TestPlantedTyposFail(t *testing.T) {
	d, err := decoder()
	if err != nil {
		t.Fatal(err)
	}
	docs, _, err := render.Chart(chartDir, render.Options{Values: []string{everything}, APIs: render.AllAPIs})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ kind, from, to, want string }{
		{"Deployment", "terminationGracePeriodSeconds", "terminationGracePeriod", "terminationGracePeriod"},
		{"StatefulSet", "podManagementPolicy", "podManagmentPolicy", "podManagmentPolicy"},
		{"StatefulSet", "medium: Memory", "medium: [Memory]", "medium"},
		{"Service", "trafficDistribution", "trafficDistributions", "trafficDistributions"},
		{"PodDisruptionBudget", "maxUnavailable", "maxUnavailables", "maxUnavailables"},
		{"NetworkPolicy", "policyTypes", "policyType", "policyType"},
		{"Ingress", "ingressClassName", "ingressClass", "ingressClass"},
		{"ScaledObject", "cooldownPeriod", "coolDownPeriod", "coolDownPeriod"},
		{"ScaledObject", "maxReplicaCount: ", "maxReplicaCount: x", "maxReplicaCount"},
		{"TriggerAuthentication", "serviceAccountName", "serviceAccount", "serviceAccount"},
		{"HTTPRoute", "backendRefs", "backendRef", "backendRef"},
		{"ServiceMonitor", "scrapeTimeout", "scrapeTimeOut", "scrapeTimeOut"},
	} {
		planted := false
		for _, doc := range docs {
			if planted || doc.Kind != c.kind || !bytes.Contains(doc.Raw, []byte(c.from)) {
				continue
			}
			planted = true
			bad, err := render.Split(doc.Source, bytes.Replace(doc.Raw, []byte(c.from), []byte(c.to), 1))
			if err != nil || len(bad) != 1 {
				t.Fatalf("%s: %v", c.kind, err)
			}
			if _, err := d.Decode(&bad[0]); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s with %s: %v", c.kind, c.to, err)
			}
		}
		if !planted {
			t.Errorf("no %s has %s", c.kind, c.from)
		}
	}
	for _, text := range []string{"apiVersion: v1\nkind: Service\nmetadata: {name: a, name: b}\n",
		"apiVersion: apps/v2\nkind: Deployment\nmetadata: {name: a}\n"} {
		bad, err := render.Split("x", []byte(text))
		if err == nil {
			_, err = d.Decode(&bad[0])
		}
		if err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}

// A flag, a variable or a command that a program does not have is found.
func TestPlantedOptionsFail(t *testing.T) {
	known, err := options.Load(optionsDir)
	if err != nil {
		t.Fatal(err)
	}
	env := func(names ...string) (all []corev1.EnvVar) {
		for _, n := range names {
			all = append(all, corev1.EnvVar{Name: n, Value: "1"})
		}
		return all
	}
	const gateway, sidecar = "ghcr.io/superlinked/sie-gateway:1", "ghcr.io/superlinked/sie-server-sidecar:1"
	for want, c := range map[string]corev1.Container{
		"has no flag --prot": {Image: gateway, Args: []string{"serve", "--prot", "1"}},
		"does not read SIE_GATEWAY_PROT": {Image: gateway, Args: []string{"serve"},
			Env: env("SIE_GATEWAY_PROT")},
		"does not read SIE_IPC_SOCKET_PATH": {Image: gateway, Args: []string{"serve"},
			Env: env("SIE_IPC_SOCKET_PATH")},
		"does not read SIE_GATEWAY_PORT": {Image: sidecar, Env: env("SIE_GATEWAY_PORT")},
		`has no command "srve"`:          {Image: gateway, Args: []string{"srve"}},
		"SIE_MAX_ITEMS is there twice": {Image: gateway, Args: []string{"serve"},
			Env: env("SIE_MAX_ITEMS", "SIE_MAX_ITEMS")},
		"starts the program": {Image: gateway, Command: []string{"/bin/sh"}},
	} {
		if _, err := known.Check(&c, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := known.Uncovered(nil, nil); err == nil || !strings.Contains(err.Error(), "no manifest runs it") {
		t.Errorf("nothing is used: %v", err)
	}
}
