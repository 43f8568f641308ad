package models_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/gateway/fleet"
	"github.com/sie-engine/sie/gateway/models"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
)

// doc is a model of dense vectors with the adapter modules of its profiles.
func doc(id, more string, profiles ...string) string {
	b := "sie_id: " + id + "\nhf_id: org/weights\ninputs: {text: true}\ntasks: {encode: {dense: {dim: 8}}}\n" +
		more + "profiles:\n"
	for i, module := range profiles {
		b += fmt.Sprintf("  %s:\n    adapter_path: sie_server.adapters.%s:A\n    max_batch_tokens: 8\n",
			[]string{"default", "other"}[i], module)
	}
	return b
}

// files has a model in two bundles, one in each of them, one in none, and ids that differ in case.
var files = []string{
	doc("org/both", "", "sentence_transformer", "bert_flash"),
	doc("org/fast", "", "bert_flash"),
	doc("org/none", "", "nomic_flash"),
	doc("org/Twice", "", "sentence_transformer"),
	doc("org/tWICE", "", "sentence_transformer"),
	doc("org/pooled", "pool: team\n", "sentence_transformer"),
	doc("org/audio", "", "whisper"),
}

const bundleA = "name: default\npriority: 10\nadapters: [sie_server.adapters.sentence_transformer, sie_server.adapters.whisper]\n"
const bundleB = "name: fast\npriority: 20\nadapters: [sie_server.adapters.sentence_transformer, sie_server.adapters.bert_flash]\n"

func load(t *testing.T, docs ...string) (*catalog.Catalog, catalog.Bundles) {
	t.Helper()
	fs, bs := fstest.MapFS{}, fstest.MapFS{}
	for i, d := range docs {
		fs[fmt.Sprintf("%d.yaml", i)] = &fstest.MapFile{Data: []byte(d)}
	}
	for i, d := range []string{bundleA, bundleB} {
		bs[fmt.Sprintf("%d.yaml", i)] = &fstest.MapFile{Data: []byte(d)}
	}
	c, err := catalog.Load(fs)
	if err != nil {
		t.Fatal(err)
	}
	b, err := catalog.LoadBundles(bs)
	if err != nil {
		t.Fatal(err)
	}
	return c, b
}

// rig is a registry over the files with lanes "pool/profile/bundle" and the workers of a fleet.
func rig(t *testing.T, lanes ...string) (*models.Registry, *fleet.Fleet) {
	t.Helper()
	f := fleet.New(slog.New(slog.DiscardHandler))
	f.Connected()
	o := models.Options{Fleet: f}
	for _, l := range lanes {
		o.Lanes = append(o.Lanes, laneOf(l))
	}
	r := models.New(o)
	c, b := load(t, files...)
	r.Set(c, b, models.Version{Epoch: 7})
	return r, f
}

func laneOf(s string) bus.Lane {
	p := strings.Split(s, "/")
	return bus.Lane{Pool: p[0], Profile: p[1], Bundle: p[2]}
}

func worker(t *testing.T, f *fleet.Fleet, id, lane string, change func(*bus.WorkerHeartbeat)) {
	t.Helper()
	l := laneOf(lane)
	hb := bus.WorkerHeartbeat{Name: id, Ready: true, PoolName: l.Pool, MachineProfile: l.Profile,
		Bundle: l.Bundle}
	if change != nil {
		change(&hb)
	}
	data, err := json.Marshal(hb)
	if err != nil {
		t.Fatal(err)
	}
	f.Heartbeat(bus.HealthPrefix+id, data)
}

