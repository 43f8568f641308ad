package dialect

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
)

func TestParseCaller(t *testing.T) {
	for in, want := range map[string]Caller{
		"": {}, "unknown": {Named: true}, "1": {Named: true}, "0.10.1": {true, true, 0, 10, 1},
		"0.3.4": {true, true, 0, 3, 4}, "0.7": {true, true, 0, 7, 0}, "0.6.30rc1": {true, true, 0, 6, 30},
		"1.2.3.dev4+g5": {true, true, 1, 2, 3}, "a.b": {Named: true}, "0.x.1": {Named: true},
		"-1.2": {Named: true}, "99999999999.1": {Named: true}, "0.1.x": {true, true, 0, 1, 0},
		"go-0.1.0": {Named: true}, ".": {Named: true}, " 0.1": {Named: true},
		"0.1." + string(make([]byte, 100)): {Named: true},
	} {
		if got := ParseCaller(in); got != want {
			t.Errorf("%q: %+v, want %+v", in, got, want)
		}
	}
}

func TestPatience(t *testing.T) {
	for version, want := range map[string]time.Duration{
		"": 150 * time.Second, "0.3.4": 30 * time.Second, "0.7.3": 30 * time.Second,
		"0.7.4": 150 * time.Second, "0.10.1": 150 * time.Second, "1.0": 150 * time.Second,
		"unknown": 30 * time.Second,
	} {
		if got := ParseCaller(version).Patience(); got != want {
			t.Errorf("%q waits %v, want %v", version, got, want)
		}
	}
}

