package server

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/service"
)

// secret is put wherever a client may put text.
const secret = "sekret"

// No log line at any level holds anything that a client sent, whatever is wrong with the request.
// The access log is on.
func TestNothingOfAClientIsLogged(t *testing.T) {
	r := start(t, func(o *Options, _ *service.Options) {
		o.Keys, o.AccessLog, o.MachineProfile, o.DefaultModels = guarded(t, secret+"key"), true, "l4",
			[]string{model}
		o.CORSOrigins = []string{"https://a.example"}
	})
	body := `{"items":[{"text":"sekret text","id":"sekretid"}]}`
	headers := func(extra string) string {
		var b strings.Builder
		b.WriteString("Host: sekret.example\r\nX-API-Key: sekretkey\r\nContent-Type: application/json\r\n")
		for _, name := range []string{
			"Accept", "Accept-Encoding", "Accept-Language", "Cookie", "Forwarded", "From", "If-None-Match",
			"Origin", "Referer", "Range", "Traceparent", "Tracestate", "Baggage", "User-Agent", "Via",
			"X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "X-SIE-SDK-Version", "X-SIE-Pool", "X-Other",
			"Proxy-Authorization", "Sec-WebSocket-Protocol", "X-CSRF-Token",
		} {
			fmt.Fprintf(&b, "%s: sekret-%s\r\n", name, name)
		}
		return b.String() + extra
	}
	full := func(line, extra, body string) string {
		return fmt.Sprintf("%s\r\n%sContent-Length: %d\r\n\r\n%s", line, headers(extra), len(body), body)
	}
	encode := "POST " + encodePath + " HTTP/1.1"
	sent := []string{
		full(encode, "", body),
		full(encode, "Authorization: Bearer sekretkey\r\n", body),
		full(encode, "Authorization: Basic sekretwrong\r\nX-API-Key: sekretwrong\r\n", body),
		full(encode, "X-SIE-MACHINE-PROFILE: sekret\r\n", body),
		full(encode, "X-SIE-Remote: sekret\r\n", body),
		full(encode, "Content-Encoding: sekret\r\n", body),
		full(encode, "Expect: sekret\r\n", body),
		full(encode, "Upgrade: sekret\r\nConnection: sekret\r\n", body),
		full(encode+"\r\nX: sekret\x01", "", body),
		full(encode+"\r\nsekret key: x", "", body),
		full(encode+"\r\nsekret", "", body),
		full(encode+"\r\nTransfer-Encoding: sekret", "", body),
		full(encode+"\r\nContent-Length: sekret", "", body),
		full(encode+"\r\nTrailer: Content-Length, sekret", "", body),
		full("POST /v1/encode/\x01sekret HTTP/1.1", "", body),
		full("sekret\x01 / HTTP/1.1", "", body),
		full("GET sekret:\x7f// HTTP/1.1", "", body),
		full("GET /healthz?q=sekret HTTP/1.1", "", ""),
		full("GET /healthz HTTP/sekret", "", ""),
		full("GET /ws/status HTTP/1.1",
			"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: sekret\r\nSec-WebSocket-Version: 13\r\n",
			""),
		full(encode, "", `{"items":[{"text":"sekret"}],"params":{"options":{"sekret":"sekret"}}}`),
		full(encode, "", `{"items":[{"text":"sekret"}],"params":{"output_dtype":"sekret"}}`),
		full(encode, "", `{"items":[{"text":"sekret"}],"params":{"output_types":["sekret"]}}`),
		full(encode, "", `{"items":[{"text":"sekret"}],"params":{"options":{"profile":"sekret"}}}`),
		full(encode, "", `{"items":[{"text":"sekret`),
		full(encode, "", `{"items":[{"text":"sekret"}],"sekret":sekret}`),
		full("POST /v1/embeddings HTTP/1.1", "",
			`{"model":"sekret","input":"sekret","encoding_format":"sekret"}`),
		full("POST /v1/rerank HTTP/1.1", "", `{"query":"sekret","documents":["sekret"]}`),
		full("POST /v1/extract/"+model+" HTTP/1.1", "",
			`{"items":[{"text":"sekret"}],"params":{"labels":["sekret"]}}`),
		full("POST /embed HTTP/1.1", "", `{"inputs":"sekret","prompt_name":"sekret"}`),
		full("POST /tokenize HTTP/1.1", "", `{"inputs":"sekret"}`),
		full("POST /decode HTTP/1.1", "", `{"ids":[[999999]]}`),
		strings.Replace(full(encode, "", body), "Content-Length:",
			"Transfer-Encoding: chunked\r\nX-Length:", 1),
		encode + "\r\n" + headers("Transfer-Encoding: chunked\r\n") + "\r\n6\r\nsekretxx0\r\n\r\n",
		encode + "\r\n" + headers("Transfer-Encoding: chunked\r\n") +
			"\r\n2\r\n{}\r\n0\r\nsekret\x01: sekret\r\n\r\n",
		encode + "\r\n" + headers("X-Long: "+strings.Repeat(secret, 10_000)),
		encode + "\r\n" + headers(""),
		"sekret sekret sekret\r\n\r\n",
		"\x16\x03\x01sekret",
	}
	for _, s := range sent {
		w := r.dial()
		w.send(s)
		_ = w.Conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, w)
		w.Close()
	}
	testrig.Until(t, "no connection is left", func() bool { return r.load().Conns == 0 })
	log := r.log.String()
	for line := range strings.Lines(log) {
		if strings.Contains(strings.ToLower(line), secret) {
			t.Errorf("what a client sent is in the log: %s", line)
		}
	}
	for _, want := range []string{"msg=request ", `msg="request refused"`, `msg="connection failed"`,
		"code=INVALID_INPUT", "field=options", "sdk=unknown"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log has no %s: the test proves nothing\n%s", want, log)
		}
	}
	if t.Failed() {
		t.Log(len(log))
	}
}