// Every spelling of a model gives its id, or the 404 that sie-server gives.
func TestFind(t *testing.T) {
	r, _ := rig(t)
	for _, c := range []struct{ spec, id, name string }{
		{"org/both", "org/both", "org/both"},
		{"ORG/Both", "org/both", "ORG/Both"},
		{"org/both:other", "org/both:other", "org/both:other"},
		{"Org/Both:OTHER", "org/both:other", "Org/Both:OTHER"},
		{"fast:/org/both", "org/both", "org/both"},
		{"FAST:/org/Both:other", "org/both:other", "org/Both:other"},
		{"org/Twice", "org/Twice", "org/Twice"},
		{"org/tWICE", "org/tWICE", "org/tWICE"},
	} {
		m, err := r.Find(c.spec)
		if err != nil || m.Entry.ID != c.id || m.Name != c.name {
			t.Errorf("%s: %v %+v", c.spec, err, m)
		}
		if a := m.About(); a.ID != c.id || a.Handle.(models.Model).Entry != m.Entry {
			t.Errorf("%s: %+v", c.spec, a)
		}
	}
	for _, spec := range []string{"", "nope", "org/twice", "fast:/", "org__both", "org/both:nope"} {
		_, err := r.Find(spec)
		if e := errs.As(err); e == nil || e.Status != 404 || e.Param != "model" {
			t.Errorf("%q: %v, want 404", spec, err)
		}
	}
	for spec, id := range map[string]string{
		"org__both": "org/both", "ORG__both:other": "org/both:other", "org/both": "org/both",
	} {
		if m, err := r.FindOpenAI(spec); err != nil || m.Entry.ID != id || m.Name != id {
			t.Errorf("OpenAI %s: %v %+v", spec, err, m)
		}
	}
	_, err := r.Find("org/bothh")
	if want := "Model 'org/bothh' not found Did you mean 'org/both'?"; err == nil ||
		errs.As(err).Message != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// A gateway without a catalog publishes nothing: every model is a retryable refusal, not the bundle
// "default" (weak point 26).
func TestWithoutACatalogNothingIsRouted(t *testing.T) {
	r := models.New(models.Options{Fleet: fleet.New(slog.New(slog.DiscardHandler))})
	if _, known := r.Version(); known || r.List() != nil {
		t.Error("there is a catalog before one was set")
	}
	for _, find := range []func(string) (models.Model, error){r.Find, r.FindOpenAI} {
		if _, err := find("any"); errs.As(err).Code != errs.Provisioning || errs.As(err).RetryAfter == 0 {
			t.Errorf("%v", err)
		}
	}
}

// The lane of a request, by what its headers say and which workers there are; or the error.
func TestRoute(t *testing.T) {
	lanes := []string{"default/l4/default", "default/l4/fast", "default/A100-spot/default",
		"team/l4/default", "default/h100/fast"}
	cannot := func(h *bus.WorkerHeartbeat) { h.UnsupportedModels = []string{"org/both"} }
	failed := func(h *bus.WorkerHeartbeat) { h.FailedModels = []string{"org/both"} }
	type w struct {
		lane   string
		change func(*bus.WorkerHeartbeat)
	}
	ready := func(lane string) w { return w{lane, nil} }
	for name, c := range map[string]struct {
		spec, profile, pool string
		workers             []w
		want                string // the lane, or the status and a part of the message
	}{
		"no headers, no workers":  {spec: "org/both", want: "default/l4/default"},
		"the other bundle's lane": {spec: "org/fast", want: "default/l4/fast"},
		"the bundle's priority, not the lanes'": {spec: "org/both", profile: "h100",
			want: "default/h100/fast"},
		"a ready worker wins over priority": {spec: "org/both", workers: []w{ready("default/h100/fast")},
			want: "default/h100/fast"},
		"of two ready lanes the first": {spec: "org/both", want: "default/l4/fast",
			workers: []w{ready("default/h100/fast"), ready("default/l4/fast")}},
		"of two ready bundles the first": {spec: "org/both", want: "default/A100-spot/default",
			workers: []w{ready("default/l4/fast"), ready("default/A100-spot/default")}},
		"not ready is no worker": {spec: "org/both", want: "default/l4/default", workers: []w{
			{"default/h100/fast", func(h *bus.WorkerHeartbeat) { h.Ready = false }}}},
		"failed there, able here": {spec: "org/both", want: "default/h100/fast", workers: []w{
			{"default/l4/default", failed},
			ready("default/h100/fast")}},
		"failed everywhere": {spec: "org/both", want: "default/l4/fast", workers: []w{
			{"default/l4/fast", failed}}},
		"unsupported is passed over": {spec: "org/both", want: "default/l4/fast", workers: []w{
			{"default/l4/default", cannot},
			{"default/A100-spot/default",
				cannot}}},
		"unsupported everywhere": {spec: "default:/org/both", profile: "l4", want: "502 do not support",
			workers: []w{{"default/l4/default",
				cannot}}},
		"one of another configuration does not count": {spec: "default:/org/both", profile: "l4",
			want: "default/l4/default", workers: []w{{"default/l4/default", func(h *bus.WorkerHeartbeat) {
				h.UnsupportedModels, h.BundleConfigHash = []string{"org/both"}, "an older one"
			}}}},
		"a model that cannot be run takes its profiles along": {spec: "fast:/org/both:other", profile: "l4",
			want: "502 do not support", workers: []w{{"default/l4/fast", cannot}}},
		"one worker cannot": {spec: "default:/org/both", profile: "l4", want: "502 do not support",
			workers: []w{ready("default/l4/default"), {"default/l4/default",
				cannot}}},

		"profile":                  {spec: "org/both", profile: "L4", want: "default/l4/default"},
		"profile of spot machines": {spec: "org/both", profile: "a100", want: "default/A100-spot/default"},
		"profile's whole name": {spec: "org/both", profile: "a100-SPOT",
			want: "default/A100-spot/default"},
		"unknown profile":           {spec: "org/both", profile: "tpu", want: "400 'tpu' is not configured"},
		"profile of another bundle": {spec: "org/fast", profile: "a100", want: "400 none of the lanes"},
		"pool":                      {spec: "org/both", pool: "TEAM", want: "team/l4/default"},
		"pool and profile":          {spec: "org/both", profile: "team/l4", want: "team/l4/default"},
		"pool in the profile wins": {spec: "org/both", profile: "team/l4", pool: "x",
			want: "team/l4/default"},
		"pool without a profile": {spec: "org/both", profile: "team/", want: "team/l4/default"},
		"profile without a pool": {spec: "org/both", profile: "/l4", pool: "team",
			want: "team/l4/default"},
		"profile not in the pool":  {spec: "org/both", profile: "team/h100", want: "400 is not configured"},
		"unknown pool":             {spec: "org/both", pool: "nope", want: "404 'nope' is not known"},
		"a pool with wildcards":    {spec: "org/both", pool: "a.>", want: "404 is not known"},
		"a pool with a line break": {spec: "org/both", pool: "a\r\nb", want: "404 'a\\r\\nb' is not known"},
		"the model's pool":         {spec: "org/pooled", want: "team/l4/default"},
		"not the model's pool":     {spec: "org/pooled", pool: "default", want: "default/l4/default"},

		"bundle":               {spec: "fast:/org/both", want: "default/l4/fast"},
		"bundle in any case":   {spec: "FAST:/org/both", want: "default/l4/fast"},
		"bundle that does not": {spec: "default:/org/fast", want: "409 compatible bundles: fast"},
		"unknown bundle":       {spec: "x:/org/both", want: "409 compatible bundles: default, fast"},
		"in no bundle":         {spec: "org/none", want: "404 no bundle carries"},
		"not served":           {spec: "org/audio", want: "400 cannot be served"},
		"a profile's bundle":   {spec: "org/both:other", want: "default/l4/fast"},
	} {
		r, f := rig(t, lanes...)
		for i, w := range c.workers {
			worker(t, f, fmt.Sprint("w", i), w.lane, w.change)
		}
		m, err := r.Find(c.spec)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for range 20 { // never by the order of a map
			got, err := m.Route(c.profile, c.pool)
			text := got.Lane.String()
			if e := errs.As(err); e != nil {
				text = fmt.Sprint(e.Status, " ", e.Message)
			}
			if status, part, _ := strings.Cut(c.want, " "); err == nil && text != c.want ||
				err != nil && (!strings.HasPrefix(text, status) || !strings.Contains(text, part)) {
				t.Errorf("%s: %s, want %s", name, text, c.want)
				break
			}
		}
	}
}

// A route has the hashes of the bundle of its lane, whichever of the model's bundles that is.
func TestRouteTellsTheBundleOfItsLane(t *testing.T) {
	c, b := load(t, files...)
	m, err := c.Resolve("org/both")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, name := range []string{"default", "fast"} {
		bundle, err := b.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		r, _ := rig(t, "default/l4/"+name)
		found, err := r.Find("org/both")
		if err != nil {
			t.Fatal(err)
		}
		got, err := found.Route("", "")
		if err != nil || got.Lane.Bundle != name || got.BundleConfigHash != c.BundleConfigHash(bundle) ||
			got.ModelConfigHash != m.Model.ConfigHash(bundle) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		seen[got.BundleConfigHash], seen[got.ModelConfigHash] = true, true
	}
	if len(seen) != 4 {
		t.Errorf("hashes of two bundles are the same: %v", seen)
	}
}

// A model of the built-in catalog whose labels a request names goes to a lane of the bundle gliner,
// where there is one and the default bundle has none, and where a request names it.
func TestTheGLiNERBundleHasItsModels(t *testing.T) {
	c, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	b, err := catalog.BuiltinBundles()
	if err != nil {
		t.Fatal(err)
	}
	both := []string{"p/l4/default", "p/l4/gliner"}
	for _, q := range []struct {
		spec  string
		lanes []string
		want  string
	}{
		{"urchade/gliner_small-v2.1", both, "default"}, {"urchade/gliner_small-v2.1", both[1:], "gliner"},
		{"gliner:/urchade/gliner_small-v2.1", both, "gliner"},
		{"gliner:/knowledgator/gliclass-edge-v3.0:multi-label", both, "gliner"},
		{"knowledgator/gliclass-edge-v3.0:multi-label", both[1:], "gliner"},
		{"gliner:/cross-encoder/nli-deberta-v3-base", both, "gliner"},
		{"gliner:/BAAI/bge-m3", both, ""}, {"BAAI/bge-m3", both[1:], ""},
	} {
		f := fleet.New(slog.New(slog.DiscardHandler))
		f.Connected()
		o := models.Options{Fleet: f}
		for _, l := range q.lanes {
			o.Lanes = append(o.Lanes, laneOf(l))
		}
		r := models.New(o)
		r.Set(c, b, models.Version{Epoch: 1})
		m, err := r.Find(q.spec)
		var route models.Route
		if err == nil {
			route, err = m.Route("", "")
		}
		if route.Lane.Bundle != q.want || (err == nil) != (q.want != "") {
			t.Errorf("%s with %v: %+v, %v; want %q", q.spec, q.lanes, route.Lane, err, q.want)
		}
	}
}

// A route has the hashes and the engine of its bundle; a change of another model keeps the model's.
func TestRouteTellsTheConfiguration(t *testing.T) {
	r, _ := rig(t, "default/l4/default")
	route := func() models.Route {
		t.Helper()
		m, err := r.Find("org/both")
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.Route("", "")
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	before := route()
	c, b := load(t, files...)
	bundle, err := b.ByName("default")
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Resolve("org/both")
	if err != nil {
		t.Fatal(err)
	}
	if before.BundleConfigHash != c.BundleConfigHash(bundle) || before.BundleConfigHash == "" ||
		before.ModelConfigHash != m.Model.ConfigHash(bundle) || before.ModelConfigHash == "" ||
		before.ModelConfigHash == before.BundleConfigHash || before.ModelID != "org/both" {
		t.Errorf("%+v", before)
	}
	held, err := r.Find("org/both")
	if err != nil {
		t.Fatal(err)
	}
	c, b = load(t, append(slices.Clone(files), doc("org/new", "", "sentence_transformer"))...)
	r.Set(c, b, models.Version{Epoch: 8})
	after := route()
	if after.ModelConfigHash != before.ModelConfigHash || after.BundleConfigHash == before.BundleConfigHash {
		t.Errorf("after another model came: %+v, before %+v", after, before)
	}
	if got, err := held.Route("", ""); err != nil || got != before {
		t.Errorf("a request sees two catalogs: %+v %v", got, err)
	}
	if v, ok := r.Version(); !ok || v.Epoch != 8 || v.BundlesHash != b.Hash() {
		t.Errorf("%+v", v)
	}
	// An export replaces the models: what is gone is unknown.
	c, b = load(t, files[1:]...)
	r.Set(c, b, models.Version{})
	if _, err := r.Find("org/both"); errs.As(err) == nil || errs.As(err).Status != 404 {
		t.Errorf("a removed model: %v", err)
	}
}

// Without configured lanes a request goes to those of live workers; without any it is told to wait.
func TestLanesOfWorkers(t *testing.T) {
	r, f := rig(t)
	m, err := r.Find("org/both")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Route("", ""); !errors.Is(err, &errs.Error{Code: errs.Provisioning}) {
		t.Errorf("without a lane: %v", err)
	}
	worker(t, f, "b", "z/l4/fast", nil)
	worker(t, f, "a", "team/l4/default", nil)
	for profile, want := range map[string]string{"": "team/l4/default", "z/l4": "z/l4/fast"} {
		if got, err := m.Route(profile, ""); err != nil || got.Lane.String() != want {
			t.Errorf("%q: %+v %v, want %s", profile, got, err, want)
		}
	}
}

// The list of models has every id with its bundles and what its workers say.
func TestListing(t *testing.T) {
	r, f := rig(t, "default/l4/default", "default/l4/fast")
	worker(t, f, "w1", "default/l4/default", func(h *bus.WorkerHeartbeat) {
		h.LoadedModels, h.FailedModels = []string{"org/both"}, []string{"org/Twice"}
	})
	worker(t, f, "w2", "default/l4/fast", func(h *bus.WorkerHeartbeat) {
		h.LoadedModels, h.LoadingModels = []string{"org/both"}, []string{"org/fast"}
		h.FailedModels = []string{"org/Twice"}
	})
	worker(t, f, "w3", "default/l4/fast", func(h *bus.WorkerHeartbeat) {
		h.Ready, h.LoadedModels = false, []string{"org/tWICE"}
	})
	states := map[string]string{"org/both": "loaded", "org/fast": "loading", "org/Twice": "failed",
		"org/tWICE": "available", "org/none": "available", "org/both:other": "available",
		"org/pooled": "available", "org/audio": "available"}
	list := r.List()
	if len(list) != len(states) {
		t.Errorf("%d ids, want %d", len(list), len(states))
	}
	for _, m := range list {
		if m.State != states[m.Name] || m.Loaded != (m.State == "loaded") || m.Bundles == nil ||
			m.Workers == nil || m.Dims.Dense != 8 {
			t.Errorf("%+v %+v", m, m.GatewayInfo)
		}
		one, err := r.Info(m.Name)
		if err != nil || one.State != m.State {
			t.Errorf("%s: %v %+v", m.Name, err, one)
		}
	}
	worker(t, f, "w2", "default/l4/fast", func(h *bus.WorkerHeartbeat) {
		h.UnsupportedModels = []string{"org/both"} // and its profiles
	})
	if m, err := r.Info("org/both:other"); err != nil || m.State != "failed" || m.Loaded {
		t.Errorf("no worker can run it: %v %+v", err, m)
	}
	worker(t, f, "w2", "default/l4/fast", func(h *bus.WorkerHeartbeat) {
		h.LoadedModels = []string{"org/both"}
	})
	i, err := r.Info("ORG/BOTH")
	if err != nil || i.Name != "org/both" || !slices.Equal(i.Workers, []string{"w1", "w2"}) ||
		i.WorkerCount != 2 || !slices.Equal(i.Bundles, []string{"default", "fast"}) {
		t.Errorf("%v %+v", err, i.GatewayInfo)
	}
	if _, err := r.Info("nope"); errs.As(err).Status != 404 {
		t.Errorf("%v", err)
	}
}

// The setting of lanes is read strictly.
func TestParseLanes(t *testing.T) {
	const one = `{"pool":"p","machineProfile":"m","bundle":"b"}`
	got, weights, err := models.ParseLanes(
		" [" + one + `,{"pool":"p","machineProfile":"m","bundle":"c","weight":3}] `)
	second := bus.Lane{Pool: "p", Profile: "m", Bundle: "c"}
	if err != nil || len(got) != 2 || got[1] != second || len(weights) != 1 || weights[second] != 3 {
		t.Fatalf("%v %v %v", got, weights, err)
	}
	var many []string
	for i := range models.MaxLanes + 1 {
		many = append(many, fmt.Sprintf(`{"pool":"p%d","machineProfile":"m","bundle":"b"}`, i))
	}
	for text, part := range map[string]string{
		"": "not a list", "{}": "not a list", "[" + one + "] x": "more after",
		`[{"pool":"p","machineProfile":"m","bundle":"b","x":1}]`:            "unknown field",
		`[{"pool":"p","machineProfile":"m"}]`:                               "lanes[0]: bundle",
		`[{"pool":"a.b","machineProfile":"m","bundle":"b"}]`:                "lanes[0]: pool",
		"[" + one + `,{"pool":"P","machineProfile":"M","bundle":"B"}]`:      "lanes[1]: P/M/B is there twice",
		"[" + strings.Join(many, ",") + "]":                                 "the limit is 1024",
		"[" + strings.Repeat(" ", 1<<20) + "]":                              "the limit is 1048576",
		`[{"pool":1,"machineProfile":"","bundle":""}]`:                      "not a list",
		`[{"pool":"p","machineProfile":"m","bundle":"b","weight":-1}]`:      "not a list",
		`[{"pool":"p","machineProfile":"m","bundle":"b","weight":1000001}]`: "at most 1000000",
	} {
		if _, _, err := models.ParseLanes(text); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%.60s: %v, want %s", text, err, part)
		}
	}
	got, _, err = models.ParseLanes("[" + strings.Join(many[1:], ",") + "]")
	if err != nil || len(got) != models.MaxLanes {
		t.Errorf("%d lanes, %v", len(got), err)
	}
}

// The lanes of a client's pool are for requests that name it, and a lane that no pool has stays the
// worker's own. While pools are not known, a request that names none of the operator's may be tried
// again.
func TestRouteToAPoolOfAClient(t *testing.T) {
	f := fleet.New(slog.New(slog.DiscardHandler))
	f.Connected()
	unknown := false
	r := models.New(models.Options{Fleet: f, Pools: func(name string) ([]bus.Lane, bool, error) {
		switch strings.ToLower(name) {
		case "mine":
			return []bus.Lane{laneOf("Mine/l4/default")}, true, nil
		case "empty":
			return nil, true, nil
		}
		if unknown {
			return nil, false, errs.PoolsUnknown()
		}
		return nil, false, nil
	}})
	c, b := load(t, files...)
	r.Set(c, b, models.Version{Epoch: 7})
	worker(t, f, "w1", "Mine/l4/default", func(h *bus.WorkerHeartbeat) { h.HomePool = "default" })
	for _, x := range []struct{ profile, pool, want string }{
		{"", "mine", "Mine/l4/default"}, {"MINE/L4", "", "Mine/l4/default"}, {"", "", "default/l4/default"},
		{"", "default", "default/l4/default"}, {"", "other", "404"}, {"", "empty", "503"},
		{"h100", "mine", "400"}, {"unknown", "default", "default/l4/default"}, {"unknown", "other", "503"},
	} {
		if unknown = x.profile == "unknown"; unknown {
			x.profile = ""
		}
		m, err := r.Find("org/both")
		if err != nil {
			t.Fatal(err)
		}
		route, err := m.Route(x.profile, x.pool)
		got := route.Lane.String()
		if e := errs.As(err); e != nil {
			got = fmt.Sprint(e.Status)
		}
		if got != x.want {
			t.Errorf("%q %q: %s (%v), want %s", x.profile, x.pool, got, err, x.want)
		}
	}
}