func TestServerVersion(t *testing.T) {
	for in, want := range map[string]string{
		"": "9.9.9", "unknown": "9.9.9", "0.3.4": "0.3", "0.6.30": "0.6", "0.10.1": "0.10",
	} {
		if got := ParseCaller(in).ServerVersion("9.9.9"); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

var l4 = "l4"

// TestWireCodes checks the table of the codes that each caller gets.
func TestWireCodes(t *testing.T) {
	callers := []string{"", "unknown", "0.3.4", "0.6.0", "0.6.30", "0.7.2", "0.7.3", "0.10.1"}
	for _, c := range []struct {
		err  *errs.Error
		kind RouteKind
		want [8]string // per caller; a number stands for status without a code
	}{
		{errs.FullQueue(1, 1, 1), RouteEncode, [8]string{"QUEUE_FULL", "PROVISIONING", "QUEUE_FULL",
			"PROVISIONING", "PROVISIONING", "PROVISIONING", "QUEUE_FULL", "QUEUE_FULL"}},
		{errs.Capacity("l4", 0), RouteEncode, [8]string{"202", "PROVISIONING", "202", "202", "PROVISIONING",
			"PROVISIONING", "PROVISIONING", "PROVISIONING"}},
		{errs.Capacity("l4", 0), RouteScore, [8]string{"202", "PROVISIONING", "202", "202", "PROVISIONING",
			"PROVISIONING", "PROVISIONING", "PROVISIONING"}},
		{errs.Capacity("l4", 0), RouteOpenAI, [8]string{"PROVISIONING", "PROVISIONING", "PROVISIONING",
			"PROVISIONING", "PROVISIONING", "PROVISIONING", "PROVISIONING", "PROVISIONING"}},
		{errs.Unloading("m"), RouteEncode, [8]string{"MODEL_NOT_LOADED", "MODEL_LOADING", "MODEL_NOT_LOADED",
			"MODEL_LOADING", "MODEL_LOADING", "MODEL_LOADING", "MODEL_LOADING", "MODEL_LOADING"}},
		{errs.ShuttingDown(), RouteEncode, [8]string{"DRAINING", "MODEL_LOADING", "MODEL_LOADING",
			"MODEL_LOADING", "MODEL_LOADING", "MODEL_LOADING", "MODEL_LOADING", "MODEL_LOADING"}},
		{errs.LoadingLoRA("l", "m"), RouteEncode, [8]string{"LORA_LOADING", "LORA_LOADING", "LORA_LOADING",
			"LORA_LOADING", "LORA_LOADING", "LORA_LOADING", "LORA_LOADING", "LORA_LOADING"}},
		{errs.LoadingLoRA("l", "m"), RouteScore, [8]string{"LORA_LOADING", "MODEL_LOADING", "MODEL_LOADING",
			"MODEL_LOADING", "MODEL_LOADING", "MODEL_LOADING", "MODEL_LOADING", "MODEL_LOADING"}},
		{errs.Loading("m"), RouteEncode, [8]string{"MODEL_LOADING", "MODEL_LOADING", "MODEL_LOADING",
			"MODEL_LOADING", "MODEL_LOADING", "MODEL_LOADING", "MODEL_LOADING", "MODEL_LOADING"}},
	} {
		for i, v := range callers {
			status, headers, _ := Render(c.err, ParseCaller(v), c.kind)
			got := header(headers, HeaderErrorCode)
			if got == "" {
				got = strconv.Itoa(status)
			}
			if got != c.want[i] {
				t.Errorf("%s for %q on route %d: %s, want %s", c.err.Code, v, c.kind, got, c.want[i])
			}
		}
	}
}

func header(hs []Header, name string) string {
	for _, h := range hs {
		if h.Name == name {
			return h.Value
		}
	}
	return ""
}

// TestRenderAlways checks, for every code, generation and route, the properties that every client
// depends on.
func TestRenderAlways(t *testing.T) {
	retried := map[string]bool{
		"MODEL_LOADING":      true,
		"PROVISIONING":       true,
		"QUEUE_FULL":         true,
		"RESOURCE_EXHAUSTED": true,
		"LORA_LOADING":       true,
	}
	for _, in := range errs.Codes() {
		for _, version := range []string{
			"", "unknown", "0.3.4", "0.6.0", "0.6.30", "0.7.3", "0.10.1", "1.0.0",
		} {
			for _, kind := range []RouteKind{
				RouteNative, RouteEncode, RouteScore, RouteExtract, RouteOpenAI,
			} {
				name := fmt.Sprintf("%s/%q/%d", in.Code, version, kind)
				caller := ParseCaller(version)
				err := &errs.Error{
					Code:       in.Code,
					Status:     in.Status,
					Message:    "m \"q\"",
					RetryAfter: in.RetryAfter,
					Cause:      errors.New("secret"),
				}
				status, headers, body := Render(err, caller, kind)
				code, retry := header(headers, HeaderErrorCode), header(headers, HeaderRetryAfter)
				if header(headers, "Content-Type") != "application/json" || !json.Valid(body) {
					t.Errorf("%s: not JSON: %s", name, body)
				}
				if n, convErr := strconv.Atoi(retry); (convErr != nil || n < 1) && retry != "" ||
					(retry != "") != in.Transient {
					t.Errorf("%s: Retry-After %q", name, retry)
				}
				if status == 202 && caller.Known && !caller.before(0, 6, 1) {
					t.Errorf("%s: 202 breaks this SDK", name)
				}
				if status == 503 && caller.Named && kind != RouteOpenAI && kind != RouteNative &&
					!caller.oldest() && !retried[code] {
					t.Errorf("%s: the SDK takes code %s for final", name, code)
				}
				if status == 202 {
					continue
				}
				var b struct {
					Error  struct{ Code, Message, Type string }
					Detail *struct{ Code, Message string }
					Code   string
				}
				if err := json.Unmarshal(body, &b); err != nil {
					t.Fatal(err)
				}
				if b.Error.Message != `m "q"` || b.Error.Type == "" || b.Error.Code == "" {
					t.Errorf("%s: %s", name, body)
				}
				if native := kind != RouteOpenAI; native != (b.Detail != nil) {
					t.Errorf("%s: wrong envelope %s", name, body)
				} else if native && (b.Code != code || b.Detail.Code != code || b.Error.Code != code ||
					b.Detail.Message != b.Error.Message) {
					t.Errorf("%s: the codes disagree: header %s, body %s", name, code, body)
				}
			}
		}
	}
}

// A prepared error gives the same answer as Render, and is rendered once.
func TestPrepared(t *testing.T) {
	for _, err := range []*errs.Error{
		errs.FullQueue(1, 2, 3), errs.Capacity("l4", 0), errs.Unloading("m"), errs.Internal(nil),
	} {
		p := Prepare(err)
		for range 2 {
			for _, version := range []string{"", "unknown", "0.3.4", "0.6.0", "0.6.30", "0.7.3", "0.10.1"} {
				for _, kind := range []RouteKind{
					RouteNative, RouteEncode, RouteScore, RouteExtract, RouteOpenAI,
				} {
					c := ParseCaller(version)
					status, headers, body := p.Render(c, kind)
					again, _, same := p.Render(c, kind)
					s, h, b := Render(err, c, kind)
					if status != s || !reflect.DeepEqual(headers, h) || string(body) != string(b) ||
						again != s || &body[0] != &same[0] {
						t.Errorf("%s for %q on route %d: %d %v %s, want %d %v %s",
							err.Code, version, kind, status, headers, body, s, h, b)
					}
				}
			}
		}
	}
}

func TestBodies(t *testing.T) {
	for _, c := range []struct {
		err    *errs.Error
		kind   RouteKind
		status int
		want   string
	}{
		{errs.Invalid("items[0].text", "bad"), RouteEncode, 400,
			`{"error":{"code":"INVALID_INPUT","message":"bad","type":"invalid_request_error","param":"items[0].text"},"detail":{"code":"INVALID_INPUT","message":"bad"},"code":"INVALID_INPUT"}`},
		{errs.LoadFailed("m", errs.LoadFailure{Class: "GATED", Attempts: 2, Permanent: true}, "d", nil),
			RouteEncode, 502,
			`{"error":{"code":"MODEL_LOAD_FAILED","message":"Model 'm' failed to load (GATED, attempts=2): d","type":"server_error","param":null,"error_class":"GATED","attempts":2,"permanent":true},` +
				`"detail":{"code":"MODEL_LOAD_FAILED","message":"Model 'm' failed to load (GATED, attempts=2): d","error_class":"GATED","attempts":2,"permanent":true},"code":"MODEL_LOAD_FAILED"}`},
		{errs.UnsupportedField("dimensions", "no"), RouteOpenAI, 400,
			`{"error":{"message":"no","type":"invalid_request_error","param":"dimensions","code":"unsupported_field"}}`},
		{errs.UnknownModel("Model 'x' not found"), RouteOpenAI, 404,
			`{"error":{"message":"Model 'x' not found","type":"invalid_request_error","param":"model","code":"model_not_found"}}`},
		{errs.FullQueue(1, 2, 3), RouteOpenAI, 503,
			`{"error":{"message":"Queue full: 1 items pending, cannot add 2 more (limit: 3)","type":"server_error","param":null,"code":"server_overloaded"}}`},
		{errs.NoRoute(), RouteNative, 404,
			`{"error":{"code":"NOT_FOUND","message":"Not Found","type":"invalid_request_error","param":null},"detail":{"code":"NOT_FOUND","message":"Not Found"},"code":"NOT_FOUND"}`},
		{errs.Capacity("l4", 90*time.Second), RouteEncode, 202,
			`{"status":"provisioning","message":"No capacity for machine profile 'l4' yet; it is being provisioned, please retry"}`},
	} {
		status, _, body := Render(c.err, Caller{}, c.kind)
		if status != c.status || string(body) != c.want {
			t.Errorf("%d\n got %s\nwant %s", status, body, c.want)
		}
	}
	_, _, body := Render(errs.MachineProfile("h100", &l4), Caller{}, RouteEncode)
	var got struct{ Detail map[string]any }
	if err := json.Unmarshal(body, &got); err != nil || got.Detail["requested_profile"] != "h100" ||
		got.Detail["worker_identity"] != "l4" {
		t.Errorf("%s, %v", body, err)
	}
	_, _, body = Render(errs.MachineProfile("h100", nil), Caller{}, RouteEncode)
	got.Detail = nil
	if err := json.Unmarshal(body, &got); err != nil || got.Detail["worker_identity"] != nil {
		t.Errorf("%s, %v", body, err)
	}
}

func TestRetryAfterIsWholeAndPositive(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1: "1", time.Second: "1", 1500 * time.Millisecond: "2", time.Minute: "60",
	} {
		e := errs.Loading("m")
		e.RetryAfter = d
		_, h, _ := Render(e, Caller{}, RouteEncode)
		if got := header(h, HeaderRetryAfter); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

func TestSuccessHeaders(t *testing.T) {
	got := SuccessHeaders(nil, ParseCaller("0.10.1"), "1.0.0",
		&api.Timing{Total: 12.346, Queue: 1, Tokenization: 0.5, Inference: 10})
	want := []Header{{"X-SIE-Server-Version", "0.10"}, {"X-SIE-Served-By", "local"}, {"X-Queue-Time", "1.00"},
		{"X-Tokenization-Time", "0.50"}, {"X-Inference-Time", "10.00"}, {"X-Total-Time", "12.35"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	got = SuccessHeaders(nil, Caller{}, "1.0.0",
		&api.Timing{Postprocessing: 2, Detailed: true, Preprocess: 3, BatchWait: 4})
	if header(got, "X-SIE-Server-Version") != "1.0.0" || header(got, "X-Postprocessing-Time") != "2.00" ||
		header(got, "X-Preprocess-Time") != "3.00" || header(got, "X-Batch-Wait-Time") != "4.00" {
		t.Errorf("%v", got)
	}
	if got := SuccessHeaders(nil, Caller{}, "1", nil); len(got) != 2 {
		t.Errorf("%v", got)
	}
}

func TestRequestHeaders(t *testing.T) {
	for _, c := range []struct {
		header, worker string
		ok             bool
	}{{"", "", true}, {"", "l4", true}, {"L4 ", "l4", true}, {"h100", "l4", false}, {"l4", "", false}} {
		if err := CheckMachineProfile(c.header, c.worker); (err == nil) != c.ok {
			t.Errorf("profile %q on %q: %v", c.header, c.worker, err)
		}
	}
	if CheckRemote("", false) != nil || CheckRemote("forbid", true) != nil {
		t.Error("a harmless X-SIE-Remote is refused")
	}
	for _, v := range []string{"", "allow", "FORBID"} {
		if err := CheckRemote(v, true); err == nil || err.Status != 400 {
			t.Errorf("X-SIE-Remote %q: %v", v, err)
		}
	}
}
