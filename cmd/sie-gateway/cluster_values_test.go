package main

import (
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sie-engine/sie/deploy"
	"github.com/sie-engine/sie/gateway/scale"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/testrig"
)

// What the triggers ask of the cluster is the same number whether 1, 2 or 5 gateways tell it: the
// demand that one gateway saw, what pools ask, and what waits in the broker.
func TestClusterValuesDoNotMultiplyWithGateways(t *testing.T) {
	lane := bus.Lane{Pool: "default", Profile: "cpu", Bundle: "default"}
	all, err := scale.Parse([]byte(strings.NewReplacer("LANE_POOL", lane.Pool, "LANE_PROFILE", lane.Profile,
		"LANE_BUNDLE", lane.Bundle, "MAX", "4").Replace(deploy.Triggers)))
	if err != nil {
		t.Fatal(err)
	}
	// workers for the pool and the request, slices, tokens, loads, the pool's workers, the floor;
	// the rates of requests are of this moment
	want := []float64{3, 7, 0, 0, 2, 1}
	for _, n := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			broker := bustest.Start(t, nil)
			var gateways []*serving
			for range n {
				gateways = append(gateways, serve(t, "--drain-delay 0s --nats-url "+broker.URL+" "+oneLane))
			}
			for _, g := range gateways {
				testrig.Until(t, "a gateway is ready", func() bool {
					status,
						_ := g.get("/readyz")
					return status == 200
				})
			}
			post(t, gateways[0].url+"/v1/pools",
				`{"name":"mine","gpus":{"cpu":2},"minimum_worker_count":1}`, 201)
			post(t, gateways[n-1].url+"/v1/encode/BAAI/bge-m3", `{"items":[{"text":"a"}]}`, 202)
			queueWork(t, broker, lane, 7)
			testrig.Until(t, "every gateway says the same", func() bool {
				for _, some := range append([][]*serving{gateways}, ones(gateways)...) {
					if got := valuesOf(t, some, all[0]); !reflect.DeepEqual(got[:len(want)], want) {
						return false
					}
				}
				return true
			})
		})
	}
}

func ones(all []*serving) (out [][]*serving) {
	for i := range all {
		out = append(out, all[i:i+1])
	}
	return out
}

// valuesOf returns the values of an object's triggers over the metrics of some gateways.
func valuesOf(t *testing.T, some []*serving, o *scale.Object) (out []float64) {
	var s scale.Samples
	now := time.Now()
	for _, g := range some {
		_, body := g.get("/metrics")
		if err := s.Add(g.url, []byte(body), now); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range s.Values(o, now) {
		if v.Err != nil {
			v.Value = -1
		}
		out = append(out, v.Value)
	}
	return out
}

func post(t *testing.T, url, body string, want int) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != want {
		t.Fatalf("%s: %d %s", url, resp.StatusCode, text)
	}
}

// queueWork leaves n slices in the queues of two models of a lane.
func queueWork(t *testing.T, broker *bustest.Server, lane bus.Lane, n int) {
	t.Helper()
	js, err := jetstream.New(broker.Connect(bus.GatewayInboxes))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateOrUpdateStream(t.Context(), bus.Streams{}.Work(lane.Pool))
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		subject := lane.WorkSubject([]string{"org/a", "org/b"}[i%2])
		if _, err = stream.CreateOrUpdateConsumer(t.Context(), bus.Streams{}.Consumer(subject)); err == nil {
			_, err = js.Publish(t.Context(), subject, []byte("work"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
