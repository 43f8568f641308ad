package check

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sie-engine/sie/tools/kube/render"
)

var contextTODO = context.Background()

// refused renders the chart with values and returns the error.
func refused(t *testing.T, values string, set ...string) error {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := render.Chart(chartDir, render.Options{Values: []string{file}, Set: set,
		APIs: render.AllAPIs})
	return err
}

// A key that the chart does not have is refused, at each level, with its name.
func TestUnknownKeysAreRefused(t *testing.T) {
	for _, path := range []string{
		"replicas", "gateway.replica", "gateway.image.tags", "gateway.service.ports", "gateway.auth.modes",
		"gateway.drain.preStop", "gateway.probes.startup.period", "gateway.probes.ready.periodSeconds",
		"gateway.settings.SIE_MAX_ITEM", "gateway.autoscaling.max", "gateway.resources.request.cpu",
		"config.replicas", "config.configStore.path", "config.auth.token",
		"workers.pool", "workers.common.gpu", "workers.common.drain.seconds",
		"workers.common.workerSidecar.port",
		"workers.common.workerSidecar.settings.SIE_MAX_ITEMS", "workers.common.hfCache.token",
		"workers.pools.l4.replicas", "workers.pools.mine.gpus", "workers.pools.l4.gpu.counts",
		"workers.pools.l4.bundles.default.min", "machineProfiles.l4.gpu",
		"nats.replica", "nats.jetstream.memory", "nats.jetstream.memoryStore.size", "nats.auth.users",
		"queueRouting.replicas", "payloadStore.ttlSeconds", "ingress.host", "httpRoute.hosts",
		"autoscaling.min", "serviceMonitor.every", "serviceAccounts.gateway.labels",
		"serviceAccounts.worker2.name",
		"networkPolicy.allow", "priorityClasses.gateway.values", "hfToken.secret", "global.registry",
		"observability.tracing.url",
	} {
		err := refused(t, "", path+"=x")
		key := path[strings.LastIndex(path, ".")+1:]
		if parts := strings.Split(path, "."); strings.HasPrefix(path, "gateway.probes.ready.") ||
			strings.HasPrefix(path, "gateway.resources.request.") || strings.HasPrefix(path,
			"serviceAccounts.worker2") {
			key = parts[len(parts)-2]
		}
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// Every object of the schema is closed, or says what each of its keys is.
func TestEveryObjectIsClosed(t *testing.T) {
	text, err := os.ReadFile(chartDir + "/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	closed := 0
	// rules are Kubernetes' own, which the API server reads
	open := map[string]bool{"valueFrom": true, "nodeAffinity": true, "podAffinity": true,
		"podAntiAffinity": true,
		"rules items":     true}
	var walk func(part any, path string)
	walk = func(part any, path string) {
		o, ok := part.(map[string]any)
		if list, is := part.([]any); is {
			for _, x := range list {
				walk(x, path)
			}
		}
		if !ok {
			return
		}
		if o["type"] == "object" {
			last := path[strings.LastIndex(path, "/")+1:]
			switch more := o["additionalProperties"].(type) {
			case bool:
				closed++
				if more {
					t.Errorf("%s takes any key", path)
				}
			case nil:
				if !open[last] {
					t.Errorf("%s takes any key", path)
				}
			}
		}
		for key, x := range o {
			switch key {
			case "properties", "$defs":
				for name, y := range x.(map[string]any) {
					walk(y, path+"/"+name)
				}
			case "items":
				walk(x, path+" items")
			default:
				walk(x, path)
			}
		}
	}
	walk(schema, "")
	if closed < 60 {
		t.Errorf("%d objects are closed; is this the whole schema?", closed)
	}
}

// Values that do not go together are refused before anything is made, with what to change.
func TestBadValuesAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ values, want string }{
		"a type":            {"gateway: {replicas: two}", "gateway"},
		"grace of gateways": {"gateway: {terminationGracePeriodSeconds: 132}", "more than 132 (drain.preStopSleepSeconds 10 + delaySeconds 2 + inFlightSeconds 120)"},
		"grace of workers": {"workers: {common: {terminationGracePeriodSeconds: 52}}",
			"more than 52"},
		"grace of config":                {"config: {terminationGracePeriodSeconds: 10}", "more than 10"},
		"grace of NATS":                  {"nats: {terminationGracePeriodSeconds: 10}", "more than 10"},
		"requests longer than the drain": {"gateway: {requestTimeoutSeconds: 121}", "would cut requests off"},
		"NATS nowhere": {"nats: {install: false, auth: {enabled: false}}",
			"say where NATS is"},
		"NATS twice": {"nats: {url: 'nats://x:4222'}", "set nats.install to false"},
		"users of nobody": {"nats: {install: false, url: 'nats://x:4222'}",
			"nats.auth.existingSecret"},
		"replicas of streams": {"queueRouting: {streamReplicas: 3}",
			"as many replicas as there are servers"},
		"two servers":         {"nats: {replicas: 2}", "replicas"},
		"files without files": {"queueRouting: {streamStorage: file}", "fileStore.enabled"},
		"memory of NATS": {"nats: {jetstream: {memoryStore: {maxSize: 2Gi}}}",
			"NATS is killed before it refuses"},
		"sizes": {"nats: {jetstream: {memoryStore: {maxSize: 1.5Gi}}}",
			"no number of bytes"},
		"TLS of nothing": {"gateway: {tls: {enabled: true}}", "gateway.tls.secretName"},
		"TLS of NATS":    {"nats: {tls: {enabled: true}}", "nats.tls.secretName"},
		"a store":        {"payloadStore: {enabled: true, url: /tmp}", "write s3://"},
		"keys without mode": {"gateway: {auth: {tokenSecretName: x}}",
			"set mode to static or token"},
		"a mode without keys": {"gateway: {auth: {mode: static}}", "gateway.auth.tokenSecretName"},
		"an admin alone": {"config: {auth: {adminTokenSecretName: x}}",
			"config.auth.readTokenSecretName"},
		"no token to make": {"hfToken: {create: true}", "hfToken.value"},
		"two tokens": {"hfToken: {create: true, value: x}\nworkers: {common: {hfCache: {tokenSecret: other}}}",
			"use one of them"},
		"no pool": {"workers: {pools: {cpu: {enabled: false}}}",
			"no pool of workers.pools is enabled"},
		"no profile": {"workers: {pools: {cpu: {machineProfile: gpu}}}",
			"which machineProfiles does not have"},
		"min above max":  {"workers: {pools: {cpu: {minReplicas: 4}}}", "minReplicas is 4 and maxReplicas 3"},
		"no bundle":      {"workers: {pools: {cpu: {bundles: {default: {enabled: false}}}}}", "none of its bundles"},
		"one lane twice": {"workers: {pools: {two: {enabled: true, minReplicas: 1, maxReplicas: 1, machineProfile: cpu}}}", "both the lane default/cpu/default"},
		"half a canary": {"workers: {pools: {two: {enabled: true, minReplicas: 1, maxReplicas: 1, machineProfile: cpu, queuePool: canary, weight: 5}}}",
			"only one has a weight"},
		"an ingress of nothing": {"ingress: {enabled: true}", "ingress.hosts"},
		"a route to nothing":    {"httpRoute: {enabled: true}", "httpRoute.parentRefs"},
		"traces to nowhere":     {"observability: {tracing: {enabled: true}}", "tracing.endpoint"},
	} {
		if err := refused(t, c.values); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	_, _, err := render.Chart(chartDir, render.Options{Set: []string{"httpRoute.enabled=true",
		"httpRoute.parentRefs[0].name=x"}})
	if err == nil || !strings.Contains(err.Error(), "no Gateway API") {
		t.Errorf("an HTTPRoute without its API: %v", err)
	}
	_, _, err = render.Chart(chartDir, render.Options{KubeVersion: "v1.29.0"})
	if err == nil || !strings.Contains(err.Error(), "needs Kubernetes") {
		t.Errorf("an old Kubernetes: %v", err)
	}
}

// The command as users of the reference type it.
func TestAsTheReferenceIsTyped(t *testing.T) {
	docs, _, err := render.Chart(chartDir, render.Options{
		Values: []string{chartDir + "/values-gke.yaml"},
		Set:    []string{"hfToken.create=true", "hfToken.value=hf_secret"}, APIs: render.AllAPIs,
	})
	if err != nil {
		t.Fatal(err)
	}
	objects := decode(t, rendering{name: "gke", docs: docs})
	secret := false
	for _, o := range objects {
		s, ok := o.(*corev1.Secret)
		secret = secret || ok && s.Name == "sie-hf-token" && s.StringData["token"] == "hf_secret"
	}
	if !secret {
		t.Error("no secret with the token")
	}
	workers := 0
	for name, p := range pods(objects) {
		if !strings.HasPrefix(name, "StatefulSet sie-worker-") {
			continue
		}
		workers++
		if e := variable(p, "worker", "HF_TOKEN"); e == nil || e.ValueFrom == nil ||
			e.ValueFrom.SecretKeyRef.Name != "sie-hf-token" || e.ValueFrom.SecretKeyRef.Key != "token" {
			t.Errorf("%s: HF_TOKEN is %+v", name, e)
		}
	}
	if workers != 2 {
		t.Errorf("%d pools of workers", workers)
	}
}

// variable returns a variable of a container, or nil.
func variable(p *corev1.PodSpec, container, name string) *corev1.EnvVar {
	for _, c := range p.Containers {
		for i := range c.Env {
			if c.Name == container && c.Env[i].Name == name {
				return &c.Env[i]
			}
		}
	}
	return nil
}

// What a pod may take to end is more than its sleep and its drain together, and the programs are
// told the same numbers.
func TestEndsAgree(t *testing.T) {
	none := (&corev1.LifecycleHandler{}).String()
	seconds := func(p *corev1.PodSpec, container, name string) (n int64) {
		t.Helper()
		e := variable(p, container, name)
		if e == nil {
			t.Fatalf("%s has no %s", container, name)
		}
		if _, err := fmt.Sscanf(e.Value, "%ds", &n); err != nil {
			t.Fatalf("%s=%s: %v", name, e.Value, err)
		}
		return n
	}
	preStop := func(p *corev1.PodSpec, container string) *corev1.LifecycleHandler {
		for _, c := range p.Containers {
			if c.Name == container && c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
				return c.Lifecycle.PreStop
			}
		}
		return &corev1.LifecycleHandler{}
	}
	sleep := func(p *corev1.PodSpec, container string) int64 {
		if h := preStop(p, container); h.Sleep != nil {
			return h.Sleep.Seconds
		}
		return 0
	}
	// wait is the most that the server waits for its sidecar, whose probes it asks.
	wait := func(p *corev1.PodSpec) (n int64) {
		if len(p.Containers) != 2 || len(p.Containers[1].Ports) != 1 {
			t.Fatalf("%+v", p.Containers)
		}
		e := preStop(p, "worker").Exec
		if e == nil {
			t.Fatal("the server does not wait for its sidecar")
		}
		said := strings.Join(e.Command, " ")
		want := fmt.Sprintf("sie-server health --url http://127.0.0.1:%d --probe healthz --gone %%ds",
			p.Containers[1].Ports[0].ContainerPort)
		if _, err := fmt.Sscanf(said, want, &n); err != nil {
			t.Errorf("the server runs %q, not %q", said, want)
		}
		return n
	}
	for _, r := range renderings(t) {
		for _, o := range decode(t, r) {
			switch x := o.(type) {
			case *appsv1.Deployment:
				p := &x.Spec.Template.Spec
				grace, needs := *p.TerminationGracePeriodSeconds, int64(0)
				if strings.HasSuffix(x.Name, "-gateway") {
					needs = sleep(p, "gateway") + seconds(p, "gateway", "SIE_GATEWAY_DRAIN_DELAY") +
						seconds(p, "gateway", "SIE_DRAIN_TIMEOUT")
					if sleep(p, "gateway") == 0 || *x.Spec.Strategy.RollingUpdate.MaxSurge == intstr0 {
						t.Errorf("%s: %s: preStop %d, surge %v", r.name, x.Name, sleep(p, "gateway"),
							x.Spec.Strategy)
					}
				} else {
					needs = seconds(p, "config", "SIE_DRAIN_TIMEOUT")
				}
				if grace <= needs {
					t.Errorf("%s: %s may take %d s and needs %d", r.name, x.Name, grace, needs)
				}
			case *appsv1.StatefulSet:
				p := &x.Spec.Template.Spec
				if p.Containers[0].Name != "worker" {
					continue
				}
				sidecar := seconds(p, "worker-sidecar", "SIE_DRAIN_TIMEOUT")
				if s := wait(p); s <= sidecar || preStop(p, "worker-sidecar").String() != none {
					t.Errorf("%s: %s: the server waits %d s, its sidecar takes %d", r.name, x.Name, s,
						sidecar)
				}
				needs := wait(p) + seconds(p, "worker", "SIE_DRAIN_TIMEOUT")
				if *p.TerminationGracePeriodSeconds <= needs {
					t.Errorf("%s: %s may take %d s and needs %d", r.name, x.Name,
						*p.TerminationGracePeriodSeconds, needs)
				}
				probe := p.Containers[0].StartupProbe
				if probe.PeriodSeconds*probe.FailureThreshold < 900 {
					t.Errorf("%s: %s may take %d s to start", r.name, x.Name,
						probe.PeriodSeconds*probe.FailureThreshold)
				}
			}
		}
	}
}

// Whether requests should be sent to a gateway or sie-config, a probe asks in every rendering.
// Where clients of a gateway need a certificate, it asks the port for metrics, which needs none.
func TestReadinessIsAsked(t *testing.T) {
	demanding := 0
	for _, r := range renderings(t) {
		for _, o := range decode(t, r) {
			x, ok := o.(*appsv1.Deployment)
			if !ok {
				continue
			}
			p := &x.Spec.Template.Spec
			probe := p.Containers[0].ReadinessProbe
			if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != "/readyz" {
				t.Errorf("%s: %s is not asked whether it is ready: %v", r.name, x.Name, probe)
				continue
			}
			port, scheme := "http", corev1.URISchemeHTTP
			if container := p.Containers[0].Name; container == "gateway" {
				if variable(p, container, "SIE_TLS_CLIENT_CA") != nil {
					port = "metrics"
					demanding++
				} else if variable(p, container, "SIE_TLS_CERT") != nil {
					scheme = corev1.URISchemeHTTPS
				}
			}
			got := cmp.Or(probe.HTTPGet.Scheme, corev1.URISchemeHTTP)
			if probe.HTTPGet.Port.String() != port || got != scheme {
				t.Errorf("%s: %s is asked at %s of port %s, want %s of %s", r.name, x.Name, got,
					probe.HTTPGet.Port.String(), scheme, port)
			}
		}
	}
	if demanding == 0 {
		t.Error("no rendering has gateways whose clients need a certificate")
	}
}

// A canary is a lane of its own, with the weights that gateways deal by.
func TestCanary(t *testing.T) {
	docs, _, err := render.Chart(chartDir, render.Options{Values: []string{everything}, APIs: render.AllAPIs})
	if err != nil {
		t.Fatal(err)
	}
	all := pods(decode(t, rendering{name: "everything", docs: docs}))
	e := variable(all["Deployment sie-cluster-gateway"], "gateway", "SIE_GATEWAY_CONFIGURED_PHYSICAL_LANES")
	const want = `{"bundle":"default","machineProfile":"l4","pool":"canary","weight":10}`
	const stable = `{"bundle":"default","machineProfile":"l4","pool":"default","weight":90}`
	if e == nil || !strings.Contains(e.Value, want) || !strings.Contains(e.Value, stable) {
		t.Errorf("%+v", e)
	}
	p := all["StatefulSet sie-cluster-worker-l4-canary-default"]
	if p == nil || variable(p, "worker-sidecar", "SIE_POOL").Value != "canary" ||
		variable(p, "worker-sidecar", "SIE_MACHINE_PROFILE").Value != "l4" {
		t.Errorf("%v", p)
	}
}

// Whoever installs a canary that may have no worker is told that it gets no share then.
func TestACanaryWithoutAWorkerIsTold(t *testing.T) {
	for least, told := range map[int]bool{0: true, 1: false} {
		set := fmt.Sprintf("workers.pools.l4-canary.minReplicas=%d", least)
		_, notes, err := render.Chart(chartDir, render.Options{Values: []string{everything},
			APIs: render.AllAPIs, Set: []string{set}})
		if err != nil {
			t.Fatal(err)
		}
		const want = "canary/l4/default has a weight and may have no worker"
		if strings.Contains(notes, want) != told {
			t.Errorf("minReplicas %d:\n%s", least, notes)
		}
	}
}
