package deploytest

import (
	"io/fs"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/deploy"
)

// What an expression uses, and what is refused.
func TestParse(t *testing.T) {
	for text, want := range map[string]Use{
		`up{job="a"} == 0`: {Selectors: []Selector{{`up{job="a"}`, "up", []string{"job"}}}},
		`max by (a, b) (m_x) > 5 and on(c) sum without(d)(rate(n{e=~"x}y", f!="[5m]"}[5m:1m]))`: {
			Selectors: []Selector{{"m_x", "m_x", nil}, {`n{e=~"x}y", f!="[5m]"}`, "n", []string{"e", "f"}}},
			Grouping:  []string{"a", "b", "c", "d"}},
		`a / ignoring (x) group_left b or vector(0)`: {
			Selectors: []Selector{{"a", "a", nil}, {"b", "b", nil}}, Grouping: []string{"x"}},
		`rate(a[$__rate_interval])`: {Selectors: []Selector{{"a", "a", nil}}},
	} {
		if got, err := Parse(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "vector(0)", "summ(a)", `{job="a"}`, `a{b="c"`, `a{b="`} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
}

// A name, a label of a matcher or one of a grouping that is wrong by a letter is found.
func TestMissing(t *testing.T) {
	gateway := func(m string) bool { return strings.HasPrefix(m, "sie_gateway_") }
	metrics := map[string][]string{}
	all, err := Expressions("p", "m", "b")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		u, err := Parse(e.Text)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range u.Selectors {
			metrics[s.Metric] = slices.Concat(metrics[s.Metric], s.Labels, u.Grouping)
		}
	}
	if wrong, found := Missing(metrics, gateway); len(wrong) > 0 || found < 80 {
		t.Fatal(found, wrong)
	}
	const name, label = "sie_gateway_lane_workers", "machine_profile"
	broken := maps.Clone(metrics)
	delete(broken, name)
	if wrong, _ := Missing(broken, gateway); len(wrong) == 0 || !strings.Contains(wrong[0].Error(), name) {
		t.Error(wrong)
	}
	broken = map[string][]string{}
	for m, labels := range metrics {
		broken[m] = slices.DeleteFunc(slices.Clone(labels), func(l string) bool { return l == label })
	}
	if wrong, _ := Missing(broken, gateway); len(wrong) < 20 {
		t.Errorf("without the label %s %d uses are wrong", label, len(wrong))
	}
}

// Metrics tells names and labels, also of families that have no series yet.
func TestMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "h", Help: "a {b: c}"},
		[]string{"x", "y"}), prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "c",
		ConstLabels: prometheus.Labels{"k": "v"}}, func() float64 { return 1 }))
	got := Metrics(r)
	if !slices.Equal(got["h_bucket"], []string{"x", "y"}) || !slices.Equal(got["c"], []string{"k"}) {
		t.Error(got)
	}
}

// components are the prefixes of metrics whose components look for them: each has a test with
// Missing.
var components = []string{"sie_gateway_", "sie_tenant_", "sie_config_", "sie_worker_", "sie_pull_loop_"}

// worker matches the metrics of sie-server.
var worker = regexp.MustCompile(`^sie_(requests|request_duration|batch|tokens|device|model|queue_depth|oom)`)

// Every metric is of a component that looks for it, or of somebody else by name.
func TestNoMetricIsOfNobody(t *testing.T) {
	all, err := Expressions("p", "m", "b")
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, e := range all {
		u, err := Parse(e.Text)
		if err != nil {
			t.Errorf("%s, %s: %v", e.File, e.Where, err)
		}
		for _, s := range u.Selectors {
			used[s.Metric] = true
			ours := worker.MatchString(s.Metric) || slices.ContainsFunc(components,
				func(p string) bool { return strings.HasPrefix(s.Metric, p) })
			if ours == External(s.Metric) {
				t.Errorf("%s, %s: nobody exports %s", e.File, e.Where, s.Metric)
			}
		}
	}
	for m := range external {
		if !used[m] {
			t.Errorf("%s is not used", m)
		}
	}
	if wrong, _ := Missing(external, External); len(wrong) > 0 {
		t.Error(wrong)
	}
}

