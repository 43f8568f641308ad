package dialect

import (
	"bytes"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
)

// rerankBody writes {"error":{…},"message":…,"detail":…}: SIE's and OpenAI's clients read error,
// Cohere's message, and Jina's detail.
func rerankBody(err *errs.Error) []byte {
	b := bytes.TrimSuffix(openAIBody(err), []byte("}"))
	b = api.AppendJSONString(append(b, `,"message":`...), err.Message)
	b = api.AppendJSONString(append(b, `,"detail":`...), err.Message)
	return append(b, '}')
}

// cohereBody writes Cohere's {"message":…}.
func cohereBody(err *errs.Error) []byte {
	return append(api.AppendJSONString([]byte(`{"message":`), err.Message), '}')
}

// The error types of text-embeddings-inference (ErrorType in its openapi.json), with the statuses
// that its router gives them.
const (
	teiUnhealthy  = "Unhealthy"  // 503
	teiBackend    = "Backend"    // 424
	teiOverloaded = "Overloaded" // 429
	teiValidation = "Validation" // 422
	teiEmpty      = "Empty"      // 400
)

// teiError writes {"error":…,"error_type":…} with the status that TEI's clients know. An error that
// TEI does not have keeps its own status and gets the nearest type.
func teiError(err *errs.Error) (status int, body []byte) {
	status = err.Status
	kind := teiValidation
	switch {
	case err.OpenAICode == errs.CodeEmpty:
		kind = teiEmpty
	case err.Code == errs.QueueFull || err.Code == errs.RateLimited:
		status, kind = 429, teiOverloaded
	case status == 400: // malformed, unsupported, too long
		status = 422
	case status == 503:
		kind = teiUnhealthy
	case status == 424 || status == 500 || status == 502: // the model failed, or is of another kind
		status, kind = 424, teiBackend
	case status > 500:
		kind = teiBackend
	}
	body = api.AppendJSONString([]byte(`{"error":`), err.Message)
	body = api.AppendJSONString(append(body, `,"error_type":`...), kind)
	return status, append(body, '}')
}
