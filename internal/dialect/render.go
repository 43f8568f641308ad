package dialect

import (
	"strconv"
	"sync"
	"time"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
)

// RouteKind selects the envelope of an error and, for the inference routes, the codes that an SDK
// retries.
type RouteKind uint8

// The kinds of routes.
const (
	RouteNative  RouteKind = iota // models, pools, health, unknown paths
	RouteEncode                   // /v1/encode
	RouteScore                    // /v1/score
	RouteExtract                  // /v1/extract
	RouteOpenAI                   // /v1/embeddings and the other routes of OpenAI's API
	RouteRerank                   // /v1/rerank, which SIE, Cohere v1 and Jina clients share
	RouteCohere                   // /v2/rerank
	RouteTEI                      // the routes of text-embeddings-inference
)

func (k RouteKind) inference() bool { return k == RouteEncode || k == RouteScore || k == RouteExtract }

// Header is one header of an answer.
type Header struct{ Name, Value string }

// The headers this package writes.
const (
	HeaderRetryAfter    = "Retry-After"
	HeaderErrorCode     = "X-SIE-Error-Code"
	HeaderServerVersion = "X-SIE-Server-Version"
)

// Render writes err for caller on a route of kind k. It returns the status, the headers beyond the
// usual ones (Content-Type included), and the body, which is always JSON.
//
// All SDK generations and OpenAI libraries can read a native body: error, detail and a top-level
// code hold the same facts. OpenAI routes use only OpenAI's envelope. A 503 always carries a code
// that the caller retries. Retry-After is in whole seconds, at least one, and absent if a retry is
// pointless.
func Render(err *errs.Error, caller Caller, k RouteKind) (status int, headers []Header, body []byte) {
	return formOf(err, caller, k).render(err)
}

// form is everything except the error itself that determines the answer to an error.
type form struct {
	code     errs.Code // on the wire
	kind     RouteKind
	accepted bool // answered with 202 instead of the error
}

func formOf(err *errs.Error, caller Caller, k RouteKind) form {
	return form{code: wireCode(err.Code, caller, k), kind: k,
		accepted: err.Code == errs.Provisioning && k.inference() && caller.takes202()}
}

func (f form) render(err *errs.Error) (status int, headers []Header, body []byte) {
	headers = append(make([]Header, 0, 3), Header{"Content-Type", api.ContentTypeJSON})
	if err.RetryAfter > 0 {
		headers = append(headers, Header{HeaderRetryAfter, retrySeconds(err.RetryAfter)})
	}
	if f.accepted {
		return 202, headers, accepted(err)
	}
	headers = append(headers, Header{HeaderErrorCode, string(f.code)})
	if err.Status == 401 {
		headers = append(headers, Header{"WWW-Authenticate", `Bearer realm="sie"`})
	}
	switch f.kind {
	case RouteOpenAI:
		return err.Status, headers, openAIBody(err)
	case RouteRerank:
		return err.Status, headers, rerankBody(err)
	case RouteCohere:
		return err.Status, headers, cohereBody(err)
	case RouteTEI:
		status, body = teiError(err)
		return status, headers, body
	}
	return err.Status, headers, nativeBody(err, string(f.code))
}

// Prepared is an error that is rendered once for all callers that get the same answer. Refusals
// thus cost little. Safe for concurrent use.
type Prepared struct {
	err     *errs.Error
	answers sync.Map // form to *answer
}

type answer struct {
	status  int
	headers []Header
	body    []byte
}

// Prepare returns err ready to be rendered many times.
func Prepare(err *errs.Error) *Prepared { return &Prepared{err: err} }

// Render returns what the function Render returns for the prepared error. Headers and body are
// shared and must not be changed.
func (p *Prepared) Render(caller Caller, k RouteKind) (status int, headers []Header, body []byte) {
	f := formOf(p.err, caller, k)
	v, ok := p.answers.Load(f)
	if !ok {
		a := &answer{}
		a.status, a.headers, a.body = f.render(p.err)
		v, _ = p.answers.LoadOrStore(f, a)
	}
	a := v.(*answer)
	return a.status, a.headers, a.body
}

