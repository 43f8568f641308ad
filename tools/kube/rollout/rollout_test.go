package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/nulldev"
	"github.com/sie-engine/sie/tools/chaos/load"
	"github.com/sie-engine/sie/tools/kube/natscheck"
	"github.com/sie-engine/sie/tools/kube/render"
	"github.com/sie-engine/sie/tools/kube/stage"
)

const (
	// rate is what the clients of a rollout send, in requests a second, without ever trying again.
	rate    = 100
	clients = 32
	// spread is how long it takes until nobody sends new connections to a pod that is deleted.
	spread = 2 * time.Second
	// patience bounds a whole rollout.
	patience = 10 * time.Minute
)

var models = load.Models{
	Encode: []string{"sentence-transformers/all-MiniLM-L6-v2", "thenlper/gte-small"},
	Score:  "cross-encoder/ms-marco-MiniLM-L-6-v2",
}

// known knows the answers of the null device.
type known struct{}

func (known) Dense(model, text string) []float32 {
	return nulldev.Dense(model, nulldev.Document, text, nulldev.DefaultDims)
}

func (known) Score(model, query, text string) float64 { return nulldev.Score(model, query, text) }

func (known) Extract(string, string, []string) map[string]any { return nil }

// manifests are the workloads of the chart, by component.
type manifests struct {
	deployments  map[string]*appsv1.Deployment
	statefulSets map[string]*appsv1.StatefulSet
}

// replicated are values with two gateways, two workers and three NATS servers: one of each cannot
// be restarted without somebody waiting.
var replicated = []string{
	"gateway.replicas=2", "workers.pools.cpu.minReplicas=2", "config.configStore.enabled=true",
	"nats.replicas=3", "queueRouting.streamReplicas=3",
}

// chart returns the chart of this tree.
func chart(t *testing.T) string {
	return filepath.Join(stage.Root(t), "deploy", "helm", "sie-cluster")
}

// pod returns what the pods of a component are made of.
func (m manifests) pod(component string) corev1.PodSpec {
	if s := m.statefulSets[component]; s != nil {
		return s.Spec.Template.Spec
	}
	return m.deployments[component].Spec.Template.Spec
}

// rendered reads the chart in dir.
func rendered(t *testing.T, dir string) manifests {
	t.Helper()
	docs, _, err := render.Chart(dir, render.Options{KubeVersion: "v1.36.0", Set: replicated})
	if err != nil {
		t.Fatal(err)
	}
	m := manifests{map[string]*appsv1.Deployment{}, map[string]*appsv1.StatefulSet{}}
	for _, d := range docs {
		switch d.Kind {
		case "Deployment":
			x := &appsv1.Deployment{}
			if err := json.Unmarshal(d.JSON, x); err != nil {
				t.Fatal(err)
			}
			m.deployments[x.Labels["app.kubernetes.io/component"]] = x
		case "StatefulSet":
			x := &appsv1.StatefulSet{}
			if err := json.Unmarshal(d.JSON, x); err != nil {
				t.Fatal(err)
			}
			m.statefulSets[x.Labels["app.kubernetes.io/component"]] = x
		}
	}
	for _, want := range []string{"gateway", "config"} {
		if m.deployments[want] == nil {
			t.Fatalf("the chart has no Deployment of %s", want)
		}
	}
	for name, n := range map[string]int32{"worker": 2, "nats": 3} {
		if s := m.statefulSets[name]; s == nil || *s.Spec.Replicas != n {
			t.Fatalf("the chart has no StatefulSet %s of %d: %v", name, n, s)
		}
	}
	return m
}

// times matches the variables that say how long something takes, and how streams are kept. Others
// name hosts, ports and files that are not here.
var times = regexp.MustCompile(`TIMEOUT|DELAY|DRAIN|WAIT|STALL|INACTIVE|HEARTBEAT|KEEP_ALIVE|STREAM`)

// settings returns a container's variables of times.
func settings(c corev1.Container) (out []string) {
	for _, e := range c.Env {
		if e.ValueFrom == nil && times.MatchString(e.Name) {
			out = append(out, e.Name+"="+e.Value)
		}
	}
	return out
}

// world is a cluster whose pods a kubelet runs.
type world struct {
	*testing.T
	cluster *stage.Cluster
	kubelet *Kubelet
	config  *Service
	gateway *Service
	lane    bus.Lane
	all     map[string]*Workload // by component
	conf    string               // nats.conf
	ports   map[string][]int     // of the NATS servers: for clients, for each other, for probes

	mu      sync.Mutex
	workers map[string]*stage.Worker
}

