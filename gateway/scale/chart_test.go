package scale

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/deploy"
	"github.com/sie-engine/sie/internal/bus"
)

// chart is the object of a lane with the chart's triggers.
func chart(t *testing.T) *Object {
	t.Helper()
	all, err := Parse([]byte(strings.NewReplacer("LANE_POOL", "p", "LANE_PROFILE", "m", "LANE_BUNDLE", "b",
		"MAX", "20").Replace(deploy.Triggers)))
	if err != nil {
		t.Fatal(err)
	}
	if all[0].Lane != (bus.Lane{Pool: "p", Profile: "m", Bundle: "b"}) || len(all[0].Triggers) != 8 {
		t.Fatalf("%+v", all[0])
	}
	all[0].Down = 0 // the numbers of now alone
	return all[0]
}

// quiet is what two gateways say of a lane without work: its series, and the values of each.
func quiet() map[string][2]float64 {
	out := map[string][2]float64{}
	for _, name := range []string{"pending_demand", "lane_queue_depth", "model_loads_in_progress",
		"active_lease_gpus", "pool_warm_floor", "lane_queued_tokens"} {
		out["sie_gateway_"+name] = [2]float64{}
	}
	return out
}

// The chart's triggers, one by one and together, as the horizontal pod autoscaler counts: of each
// trigger ceil(value / threshold), and of those the largest.
func TestTheChartsTriggers(t *testing.T) {
	const none = -1
	type says map[string][2]float64 // of the two gateways; none: no such series
	for name, c := range map[string]struct {
		says    says
		current int
		want    int
	}{
		"nothing":                        {says{}, 0, 0},
		"a request that found no worker": {says{"pending_demand": {1, 1}}, 0, 1},
		"what two gateways say of one":   {says{"pending_demand": {2, 2}}, 0, 2},
		"31 slices":                      {says{"lane_queue_depth": {31, 28}}, 1, 4},
		"10 slices are one worker's":     {says{"lane_queue_depth": {10, 10}}, 1, 1},
		"21 slices are within a tenth":   {says{"lane_queue_depth": {21, 21}}, 2, 2},
		"tokens of both gateways":        {says{"lane_queued_tokens": {20_000, 50_000}}, 1, 3},
		"a few tokens start a worker":    {says{"lane_queued_tokens": {0, 12}}, 0, 1},
		"two loads":                      {says{"model_loads_in_progress": {2, 2}}, 1, 2},
		"the workers of pools": {says{"active_lease_gpus": {3, 3},
			"pool_warm_floor": {2, 2}}, 0, 3},
		"those that are wanted always": {says{"pool_warm_floor": {2, 2}}, 0, 2},
		"the largest of all: tokens": {says{"lane_queue_depth": {25, 25},
			"lane_queued_tokens": {90_000, 90_000}, "active_lease_gpus": {4, 4},
			"pending_demand": {1, 1}}, 2, 6},
		"the largest of all: slices": {says{"lane_queue_depth": {95, 95},
			"lane_queued_tokens": {9_000, 9_000}, "active_lease_gpus": {4, 4}}, 4, 10},
		"the largest of all: pools": {says{"lane_queue_depth": {15, 15},
			"lane_queued_tokens": {9_000, 9_000}, "active_lease_gpus": {8, 8}}, 4, 8},
		"never above the maximum":        {says{"lane_queue_depth": {9e9, 9e9}}, 1, 20},
		"the broker tells nothing":       {says{"lane_queue_depth": {none, none}}, 3, 3},
		"one gateway is cut off from it": {says{"lane_queue_depth": {none, 25}}, 1, 3},
		"no line was used yet":           {says{"lane_queued_tokens": {none, none}}, 0, 0},
	} {
		o, s, now := chart(t), Samples{}, time.Unix(1000, 0)
		values := quiet()
		for metric, v := range c.says {
			values["sie_gateway_"+metric] = v
		}
		for g := range 2 {
			text := ""
			for metric, v := range values {
				if v[g] != none {
					text += fmt.Sprintf("%s{pool=\"p\",machine_profile=\"m\",bundle=\"b\"} %v\n"+
						"%s{pool=\"other\",machine_profile=\"m\",bundle=\"b\"} 999999\n", metric, v[g], metric)
				}
			}
			if err := s.Add(fmt.Sprint(g), []byte(text), now); err != nil {
				t.Fatal(err)
			}
		}
		x := New(o)
		if got := x.Decide(s.Values(o, now), c.current, now); got != c.want {
			t.Errorf("%s: %d of %d, want %d (%+v)", name, got, c.current, c.want, s.Values(o, now))
		}
	}
}

// Counters: refusals of a full queue ask for workers, answers keep one, and neither is of another
// lane.
func TestTheChartsRates(t *testing.T) {
	for name, c := range map[string]struct {
		series  string
		each    float64 // more with each 10 s
		current int
		want    int
	}{
		"2.5 refusals a second": {`sie_gateway_rejected_requests_total{pool="p",machine_profile="m",bundle="b",` +
			`reason="queue_full",scaling_action="scale_up"}`, 25, 1, 3},
		"refusals that no machine helps": {`sie_gateway_rejected_requests_total{pool="p",machine_profile="m",` +
			`bundle="b",reason="invalid_input",scaling_action="none"}`, 25, 0, 0},
		"answers keep one worker": {`sie_gateway_requests_total{pool="p",machine_profile="m",bundle="b",` +
			`status="200"}`, 9000, 3, 1},
		"answers of another pool keep none": {`sie_gateway_requests_total{pool="q",machine_profile="m",` +
			`bundle="b",status="200"}`, 9000, 0, 0},
	} {
		o, s, now := chart(t), Samples{}, time.Unix(1000, 0)
		for i := range 12 {
			now = now.Add(10 * time.Second)
			text := fmt.Sprintf("%s %v\n", c.series, float64(i)*c.each)
			for metric := range quiet() {
				text += metric + "{pool=\"p\",machine_profile=\"m\",bundle=\"b\"} 0\n"
			}
			if err := s.Add("g", []byte("# TYPE sie_gateway_rejected_requests_total counter\n"+
				"# TYPE sie_gateway_requests_total counter\n"+text), now); err != nil {
				t.Fatal(err)
			}
		}
		if got := New(o).Decide(s.Values(o, now), c.current, now); got != c.want {
			t.Errorf("%s: %d of %d, want %d (%+v)", name, got, c.current, c.want, s.Values(o, now))
		}
	}
}
