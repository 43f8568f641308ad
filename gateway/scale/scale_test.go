package scale

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/bus"
)

const head = `apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: x
  labels: {sie.superlinked.com/pool: p, sie.superlinked.com/machine-profile: m, sie.superlinked.com/bundle: b}
spec:
`

const oneTrigger = `  triggers:
  - {type: prometheus, metadata: {query: 'max(d{pool="p"})', threshold: "10", activationThreshold: "2"}}
`

// What a file says, with KEDA's defaults, and what it must not say.
func TestObjects(t *testing.T) {
	all, err := Parse([]byte(head + oneTrigger + "---\n"))
	if err != nil {
		t.Fatal(err)
	}
	o := all[0]
	if len(all) != 1 || o.Lane != (bus.Lane{Pool: "p", Profile: "m", Bundle: "b"}) || o.Min != 0 ||
		o.Max != 100 || o.Idle != -1 || o.Polling != 30*time.Second || o.Cooldown != 300*time.Second ||
		o.Down != 300*time.Second {
		t.Errorf("%+v", o)
	}
	if x := o.Triggers[0]; x.Threshold != 10 || x.Activation != 2 || !x.IgnoreNull {
		t.Errorf("%+v", x)
	}
	full := head + `  {minReplicaCount: 2, maxReplicaCount: 5, idleReplicaCount: 0, pollingInterval: 1, cooldownPeriod: 7,
   fallback: {failureThreshold: 3, replicas: 2},
   advanced: {horizontalPodAutoscalerConfig: {behavior: {scaleDown: {stabilizationWindowSeconds: 4}}}},
   triggers: [{type: prometheus, metadata: {query: d, threshold: "1", ignoreNullValues: "false"}}]}`
	if all, err = Parse([]byte(full)); err != nil {
		t.Fatal(err)
	}
	if o = all[0]; o.Min != 2 || o.Max != 5 || o.Idle != 0 || o.Cooldown != 7*time.Second ||
		o.Down != 4*time.Second || o.Failures != 3 || o.Fallback != 2 || o.Triggers[0].IgnoreNull {
		t.Errorf("%+v", o)
	}
	for text, want := range map[string]string{
		"":                 "no ScaledObject",
		head:               "no triggers",
		"{":                "document 0",
		"kind: Deployment": "ScaledObject",
		head + "  minReplicaCount: -1\n" + oneTrigger:                          "minReplicaCount",
		head + "  {minReplicaCount: 3, maxReplicaCount: 2}\n":                  "maxReplicaCount",
		head + "  {minReplicaCount: 1, idleReplicaCount: 1}\n":                 "idleReplicaCount",
		head + "  fallback: {failureThreshold: 0, replicas: 1}\n" + oneTrigger: "fallback",
		head + oneTrigger + "---\n" + head + oneTrigger:                        "both of lane p/m/b",
		strings.Replace(head, "pool: p", "pool: a.b", 1) + oneTrigger:          "labels",
		head + strings.Replace(oneTrigger, "prometheus", "cpu", 1):             "only prometheus",
		head + strings.Replace(oneTrigger, `"10"`, `"0"`, 1):                   "above 0",
		head + strings.Replace(oneTrigger, `"10"`, `"x"`, 1):                   "threshold",
		head + strings.Replace(oneTrigger, "max(d", "avg(d", 1):                "query",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200s: %v, want %s", text, err, want)
		}
	}
}