// launch starts a container as the chart names it.
func (w *world) launch(ctx context.Context, pod string, c corev1.Container) (Started, error) {
	env := settings(c)
	switch c.Name {
	case "nats":
		return w.launchNATS(ctx, pod, c)
	case "gateway":
		p, url, err := w.cluster.StartGateway(ctx, env...)
		return Started{p, url}, err
	case "config":
		p, url, err := w.cluster.StartConfig(ctx, 0)
		if w.config != nil {
			w.cluster.SetConfig(w.config.URL)
		}
		return Started{p, url}, err
	case "worker":
		x, err := w.cluster.StartServer(ctx, pod, w.lane, env...)
		if err != nil {
			return Started{}, err
		}
		w.mu.Lock()
		w.workers[pod] = x
		w.mu.Unlock()
		return Started{x.Server, x.ServerURL}, nil
	case "worker-sidecar":
		w.mu.Lock()
		x := w.workers[pod]
		w.mu.Unlock()
		if x == nil {
			return Started{}, fmt.Errorf("the chart starts the sidecar before its server")
		}
		if err := w.cluster.StartSidecar(ctx, x, pod, w.lane, env...); err != nil {
			return Started{}, err
		}
		return Started{x.Sidecar, x.ProbeURL}, nil
	}
	return Started{}, fmt.Errorf("the test knows no container %q", c.Name)
}

// ending refuses that a server is told to end before its sidecar has finished.
func (w *world) ending(pod string, c corev1.Container) error {
	w.mu.Lock()
	x := w.workers[pod]
	w.mu.Unlock()
	if c.Name == "worker" && !strings.Contains(x.Sidecar.Log(), "msg=drained") {
		return errors.New("its sidecar has not finished")
	}
	return nil
}

// launchNATS starts a server of NATS. It has the same ports each time, as a pod has its name.
func (w *world) launchNATS(ctx context.Context, pod string, c corev1.Container) (Started, error) {
	i := int(pod[len(pod)-1] - '0')
	dir := filepath.Join(w.cluster.Dir, pod)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Started{}, err
	}
	place := natscheck.Place{Name: pod, Dir: dir, Client: w.ports["client"][i],
		Monitor: w.ports["monitor"][i], Routes: w.ports["route"], Index: i}
	config := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(config, []byte(natscheck.Local(w.conf, place)), 0o600); err != nil {
		return Started{}, err
	}
	here := strings.NewReplacer("/etc/sie/nats/nats.conf", config,
		"/etc/sie/nats-passwords", filepath.Join(w.cluster.Dir, "passwords"))
	args := []string{filepath.Join(w.cluster.Bin[""], stage.Gateway)}
	for _, a := range c.Args {
		args = append(args, here.Replace(a))
	}
	p, err := stage.Start(dir, "nats", nil, args...)
	if err != nil {
		return Started{}, err
	}
	w.cluster.Adopt(p)
	return Started{p, fmt.Sprintf("http://127.0.0.1:%d", place.Monitor)}, nil
}

// freePorts returns ports of this machine that nobody listens on.
func freePorts(t *testing.T, n int) (out []int) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		out = append(out, l.Addr().(*net.TCPAddr).Port)
	}
	return out
}

