package deploytest

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v4"

	"github.com/sie-engine/sie/deploy"
)

// Expression is an expression of a file.
type Expression struct {
	File, Where string // where: the alert, the trigger, or the dashboard's panel
	Text        string
}

// Rule is one alert.
type Rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// Rules returns the alerts of all files, in their order.
func Rules() (out []Rule, err error) {
	names, err := fs.Glob(deploy.Files(), "alerts/*.yaml")
	for _, name := range names {
		var file struct {
			Groups []struct {
				Rules []Rule `yaml:"rules"`
			} `yaml:"groups"`
		}
		if err := read(name, &file); err != nil {
			return nil, err
		}
		for _, g := range file.Groups {
			out = append(out, g.Rules...)
		}
	}
	return out, err
}

func read(name string, to any) error {
	text, err := fs.ReadFile(deploy.Files(), name)
	if err == nil {
		err = yaml.Unmarshal(text, to)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return err
}

// Dashboard is what is read of a dashboard of Grafana.
type Dashboard struct {
	File       string
	UID        string   `json:"uid"`
	Title      string   `json:"title"`
	Tags       []string `json:"tags"`
	Schema     int      `json:"schemaVersion"`
	Panels     []Panel  `json:"panels"`
	Templating struct {
		List []Variable `json:"list"`
	} `json:"templating"`
}

// Panel is one panel of a Dashboard.
type Panel struct {
	ID         int                       `json:"id"`
	Type       string                    `json:"type"`
	Title      string                    `json:"title"`
	Datasource *Source                   `json:"datasource"`
	Grid       *struct{ H, W, X, Y int } `json:"gridPos"`
	Targets    []struct {
		Expr       string  `json:"expr"`
		RefID      string  `json:"refId"`
		Datasource *Source `json:"datasource"`
	} `json:"targets"`
}

// Source names a data source.
type Source struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// Variable is a variable of a Dashboard.
type Variable struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Query any    `json:"query"` // of a type datasource a text
}

// Dashboards returns all dashboards, ordered by file.
func Dashboards() (out []Dashboard, err error) {
	names, err := fs.Glob(deploy.Files(), "dashboards/*.json")
	for _, name := range names {
		d := Dashboard{File: name}
		text, err := fs.ReadFile(deploy.Files(), name)
		if err == nil {
			err = json.Unmarshal(text, &d)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, d)
	}
	return out, err
}

// values matches the query of a dashboard's variable.
var values = regexp.MustCompile(`^label_values\((.+), *\w+\)$`)

// trigger is one of KEDA's.
type trigger struct {
	Name     string            `yaml:"name"`
	Metadata map[string]string `yaml:"metadata"`
}

// triggers returns the queries of a lane's triggers and of the gateways'.
func triggers(pool, profile, bundle string) (out []Expression, err error) {
	var lane struct {
		Spec struct {
			Triggers []trigger `yaml:"triggers"`
		} `yaml:"spec"`
	}
	text := strings.NewReplacer("LANE_POOL", pool, "LANE_PROFILE", profile, "LANE_BUNDLE", bundle,
		"MAX", "1").Replace(deploy.Triggers)
	if err := yaml.Unmarshal([]byte(text), &lane); err != nil {
		return nil, fmt.Errorf("triggers.yaml: %w", err)
	}
	var gateway []trigger
	if err := read("gateway-triggers.yaml", &gateway); err != nil {
		return nil, err
	}
	for _, t := range append(lane.Spec.Triggers, gateway...) {
		if q := t.Metadata["query"]; q != "" {
			out = append(out, Expression{"triggers", t.Name, q})
		}
	}
	return out, nil
}

// Expressions returns the expressions of all files. Those of triggers are of a lane; Grafana's
// variables are replaced by what selects everything, its interval by a minute.
func Expressions(pool, profile, bundle string) (out []Expression, err error) {
	if out, err = triggers(pool, profile, bundle); err != nil {
		return nil, err
	}
	rules, err := Rules()
	if err != nil {
		return nil, err
	}
	for _, r := range rules {
		out = append(out, Expression{"alerts", r.Alert, r.Expr})
	}
	all, err := Dashboards()
	if err != nil {
		return nil, err
	}
	grafana := strings.NewReplacer("$__rate_interval", "1m", "$pool", ".*", "$model", ".*")
	for _, d := range all {
		for _, v := range d.Templating.List {
			if m := values.FindStringSubmatch(fmt.Sprint(v.Query)); m != nil {
				out = append(out, Expression{path.Base(d.File), "$" + v.Name, m[1]})
			}
		}
		for _, p := range d.Panels {
			for _, t := range p.Targets {
				out = append(out, Expression{path.Base(d.File), p.Title, grafana.Replace(t.Expr)})
			}
		}
	}
	return out, nil
}

