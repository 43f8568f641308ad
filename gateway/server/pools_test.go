package server

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/gateway/pools"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/lease"
	"github.com/sie-engine/sie/internal/tenant"
	"github.com/sie-engine/sie/internal/testrig"
)

// keepPools gives a rig's pools a real bucket until the test ends.
func keepPools(t *testing.T, k *pools.Keeper) {
	t.Helper()
	store, err := lease.NewStore(bustest.Start(t, nil).Connect(bus.GatewayInboxes), bus.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx, store) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for k.Renew(ctx, "none").Status != 404 { // until it runs
		time.Sleep(time.Millisecond)
	}
}

// A client makes, reads, changes, renews and deletes a pool, which gets a worker that is ready.
func TestAPoolLives(t *testing.T) {
	var keeper *pools.Keeper
	r := start(t, func(o *Options) { keeper = o.Pools })
	keepPools(t, keeper)
	type pool struct {
		Name   string
		Status struct {
			State    string
			Assigned []struct{ Name, URL, GPU, Bundle string } `json:"assigned_workers"`
			Created  float64                                   `json:"created_at"`
			Renewed  float64                                   `json:"last_renewed"`
		}
	}
	before := float64(time.Now().UnixMicro()) / 1e6
	a := r.do("POST", "/v1/pools", `{"name":"Mine","gpus":{"L4":1},"bundle":null}`)
	var p pool
	if err := json.Unmarshal([]byte(a.body), &p); a.status != 201 || err != nil || p.Name != "Mine" ||
		p.Status.State != "pending" || p.Status.Created < before-1 || p.Status.Renewed != p.Status.Created {
		t.Fatalf("%d %s (%v)", a.status, a.body, err)
	}
	if a := r.do("POST", "/v1/pools/mine/renew", ""); a.status != 200 ||
		!strings.Contains(a.body, "Pool renewed") {
		t.Errorf("%d %s", a.status, a.body)
	}
	r.get("/v1/pools/mine", &p)
	if p.Status.Renewed <= p.Status.Created {
		t.Errorf("renewed at %v, made at %v", p.Status.Renewed, p.Status.Created)
	}
	if lanes, ok, err := keeper.Lanes("MINE"); !ok || err != nil || len(lanes) != 1 ||
		lanes[0].String() != "Mine/l4/default" {
		t.Errorf("%v %v", lanes, ok)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go r.fleet.Run(ctx)
	for p.Status.State != "active" { // the fleet is settled after 2.5 s
		r.worker("w-1", testLanes[0], nil)
		time.Sleep(20 * time.Millisecond)
		r.get("/v1/pools/mine", &p)
	}
	if w := p.Status.Assigned; len(w) != 1 || w[0].Name != "w-1" || w[0].GPU != "l4" ||
		w[0].Bundle != "default" || w[0].URL != "http://w-1" {
		t.Errorf("%+v", w)
	}
	const more = `{"name":"mine","gpus":{"l4":2},"minimum_worker_count":1,"pinned_models":["org/a"]}`
	a = r.do("POST", "/v1/pools", more)
	r.configure(1)
	if a.status != 400 || !strings.Contains(a.body, "INVALID_REQUEST") {
		t.Errorf("a pin before the models are known: %d %s", a.status, a.body)
	}
	a = r.do("POST", "/v1/pools", more)
	if a.status != 201 || !strings.Contains(a.body, `"state":"pending"`) ||
		!strings.Contains(a.body, `"l4":2`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if x := keeper.Leases()[testLanes[0]]; x.Workers != 2 || x.Missing != 1 || x.Floor != 1 {
		t.Errorf("%+v", x)
	}
	if a := r.do("DELETE", "/v1/pools/mine", ""); a.status != 200 ||
		!strings.Contains(a.body, "Pool deleted") {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, c := range [][2]string{
		{"DELETE", "/v1/pools/mine"}, {"POST", "/v1/pools/mine/renew"}, {"GET", "/v1/pools/mine"},
	} {
		a := r.do(c[0], c[1], "")
		if a.status != 404 || a.header.Get("X-SIE-Error-Code") != "POOL_NOT_FOUND" ||
			!strings.Contains(a.body, `"detail":{"code":"POOL_NOT_FOUND","message":"Pool 'mine' not found"`) ||
			!strings.Contains(a.body, `"error":{"code":"POOL_NOT_FOUND"`) {
			t.Errorf("%v: %d %s", c, a.status, a.body)
		}
	}
}

// Every call that asks for what may not be, and its answer, in both shapes of errors.
func TestRefusedPools(t *testing.T) {
	var keeper *pools.Keeper
	r := start(t, func(o *Options) { keeper = o.Pools })
	keepPools(t, keeper)
	r.configure(1)
	many := `{"name":"m","gpus":{"l4":1},"pinned_models":["org/a"` + strings.Repeat(`,"org/a"`, 64) + `]}`
	for i, c := range []struct {
		method, path, body string
		status             int
		contains           string
	}{
		{"POST", "", `{}`, 400, "Pool name is required"},
		{"POST", "", `{"name":""}`, 400, "Pool name is required"},
		{"POST", "", `{"name":"m"}`, 400, "GPU requirements are required"},
		{"POST", "", `{"name":"m","gpus":{},"gpu_caps":{}}`, 400, "GPU requirements are required"},
		{"POST", "", `[]`, 400, "must be JSON"},
		{"POST", "", `{"name":"m","gpus":{"l4":1}} {}`, 400, "more after"},
		{"POST", "", `{"name":"m","gpus":{"l4":"1"}}`, 400, "must be JSON"},
		{"POST", "", `{"name":"m","gpus":{"l4":1.5}}`, 400, "must be JSON"},
		{"POST", "", `{"name":"m","gpus":{"l4":-1}}`, 400, "-1"},
		{"POST", "", `{"name":"m","gpus":{"l4":1e30}}`, 400, "must be JSON"},
		{"POST", "", `{"name":"m.x","gpus":{"l4":1}}`, 400, "m.x"},
		{"POST", "", `{"name":"m>","gpus":{"l4":1}}`, 400, "letters"},
		{"POST", "", `{"name":"-m","gpus":{"l4":1}}`, 400, "letters"},
		{"POST", "", `{"name":"a\u0000b","gpus":{"l4":1}}`, 400, "letters"},
		{"POST", "", `{"name":"` + strings.Repeat("m", 300) + `","gpus":{"l4":1}}`, 400, "63"},
		{"POST", "", `{"name":"m","gpus":{"l5":1}}`, 400, "there are: l4"},
		{"POST", "", `{"name":"m","gpus":{"l4":1,"L4":1}}`, 400, "twice"},
		{"POST", "", `{"name":"m","gpus":{"l4":5}}`, 400, "at most 4"},
		{"POST", "", `{"name":"m","gpus":{"l4":1},"minimum_worker_count":5}`, 400, "minimum_worker_count"},
		{"POST", "", `{"name":"m","gpus":{"l4":2},"gpu_caps":{"l4":1}}`, 400, "gpu_caps"},
		{"POST", "", `{"name":"m","gpus":{"l4":1},"ttl_seconds":3601}`, 400, "3600"},
		{"POST", "", `{"name":"m","gpus":{"l4":1},"ttl_seconds":0}`, 400, "ttl_seconds"},
		{"POST", "", `{"name":"m","gpus":{"l4":1},"bundle":"none"}`, 400, "bundle"},
		{"POST", "", `{"name":"m","gpus":{"l4":1},"queue_pool":"none"}`, 400, "queue_pool"},
		{"POST", "", `{"name":"m","gpus":{"l4":1},"pinned_models":["org/none"]}`, 400, "org/none"},
		{"POST", "", many, 400, "64"},
		{"POST", "", `{"name":"m","x":"` + strings.Repeat("x", 65<<10) + `"}`, 413, "65536"},
		{"POST", "", `{"name":"default","gpus":{"l4":1}}`, 403, "POOL_OPERATION_FORBIDDEN"},
		{"POST", "", `{"name":"TEAM","gpus":{"l4":1}}`, 403, "POOL_OPERATION_FORBIDDEN"},
		{"DELETE", "/default", "", 403, "DEFAULT_POOL_DELETE_FORBIDDEN"},
		{"DELETE", "/team", "", 403, "POOL_OPERATION_FORBIDDEN"},
		{"DELETE", "/none", "", 404, "POOL_NOT_FOUND"},
		{"POST", "/none/renew", "", 404, "POOL_NOT_FOUND"},
		{"POST", "/default/renew", "", 200, "Pool renewed"},
		{"POST", "/none/else", "", 404, "NOT_FOUND"},
		{"POST", "", `{"name":"a","gpus":{"l4":1}}`, 201, `"name":"a"`},
		{"POST", "", `{"name":"b","gpu_caps":{"H100":1},"queue_pool":"Team","ttl_seconds":60}`, 201, `"h100":1`},
		{"POST", "", `{"name":"c","gpus":{"l4":0},"unknown":true}`, 201, `"queue_pool":"default"`},
		{"POST", "", `{"name":"d","gpus":{"l4":1}}`, 403, "POOL_OPERATION_FORBIDDEN"}, // the rig allows three
		{"POST", "", `{"name":"A","gpus":{"l4":2}}`, 201, `"l4":2`},
	} {
		a := r.do(c.method, "/v1/pools"+c.path, c.body)
		if a.status != c.status || !strings.Contains(a.body, c.contains) {
			t.Errorf("%d: %.80s: %d %s, want %d %s", i, c.body, a.status, a.body, c.status, c.contains)
		}
		var e struct {
			Error, Detail struct{ Code, Message string }
			Code          string
		}
		if err := json.Unmarshal([]byte(a.body), &e); a.status >= 400 && (err != nil || e.Error != e.Detail ||
			e.Error.Message == "" || e.Code != e.Error.Code || a.header.Get("X-SIE-Error-Code") != e.Code) {
			t.Errorf("%d: %s is not in both shapes (%v)", i, a.body, err)
		}
	}
	if n := len(keeper.Pools()); n != 3 {
		t.Errorf("there are %d pools", n)
	}
}

// What tenants do to pools, and what they may not, is in the audit log; models are checked as pools
// are, in any case.
func TestPoolsAreAudited(t *testing.T) {
	keys := tenants(t, `
- {name: all, tokens: [all-token]}
- {name: mine, tokens: [mine-token], pools: [default, Mine], models: [org/a]}
- {name: alone, tokens: [alone-token], pools: [mine]}
`)
	var keeper *pools.Keeper
	r := start(t, func(o *Options) { keeper, o.Keys, o.AuditLog = o.Pools, keys, true })
	keepPools(t, keeper)
	r.configure(1)
	for i, c := range []struct {
		who, method, path, body string
		status                  int
		contains                string
	}{
		{"mine", "POST", "", `{"name":"mine","gpus":{"l4":1}}`, 201, `"name":"mine"`},
		{"mine", "POST", "", `{"name":"other","gpus":{"l4":1}}`, 403, "pools are: default, Mine"},
		{"mine", "POST", "", `{"name":"mine","gpus":{"h100":1},"queue_pool":"TEAM"}`, 403, "'TEAM'"},
		{"mine", "POST", "", `{"name":"mine","gpus":{"l4":1},"pinned_models":["org/b"]}`, 403, "'org/b'"},
		{"mine", "POST", "", `{"name":"MINE","gpus":{"l4":1},"pinned_models":["org/a"]}`, 201, `"org/a"`},
		{"mine", "POST", "", `{"gpus":{"l4":1}}`, 400, "name is required"},
		{"alone", "POST", "", `{"name":"mine","gpus":{"l4":1}}`, 403, "'default'"},
		{"all", "POST", "", `{"name":"other","gpus":{"h100":1},"queue_pool":"team"}`, 201, `"name":"other"`},
		{"mine", "GET", "", "", 200, `{"pools":[{"name":"default",`},
		{"alone", "GET", "", "", 200, `{"pools":[{"name":"mine",`},
		{"all", "GET", "", "", 200, `{"name":"other",`},
		{"mine", "GET", "/other", "", 403, "FORBIDDEN"},
		{"mine", "GET", "/none", "", 403, "FORBIDDEN"},
		{"all", "GET", "/none", "", 404, "POOL_NOT_FOUND"},
		{"alone", "GET", "/mine", "", 200, `"name":"mine"`},
		{"mine", "POST", "/other/renew", "", 403, "FORBIDDEN"},
		{"alone", "POST", "/default/renew", "", 403, "FORBIDDEN"},
		{"alone", "POST", "/MINE/renew", "", 200, "renewed"},
		{"mine", "DELETE", "/other", "", 403, "FORBIDDEN"},
		{"mine", "DELETE", "/default", "", 403, "DEFAULT_POOL_DELETE_FORBIDDEN"},
		{"mine", "DELETE", "/mine", "", 200, "deleted"},
		{"all", "DELETE", "/other", "", 200, "deleted"},
	} {
		a := r.do(c.method, "/v1/pools"+c.path, c.body, "Authorization", "Bearer "+c.who+"-token")
		if a.status != c.status || !strings.Contains(a.body, c.contains) {
			t.Errorf("%d: %s %s: %d %s, want %d %s", i, c.who, c.body, a.status, a.body, c.status, c.contains)
		}
		if c.method == "GET" && c.path == "" && c.who != "all" && strings.Contains(a.body, "other") {
			t.Errorf("%s sees %s", c.who, a.body)
		}
		if a.status == 403 &&
			(!strings.Contains(a.body, `"detail":{`) || !strings.Contains(a.body, `"error":{`)) {
			t.Errorf("%d: %s is not in both shapes", i, a.body)
		}
	}
	testrig.Until(t, "the last line is in the log", func() bool {
		return strings.Contains(r.log.String(), "event=api_request id=") &&
			strings.Count(r.log.String(), "event=api_request") == 22
	})
	var events []string
	for line := range strings.Lines(r.log.String()) {
		if _, after, ok := strings.Cut(line, "msg=audit event=pool."); ok {
			what, rest, _ := strings.Cut(after, " id=")
			_, rest, _ = strings.Cut(rest, " ")
			events = append(events, what+" "+strings.TrimSpace(rest))
		}
	}
	want := []string{
		"create name=mine token_id=******oken tenant=mine",
		"create name=mine token_id=******oken tenant=mine",
		"create name=other token_id=*****oken tenant=all",
		"renew name=MINE token_id=*******oken tenant=alone",
		"delete name=mine token_id=******oken tenant=mine",
		"delete name=other token_id=*****oken tenant=all",
	}
	if !slices.Equal(events, want) {
		t.Errorf("the audit log has\n%s", strings.Join(events, "\n"))
	}
	if log := r.log.String(); strings.Contains(log, "-token") {
		t.Error("a token is in the log")
	}
}

// What a worker answered has a second line in the audit log, with where it was; other answers have
// none.
func TestProxyRequestsAreAudited(t *testing.T) {
	keys := tenants(t, "\n- {name: caller, tokens: [caller-token]}\n")
	r := start(t, func(o *Options) { o.Keys, o.AuditLog = keys, true })
	for path, want := range map[string]int{"/v1/encode/org/a": 200, "/v1/encode/org/none": 404} {
		a := r.do("POST", path, `{"items":[{"text":"x"}]}`, "X-API-Key", "caller-token")
		if a.status != want {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	testrig.Until(t, "two requests are in the log", func() bool {
		return strings.Count(r.log.String(), "event=api_request") == 2
	})
	log := r.log.String()
	if strings.Count(log, "event=proxy_request") != 1 {
		t.Error(log)
	}
	for _, part := range []string{"method=POST endpoint=encode status=200 token_id=********oken tenant=caller " +
		"model=org/a pool=default gpu=l4 worker=w-1 latency_ms=", "body_bytes=24"} {
		if !strings.Contains(log, part) {
			t.Errorf("the log lacks %s:\n%s", part, log)
		}
	}
}

// tenants returns the access of a tokens file with these entries.
func tenants(t *testing.T, entries string) *tenant.Access {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(file, []byte("tenants:"+entries), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := tenant.Open(tenant.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// Without a broker a change is a 503 that says so, and what is known is still told.
func TestPoolsWithoutABroker(t *testing.T) {
	r := start(t, nil)
	for _, c := range [][3]string{
		{"POST", "/v1/pools", `{"name":"m","gpus":{"l4":1}}`}, {"DELETE", "/v1/pools/m", ""},
		{"POST", "/v1/pools/m/renew", ""},
	} {
		a := r.do(c[0], c[1], c[2])
		if a.status != 503 || a.header.Get("Retry-After") != "1" || !strings.Contains(a.body, "broker") {
			t.Errorf("%v: %d %v %s", c, a.status, a.header, a.body)
		}
	}
	r.get("/v1/pools", &struct{}{})
}

// A tenant sees, makes, renews and deletes the pools that it may use alone, and takes no workers of
// others.
func TestPoolsOfTenants(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	const tokens = "tenants:\n- {name: a, tokens: [ta], pools: [default, Mine]}\n- {name: b, tokens: [tb]}\n" +
		"- {name: c, tokens: [tc], pools: [Mine]}\n"
	if err := os.WriteFile(path, []byte(tokens), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := tenant.Open(tenant.Options{File: path})
	if err != nil {
		t.Fatal(err)
	}
	var keeper *pools.Keeper
	r := start(t, func(o *Options) { keeper, o.Keys = o.Pools, keys })
	keepPools(t, keeper)
	for i, c := range []struct {
		token, method, path, body string
		status                    int
	}{
		{"tb", "POST", "/v1/pools", `{"name":"other","gpus":{"l4":1}}`, 201},
		{"ta", "POST", "/v1/pools", `{"name":"other","gpus":{"l4":2}}`, 403},
		{"ta", "POST", "/v1/pools/other/renew", "", 403},
		{"ta", "DELETE", "/v1/pools/OTHER", "", 403},
		{"ta", "GET", "/v1/pools/other", "", 403},
		{"tc", "POST", "/v1/pools", `{"name":"mine","gpus":{"l4":1}}`, 403}, // workers of default
		{"ta", "POST", "/v1/pools", `{"name":"mine","gpus":{"l4":1}}`, 201},
		{"ta", "POST", "/v1/pools", `{"gpus":{"l4":1}}`, 400},
		{"tc", "POST", "/v1/pools/mine/renew", "", 200},
		{"tb", "GET", "/v1/pools/mine", "", 200},
	} {
		a := r.do(c.method, c.path, c.body, "Authorization", "Bearer "+c.token)
		if a.status != c.status || a.status == 403 && !strings.Contains(a.body, "its pools are") {
			t.Errorf("%d: %s %s of %s: %d %s, want %d", i, c.method, c.path, c.token, a.status, a.body,
				c.status)
		}
	}
	a := r.do("GET", "/v1/pools", "", "Authorization", "Bearer ta")
	if a.status != 200 || strings.Contains(a.body, "other") || !strings.Contains(a.body, `"mine"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}