// open starts every pod of the manifests with the programs of bin and waits until all are ready.
func open(ctx context.Context, t *testing.T, m manifests, bin string) *world {
	t.Helper()
	w := &world{T: t, lane: bus.Lane{Pool: "default", Profile: "cpu", Bundle: "default"},
		workers: map[string]*stage.Worker{}, all: map[string]*Workload{}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	w.conf = natscheck.Conf(t, replicated...)
	ports := freePorts(t, 9)
	w.ports = map[string][]int{"client": ports[:3], "monitor": ports[3:6], "route": ports[6:]}
	var urls []string
	for _, port := range w.ports["client"] {
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", port))
	}
	w.cluster, err = stage.New(stage.Options{
		Dir: stage.Dir(t), Bin: map[string]string{"": bin}, NATSURL: strings.Join(urls, ","),
		Users: natscheck.Users(),
		Lanes: []bus.Lane{w.lane}, Models: append(slices.Clone(models.Encode), models.Score),
	})
	must(err)
	must(natscheck.WritePasswords(filepath.Join(w.cluster.Dir, "passwords")))
	begin := time.Now()
	w.kubelet = NewKubelet(w.launch, spread, func(format string, args ...any) {
		t.Logf("%6.1f s  %s", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	})
	w.kubelet.Ending = w.ending
	t.Cleanup(func() {
		w.cluster.Close()
		w.kubelet.Close()
	})
	for _, s := range []**Service{&w.config, &w.gateway} {
		x, err := NewService(w.kubelet)
		must(err)
		t.Cleanup(x.Close)
		*s = x
	}
	for _, x := range []struct {
		name    string
		service *Service
	}{{"nats", nil}, {"config", w.config}, {"worker", nil}, {"gateway", w.gateway}} {
		if m.statefulSets[x.name] != nil {
			w.all[x.name] = w.kubelet.NewStatefulSet(m.statefulSets[x.name], nil)
		} else {
			w.all[x.name], err = w.kubelet.NewDeployment(m.deployments[x.name], x.service)
			must(err)
		}
		must(w.all[x.name].Start(ctx))
	}
	return w
}

// send starts the clients, once the cluster answers all they ask.
func (w *world) send(ctx context.Context, name string) *load.Load {
	w.Helper()
	plan := func(name string) load.Plan {
		return load.Plan{Name: name, Seed: 1, Gateways: []string{w.gateway.URL}, Models: models,
			Known: known{}, Raw: clients, RawRate: rate, Most: 8}
	}
	for try := 0; ; try++ { // consumers are made at a model's first request
		warm, err := load.Start(plan(fmt.Sprintf("%s-warm-%d", name, try)))
		if err != nil {
			w.Fatal(err)
		}
		select {
		case <-ctx.Done():
			w.Fatal(ctx.Err())
		case <-time.After(2 * time.Second):
		}
		records, err := warm.Stop()
		if err != nil {
			w.Fatal(err)
		}
		if bad := failed(records); len(bad) == 0 {
			break
		} else if try == 15 {
			w.Fatalf("the new cluster does not answer: %s", bad[0])
		}
	}
	l, err := load.Start(plan(name))
	if err != nil {
		w.Fatal(err)
	}
	return l
}

// failed returns what became of the requests that were not answered rightly.
func failed(records []load.Record) (out []string) {
	for _, r := range records {
		if r.Verdict != load.OK || r.Second {
			out = append(out, fmt.Sprintf("%s %s %s: %v %s",
				r.Start.Format("05.000"), r.ID, r.Op, r.Verdict, r.Why))
		}
	}
	return out
}

// judge ends the clients and says what they saw.
func (w *world) judge(l *load.Load) {
	w.Helper()
	records, err := l.Stop()
	if err != nil {
		w.Fatal(err)
	}
	bad := failed(records)
	for _, b := range bad[:min(len(bad), 20)] {
		w.Error(b)
	}
	var longest time.Duration
	for _, r := range records {
		longest = max(longest, r.Wait())
	}
	w.Logf("%d requests, %d failed, the longest took %v", len(records), len(bad),
		longest.Round(time.Millisecond))
	for _, f := range w.kubelet.Faults() {
		w.Error(f)
	}
	if len(records) < rate*10 {
		w.Errorf("only %d requests were sent", len(records))
	}
}

// Every pod of the chart is replaced, component after component in the order of docs/upgrading.md,
// by the manifests' own numbers, while clients that never try again send 100 requests a second:
// each gets its answer. With SIE_BASE, and its programs in SIE_BASE_BIN, the cluster begins with
// the chart and the programs of an earlier commit, and the restart is an upgrade.
func TestARollingRestartFailsNobody(t *testing.T) {
	stage.Full(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	bin, next := stage.Programs(t), rendered(t, chart(t))
	first, before := bin, next
	if base := os.Getenv("SIE_BASE"); base != "" {
		dir, err := render.Commit(ctx, stage.Root(t), base, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if dir == "" {
			t.Skipf("%s has no chart that could be upgraded", base)
		}
		first, before = os.Getenv("SIE_BASE_BIN"), rendered(t, dir)
	}
	w := open(ctx, t, before, first)
	l := w.send(ctx, "roll")
	w.cluster.Bin = map[string]string{"": bin}
	for _, component := range []string{"config", "nats", "worker", "gateway"} {
		t.Logf("rolling %s", component)
		w.all[component].Use(next.pod(component))
		if err := w.all[component].Roll(ctx); err != nil {
			t.Fatal(err)
		}
	}
	w.judge(l)
}

// The test sees what a bad number does: a gateway without preStop and drain delay is told to end
// while a load balancer still sends there, and a preStop that is longer than the grace kills.
func TestBadNumbersAreSeen(t *testing.T) {
	stage.Full(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m := rendered(t, chart(t))
	spec := &m.deployments["gateway"].Spec.Template.Spec
	spec.Containers[0].Lifecycle = nil
	spec.Containers[0].Env = append(spec.Containers[0].Env,
		corev1.EnvVar{Name: "SIE_GATEWAY_DRAIN_DELAY", Value: "0s"})
	grace := int64(1)
	worker := &m.statefulSets["worker"].Spec.Template.Spec
	worker.TerminationGracePeriodSeconds = &grace
	worker.Containers[0].Lifecycle.PreStop = &corev1.LifecycleHandler{
		Sleep: &corev1.SleepAction{Seconds: 27},
	}
	w := open(ctx, t, m, stage.Programs(t))
	l := w.send(ctx, "bad")
	for _, component := range []string{"gateway", "worker"} {
		if err := w.all[component].Roll(ctx); err != nil {
			t.Fatal(err)
		}
	}
	records, err := l.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if bad := failed(records); len(bad) == 0 {
		t.Error("no request failed while gateways were ended under their load balancer")
	} else {
		t.Logf("%d of %d requests failed, such as %s", len(bad), len(records), bad[0])
	}
	killed := func(f error) bool { return strings.Contains(f.Error(), "was killed") }
	if !slices.ContainsFunc(w.kubelet.Faults(), killed) {
		t.Error("a grace of a second killed nobody")
	}
}