// scraped are the labels that Prometheus adds to what it scrapes, and le, which a histogram has.
var scraped = []string{"job", "instance", "namespace", "pod", "le"}

// external are metrics of others, with the labels that are used of them.
var external = map[string][]string{
	"up": nil, "process_cpu_seconds_total": nil, "process_resident_memory_bytes": nil,
	// kube-state-metrics
	"kube_pod_status_phase":                                {"phase"},
	"kube_horizontalpodautoscaler_status_desired_replicas": {"horizontalpodautoscaler"},
	"kube_horizontalpodautoscaler_status_current_replicas": {"horizontalpodautoscaler"},
	// NVIDIA's dcgm-exporter
	"DCGM_FI_DEV_GPU_TEMP": {"gpu", "Hostname"}, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": {"gpu", "Hostname"},
}

// External reports whether a metric is not of this project.
func External(metric string) bool { _, ok := external[metric]; return ok }

var described = regexp.MustCompile(`fqName: "([^"]*)".*constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}`)

// Metrics returns the metrics that a collector describes, with their labels. A histogram has the
// three names of its series, too.
func Metrics(c prometheus.Collector) map[string][]string {
	ch := make(chan *prometheus.Desc)
	go func() {
		defer close(ch)
		c.Describe(ch)
	}()
	out := map[string][]string{}
	for d := range ch {
		m := described.FindStringSubmatch(d.String())
		if m == nil {
			panic("deploytest: internal error: " + d.String())
		}
		var labels []string
		for _, l := range strings.Split(m[2]+","+m[3], ",") {
			if l, _, _ = strings.Cut(strings.TrimSpace(l), "="); l != "" {
				labels = append(labels, l)
			}
		}
		for _, end := range []string{"", "_bucket", "_sum", "_count"} {
			out[m[1]+end] = labels
		}
	}
	return out
}

// ungrouped returns the labels by which an expression groups, and that none of its metrics has;
// nothing where a metric is of another component.
func (u Use) ungrouped(metrics map[string][]string, own func(metric string) bool) (out []string) {
	has := slices.Clone(scraped)
	for _, s := range u.Selectors {
		if !own(s.Metric) && !External(s.Metric) {
			return nil
		}
		has = slices.Concat(has, metrics[s.Metric], external[s.Metric])
	}
	for _, l := range u.Grouping {
		if !slices.Contains(has, l) {
			out = append(out, l)
		}
	}
	return out
}

// Missing returns what the files use of metrics that own says to be of some component, and that it
// does not have: names, and labels of matchers. found is how many selections were looked at.
func Missing(metrics map[string][]string, own func(metric string) bool) (wrong []error, found int) {
	all, err := Expressions("p", "m", "b")
	if err != nil {
		return []error{err}, 0
	}
	for _, e := range all {
		u, err := Parse(e.Text)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s, %s: %w", e.File, e.Where, err))
			continue
		}
		for _, s := range u.Selectors {
			if !own(s.Metric) {
				continue
			}
			found++
			labels, there := metrics[s.Metric]
			if !there {
				err := fmt.Errorf("%s, %s: no metric %s is exported", e.File, e.Where, s.Metric)
				wrong = append(wrong, err)
				continue
			}
			for _, l := range s.Labels {
				if !slices.Contains(labels, l) && !slices.Contains(scraped, l) {
					wrong = append(wrong, fmt.Errorf("%s, %s: %s has no label %s; it has %v",
						e.File, e.Where, s.Metric, l, labels))
				}
			}
		}
		for _, l := range u.ungrouped(metrics, own) {
			wrong = append(wrong, fmt.Errorf("%s, %s: no series has the label %s", e.File, e.Where, l))
		}
	}
	return wrong, found
}