// Each alert says what is wrong and how bad, and the runbook says of each what users see, what to
// look at and what to do.
func TestAlerts(t *testing.T) {
	rules, err := Rules()
	if err != nil || len(rules) < 20 {
		t.Fatal(len(rules), err)
	}
	text, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	entries := map[string]string{}
	for _, part := range strings.Split(string(text), "\n## ")[1:] {
		name, body, _ := strings.Cut(part, "\n")
		entries[name] = body
	}
	for _, r := range rules {
		body, there := entries[r.Alert]
		if delete(entries, r.Alert); !there {
			t.Errorf("docs/runbook.md has no entry for %s", r.Alert)
		}
		for _, part := range []string{"**Users see**", "**Look at**", "**Do**"} {
			if !strings.Contains(body, part) {
				t.Errorf("docs/runbook.md: the entry of %s has no %s", r.Alert, part)
			}
		}
		if !strings.HasPrefix(r.Alert, "SIE") || r.Annotations["summary"] == "" ||
			!slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%+v", r)
		}
	}
	for name := range entries {
		if strings.HasPrefix(name, "SIE") {
			t.Errorf("docs/runbook.md has an entry for %s, which is no alert", name)
		}
	}
}

// Dashboards have what Grafana needs to take them from files: ids of their own, a variable for the
// data source, which every panel and query uses, panels that do not overlap.
func TestDashboards(t *testing.T) {
	all, err := Dashboards()
	if err != nil || len(all) < 5 {
		t.Fatal(len(all), err)
	}
	uids := map[string]string{}
	for _, d := range all {
		if d.UID == "" || d.Title == "" || uids[d.UID] != "" || d.Schema < 36 || len(d.Panels) == 0 {
			t.Errorf("%s: uid %q, title %q, schema %d", d.File, d.UID, d.Title, d.Schema)
		}
		uids[d.UID] = d.File
		if v := d.Templating.List; len(v) == 0 || v[0].Name != "datasource" || v[0].Type != "datasource" ||
			v[0].Query != "prometheus" {
			t.Errorf("%s: the first variable is not the data source", d.File)
		}
		text, err := fs.ReadFile(deploy.Files(), d.File)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(string(text), -1) {
			known := slices.ContainsFunc(d.Templating.List,
				func(v Variable) bool { return v.Name == name[1] })
			if !known && !strings.HasPrefix(name[1], "__") {
				t.Errorf("%s: no variable %s", d.File, name[1])
			}
		}
		d.checkPanels(t)
	}
}

func (d *Dashboard) checkPanels(t *testing.T) {
	t.Helper()
	ids, titles, taken := map[int]bool{}, map[string]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if p.ID == 0 || ids[p.ID] || p.Title == "" || titles[p.Title] ||
			!slices.Contains([]string{"timeseries", "stat"}, p.Type) || len(p.Targets) == 0 {
			t.Errorf("%s: panel %d, %q, %q", d.File, p.ID, p.Title, p.Type)
		}
		ids[p.ID], titles[p.Title] = true, true
		if p.Datasource == nil || p.Datasource.UID != "${datasource}" || p.Grid == nil {
			t.Errorf("%s: panel %q has no data source or no place", d.File, p.Title)
			continue
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if q.RefID == "" || refs[q.RefID] || q.Expr == "" || q.Datasource == nil ||
				q.Datasource.UID != "${datasource}" {
				t.Errorf("%s: panel %q, query %+v", d.File, p.Title, q)
			}
			refs[q.RefID] = true
		}
		if g := p.Grid; g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > 24 {
			t.Errorf("%s: panel %q is at %+v", d.File, p.Title, *g)
		}
		for x := p.Grid.X; x < p.Grid.X+p.Grid.W; x++ {
			for y := p.Grid.Y; y < p.Grid.Y+p.Grid.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%s: panels %q and %q overlap", d.File, other, p.Title)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}
