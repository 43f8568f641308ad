package dialect

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/errs"
)

// An error that another component sent is answered like a local one, in every dialect.
func TestErrorsOfOtherComponentsAreRenderedAlike(t *testing.T) {
	worker := "l4"
	list := []*errs.Error{
		{Code: "CODE_OF_A_NEWER_RELEASE", Status: 503, Message: "m", RetryAfter: 2500 * time.Millisecond},
		{Code: "CODE_OF_A_NEWER_RELEASE", Status: 422, Message: "m", Param: "p"},
		errs.LoadFailed("m", errs.LoadFailure{Class: "GATED", Attempts: 3, Permanent: true},
			"set HF_TOKEN", nil),
		errs.MachineProfile("h100", &worker), errs.MachineProfile("h100", nil),
		errs.Empty("input", "is empty"),
		errs.UnsupportedField("dimensions", "no"), errs.BodyTooLarge(1), errs.RequiresText("bert", 2),
		errs.Capacity("l4", 0),
	}
	for _, in := range errs.Codes() {
		list = append(list, &errs.Error{
			Code:       in.Code,
			Status:     in.Status,
			Message:    "<m>\n\"é\"",
			Param:      "items[2].text",
			RetryAfter: in.RetryAfter,
		})
	}
	compared := 0
	for _, e := range list {
		fromJSON, err := errs.FromJSON(e.AppendJSON(nil))
		if err != nil {
			t.Fatal(err)
		}
		fromMsgpack, err := errs.FromMsgpack(e.AppendMsgpack(nil))
		if err != nil {
			t.Fatal(err)
		}
		for _, version := range []string{"", "unknown", "0.3.4", "0.6.30", "0.7.3", "0.10.1"} {
			for kind := RouteNative; kind <= RouteTEI; kind++ {
				caller := ParseCaller(version)
				status, headers, body := Render(e, caller, kind)
				for _, received := range []*errs.Error{fromJSON, fromMsgpack} {
					s, h, b := Render(received, caller, kind)
					if s != status || !reflect.DeepEqual(h, headers) || !bytes.Equal(b, body) {
						t.Errorf("%s for %q, route %d: %d %v %s\nwant %d %v %s",
							e.Code, version, kind, s, h, b, status, headers, body)
					}
					compared++
				}
			}
		}
	}
	if compared < 1000 {
		t.Errorf("only %d answers compared", compared)
	}
}

// A code that this release does not know reaches the caller unchanged, with the type that follows
// from its status.
func TestUnknownCodesAreKept(t *testing.T) {
	for status, kind := range map[int]string{422: "invalid_request_error", 503: "server_error"} {
		_, headers, body := Render(&errs.Error{Code: "NEW_CODE", Status: status, Message: "m"}, Caller{},
			RouteEncode)
		want := `{"error":{"code":"NEW_CODE","message":"m","type":"` + kind +
			`","param":null},"detail":{"code":"NEW_CODE","message":"m"},"code":"NEW_CODE"}`
		if string(body) != want || header(headers, HeaderErrorCode) != "NEW_CODE" {
			t.Errorf("%v %s\nwant %s", headers, body, want)
		}
		want = `{"error":{"message":"m","type":"` + kind + `","param":null,"code":"NEW_CODE"}}`
		if _, _, body := Render(&errs.Error{Code: "NEW_CODE", Status: status, Message: "m"}, Caller{},
			RouteOpenAI); string(body) != want {
			t.Errorf("OpenAI: %s\nwant %s", body, want)
		}
	}
}
