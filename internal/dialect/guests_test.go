package dialect

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/errs"
)

// Every code has a body that clients of other APIs can read.
func TestOtherAPIEnvelopes(t *testing.T) {
	for _, in := range errs.Codes() {
		err := &errs.Error{Code: in.Code, Status: in.Status, Message: `m "q"`, RetryAfter: in.RetryAfter}
		for _, kind := range []RouteKind{RouteRerank, RouteCohere, RouteTEI} {
			status, headers, body := Render(err, Caller{}, kind)
			var b struct {
				Error     any    `json:"error"`
				ErrorType string `json:"error_type"`
				Message   string
				Detail    string
			}
			if e := json.Unmarshal(body, &b); e != nil {
				t.Fatalf("%s on %d: %v: %s", in.Code, kind, e, body)
			}
			if status < 400 || header(headers, HeaderErrorCode) == "" ||
				(header(headers, HeaderRetryAfter) != "") != in.Transient {
				t.Errorf("%s on %d: %d %v", in.Code, kind, status, headers)
			}
			if (status == 401) != (header(headers, "WWW-Authenticate") != "") {
				t.Errorf("%s on %d: %d without the header that goes with it: %v",
					in.Code, kind, status, headers)
			}
			switch kind {
			case RouteRerank:
				e, _ := b.Error.(map[string]any)
				if e["message"] != err.Message || e["code"] != in.OpenAICode || b.Message != err.Message ||
					b.Detail != err.Message {
					t.Errorf("%s: %s", in.Code, body)
				}
			case RouteCohere:
				if b.Message != err.Message || b.Error != nil {
					t.Errorf("%s: %s", in.Code, body)
				}
			case RouteTEI:
				if b.Error != err.Message || b.ErrorType == "" || status == 202 {
					t.Errorf("%s: %d %s", in.Code, status, body)
				}
			}
		}
	}
}

// Statuses and types are those of impl From<&ErrorType> for StatusCode in TEI's
// router/src/http/server.rs.
func TestTEIStatuses(t *testing.T) {
	for _, c := range []struct {
		err    *errs.Error
		status int
		kind   string
	}{
		{errs.Invalid("inputs", "m"), 422, "Validation"},
		{errs.TooLong("inputs", "m"), 422, "Validation"},
		{errs.Empty("inputs", "m"), 400, "Empty"},
		{errs.BodyTooLarge(1), 413, "Validation"},
		{errs.FullQueue(1, 1, 1), 429, "Overloaded"},
		{errs.Inference("encoding", nil), 424, "Backend"},
		{errs.LoadFailed("m", errs.LoadFailure{}, "d", nil), 424, "Backend"},
		{errs.Loading("m"), 503, "Unhealthy"},
		{errs.ShuttingDown(), 503, "Unhealthy"},
		{errs.Late(time.Second), 504, "Backend"},
		{errs.NoKey(), 401, "Validation"},
		{errs.UnknownModel("m"), 404, "Validation"},
	} {
		status, _, body := Render(c.err, Caller{}, RouteTEI)
		var b struct {
			ErrorType string `json:"error_type"`
		}
		if err := json.Unmarshal(body, &b); err != nil || status != c.status || b.ErrorType != c.kind {
			t.Errorf("%s: %d %s, want %d %s", c.err.Code, status, body, c.status, c.kind)
		}
	}
}