// Queries over what two gateways said: the largest number does not grow with them, rates add up.
func TestQueries(t *testing.T) {
	at := time.Unix(1000, 0)
	var s Samples
	for i := range 3 {
		for g := range 2 {
			text := fmt.Sprintf("# TYPE d gauge\nd{pool=\"p\",m=\"a\"} %d\nd{pool=\"q\",m=\"a\"} 9\n"+
				"# TYPE c counter\nc{r=\"x\"} %d\nc{r=\"y\"} 100\n", 4+g, 10*i*(g+1))
			when := at.Add(time.Duration(i) * 10 * time.Second)
			if err := s.Add(fmt.Sprint("g", g), []byte(text), when); err != nil {
				t.Fatal(err)
			}
		}
	}
	now := at.Add(20 * time.Second)
	for text, want := range map[string]any{
		`max(d{pool="p"})`:                     5.0,
		`min(d{pool="p", m="a"})`:              4.0,
		`sum(d{pool="p"})`:                     9.0,
		`max( d{pool=~"p|q"} )`:                9.0,
		`max(d{pool!="q"})`:                    5.0,
		`max(d{pool!~"q.*"})`:                  5.0,
		`max(d{pool="none"})`:                  ErrNull,
		`max(d{pool="none"}) or vector(0)`:     0.0,
		`max(d{pool="p"}) or vector(3)`:        5.0,
		`(sum(d{pool="none"}) or vector(7))`:   nil,
		`sum(rate(c{r="x"}[1m]))`:              3.0, // 1 and 2 a second
		`sum(rate(c{r="y"}[2m])) or vector(0)`: 0.0,
		`sum(rate(c{r="x"}[5s])) or vector(2)`: 2.0, // one sample is no rate
		`max(d{pool="p",instance="g0"})`:       4.0,
		`d{pool="p",instance="g1"}`:            5.0,
		`max(d{pool="p"}) by (m)`:              nil,
		`d{pool="p"`:                           nil,
		`d{pool=p}`:                            nil,
		`max(d{pool=~"("})`:                    nil,
		`sum(rate(c[x]))`:                      nil,
		`count(d)`:                             nil,
	} {
		q, err := ParseQuery(text)
		if err != nil {
			if want != nil {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		if want == nil {
			if !strings.HasPrefix(text, "(") {
				t.Errorf("%s was read", text)
			}
			continue
		}
		v, err := s.Query(q, now)
		if e, ok := want.(error); ok && !errors.Is(err, e) || !ok && (err != nil || v != want) {
			t.Errorf("%s: %v, %v; want %v", text, v, err, want)
		}
	}
	q, _ := ParseQuery("max(d)")
	if _, err := s.Query(q, now.Add(21*time.Second)); !errors.Is(err, ErrNull) {
		t.Errorf("an old sample: %v", err)
	}
	if _, err := s.Query(&Query{metric: "d"}, now); err == nil {
		t.Error("many values without an aggregation are one")
	}
	if err := s.Add("g", []byte("}{"), now); err == nil {
		t.Error("what is no metrics was read")
	}
	reset := &series{at: []time.Time{at, at.Add(10 * time.Second)}, values: []float64{50, 5}}
	if v, ok := reset.rate(time.Minute, at.Add(10*time.Second)); !ok || v != 0.5 {
		t.Errorf("a counter that began again: %v %v", v, ok)
	}
}

// The arithmetic, step by step: what KEDA and the horizontal pod autoscaler make of the same
// values.
func TestDecisions(t *testing.T) {
	const broken = -1.0
	type step struct {
		after   int // seconds
		value   float64
		current int
		want    int
	}
	for name, c := range map[string]struct {
		object Object
		steps  []step
	}{
		"from zero to many and back": {Object{Max: 4, Idle: -1, Cooldown: 30 * time.Second}, []step{
			{0, 0, 0, 0}, {1, 1, 0, 1}, {1, 25, 1, 3}, {1, 25, 3, 3}, {1, 99, 3, 4}, {1, 11, 4, 2},
			{1, 0, 2, 1}, {28, 0, 1, 1}, {1, 0, 1, 0}, {1, 0, 0, 0},
		}},
		"activation is a number of its own": {
			Object{Max: 4, Idle: -1, Triggers: []Trigger{{Threshold: 10, Activation: 2}}},
			[]step{{0, 2, 0, 0}, {1, 2.1, 0, 1}, {1, 2, 1, 0}},
		},
		"many at once": {Object{Max: 9, Idle: -1}, []step{{0, 45, 0, 5}}},
		"a minimum": {Object{Min: 2, Max: 4, Idle: -1}, []step{
			{0, 0, 2, 2}, {1, 0, 0, 2}, {1, 35, 2, 4}, {1, 0, 4, 2},
		}},
		"idle below the minimum": {Object{Min: 2, Max: 4, Idle: 0, Cooldown: 5 * time.Second}, []step{
			{0, 0, 0, 0}, {1, 1, 0, 2}, {1, 0, 2, 2}, {5, 0, 2, 0},
		}},
		"a tenth is no change": {Object{Max: 9, Idle: -1}, []step{
			{0, 20, 2, 2}, {1, 21.9, 2, 2}, {1, 22.1, 2, 3}, {1, 18, 2, 2}, {1, 17.9, 2, 2}, {1, 9, 2, 1},
		}},
		"down waits": {Object{Max: 9, Idle: -1, Down: 10 * time.Second, Cooldown: time.Minute}, []step{
			{0, 50, 1, 5}, {5, 10, 5, 5}, {5, 10, 5, 5}, {1, 10, 5, 1},
		}},
		"a failure changes nothing": {Object{Max: 9, Idle: -1, Cooldown: 2 * time.Second}, []step{
			{0, 30, 0, 3}, {1, broken, 3, 3}, {9, broken, 3, 3}, {1, 0, 3, 0},
		}},
		"a failure of an empty lane": {Object{Max: 9, Idle: -1}, []step{{0, broken, 0, 0}}},
		"fallback after two failures": {Object{Max: 9, Idle: -1, Failures: 2, Fallback: 2}, []step{
			{0, broken, 0, 0}, {1, broken, 0, 2}, {1, broken, 2, 2}, {1, 30, 2, 3},
		}},
		"never above the maximum": {Object{Max: 2, Idle: -1}, []step{{0, 1e18, 0, 2}, {1, 1e18, 2, 2}}},
	} {
		o := c.object
		if o.Triggers == nil {
			o.Triggers = []Trigger{{Threshold: 10}}
		}
		s, now := New(&o), time.Unix(1000, 0)
		for i, x := range c.steps {
			now = now.Add(time.Duration(x.after) * time.Second)
			v := Value{Value: x.value}
			if x.value == broken {
				v = Value{Err: ErrNull}
			}
			if got := s.Decide([]Value{v}, x.current, now); got != x.want {
				t.Errorf("%s, step %d: %d of %d, want %d", name, i, got, x.current, x.want)
			}
		}
	}
	two := New(&Object{Max: 9, Idle: -1, Triggers: []Trigger{{Threshold: 10}, {Threshold: 1}}})
	if n := two.Decide([]Value{{Value: 25}, {Value: 2}}, 1, time.Unix(1, 0)); n != 3 {
		t.Errorf("the largest of two triggers: %d", n)
	}
}