// wireCode returns the code that makes caller handle c as intended.
func wireCode(c errs.Code, caller Caller, k RouteKind) errs.Code {
	switch c {
	case errs.QueueFull:
		if !caller.RetriesQueueFull() {
			// All SDKs retry it for as long as they wait for capacity (15 minutes); they would
			// retry RESOURCE_EXHAUSTED three times.
			return errs.Provisioning
		}
	case errs.ModelNotLoaded:
		// The model can be loaded again, but newer SDKs treat this code as final.
		if caller.Named && !caller.oldest() {
			return errs.ModelLoading
		}
	case errs.Draining:
		// Another instance, or this one after its restart, answers the retry.
		if caller.Named {
			return errs.ModelLoading
		}
	case errs.LoRALoading:
		// Python SDKs know this code on encode only.
		if caller.Named && k != RouteEncode && k != RouteOpenAI {
			return errs.ModelLoading
		}
	}
	return c
}

// retrySeconds returns d in seconds, rounded up and at least one. New SDKs would retry without a
// pause on zero; old ones crash on negative numbers.
func retrySeconds(d time.Duration) string {
	return strconv.FormatInt(max(int64((d+time.Second-1)/time.Second), 1), 10)
}

func accepted(err *errs.Error) []byte {
	b := append(make([]byte, 0, 64+len(err.Message)), `{"status":"provisioning","message":`...)
	return append(api.AppendJSONString(b, err.Message), '}')
}

// nativeBody writes {"error":{…},"detail":{…},"code":…}. SDKs look at error first, so both objects
// hold the extra keys.
func nativeBody(err *errs.Error, code string) []byte {
	b := append(make([]byte, 0, 192+2*len(err.Message)), `{"error":{"code":`...)
	b = codeAndMessage(b, code, err)
	b = append(b, `,"type":`...)
	b = api.AppendJSONString(b, err.Info().OpenAIType)
	b = append(b, `,"param":`...)
	b = stringOrNull(b, err.Param)
	b = extras(b, err)
	b = append(b, `},"detail":{"code":`...)
	b = codeAndMessage(b, code, err)
	b = extras(b, err)
	b = append(b, `},"code":`...)
	return append(api.AppendJSONString(b, code), '}')
}

func codeAndMessage(b []byte, code string, err *errs.Error) []byte {
	b = api.AppendJSONString(b, code)
	b = append(b, `,"message":`...)
	return api.AppendJSONString(b, err.Message)
}

// openAIBody writes {"error":{"message","type","param","code"}} with OpenAI's codes.
func openAIBody(err *errs.Error) []byte {
	in := err.Info()
	code := in.OpenAICode
	if err.OpenAICode != "" {
		code = err.OpenAICode
	}
	b := append(make([]byte, 0, 128+len(err.Message)), `{"error":{"message":`...)
	b = api.AppendJSONString(b, err.Message)
	b = append(b, `,"type":`...)
	b = api.AppendJSONString(b, in.OpenAIType)
	b = append(b, `,"param":`...)
	b = stringOrNull(b, err.Param)
	b = append(b, `,"code":`...)
	b = api.AppendJSONString(b, code)
	b = extras(b, err)
	return append(b, "}}"...)
}

// extras appends the keys that some errors have in addition to code and message.
func extras(b []byte, err *errs.Error) []byte {
	if f := err.Load; f != nil {
		b = append(b, `,"error_class":`...)
		b = api.AppendJSONString(b, f.Class)
		b = append(b, `,"attempts":`...)
		b = strconv.AppendInt(b, int64(f.Attempts), 10)
		b = append(b, `,"permanent":`...)
		b = strconv.AppendBool(b, f.Permanent)
	}
	if p := err.Profile; p != nil {
		b = append(b, `,"requested_profile":`...)
		b = api.AppendJSONString(b, p.Requested)
		b = append(b, `,"worker_identity":`...)
		if p.Worker == nil {
			b = append(b, "null"...)
		} else {
			b = api.AppendJSONString(b, *p.Worker)
		}
	}
	return b
}

func stringOrNull(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return api.AppendJSONString(b, s)
}
