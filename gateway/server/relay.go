package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/internal/tenant"
)

// What changes the configuration, its epoch and its export are sie-config's. A gateway passes such
// requests on with the caller's own token: it holds none that could write. Where sie-config has
// tokens, it alone decides; where it has none and the gateway has keys, the caller's role does.

const (
	maxRelayed  = 1 << 20          // bytes of a request's body, as sie-config takes
	maxRelay    = 64 << 20         // bytes of an answer
	firstRelay  = 64 << 10         // bytes of an answer that are not counted, as of any small answer
	relayTime   = 35 * time.Second // longer than a commit may take there
	gatewayAuth = "X-SIE-Gateway-Auth"
)

// newControl returns the client of sie-config. It follows no redirect: that could take a token
// elsewhere.
func newControl() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2, IdleConnTimeout: relayTime},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// relayed returns the routes that are sie-config's, none without one. It decides about their
// tokens.
func (s *Server) relayed() []httpd.Route {
	if s.opt.ConfigURL == "" {
		return nil
	}
	var out []httpd.Route
	for _, x := range []struct{ method, path string }{
		{"POST", "/v1/configs/models"}, {"PUT", "/v1/configs/models/"}, {"DELETE", "/v1/configs/models/"},
		{"GET", "/v1/configs/export"}, {"GET", "/v1/configs/epoch"},
	} {
		out = append(out, httpd.Route{Method: x.method, Path: x.path, Open: true, MaxBody: maxRelayed,
			Serve: func(r *httpd.Request, rest string) { s.relay(r, x.path+rest) }})
	}
	return out
}

// relay answers with what sie-config answers at a path, which is as the client wrote it: ".." and
// "//" in the id of a model are for sie-config to refuse.
func (s *Server) relay(r *httpd.Request, path string) {
	err := r.Do("", func(w *admit.Work, body []byte) {
		status, kind, answer, err := s.ask(w, r, path, body)
		if full, ok := errors.AsType[*errs.Error](err); ok && full.Code == errs.QueueFull {
			r.Fail(dialect.RouteNative, full)
			return
		}
		if err != nil {
			s.opt.Log.Warn("sie-config could not be asked", "error", err, "path", string(r.Path()))
			detail(r, 503, "config_service_unavailable",
				"sie-config could not be asked; whether a change was made is unknown: send it again.")
			return
		}
		if write := string(r.Method()) != http.MethodGet; write && status < 300 {
			answer = s.counted(answer)
			if s.opt.Changed != nil {
				s.opt.Changed()
			}
		}
		r.Pass(status, kind, answer)
	})
	if e := errs.As(err); err != nil && e.Status == 413 {
		detail(r, 413, "payload_too_large", fmt.Sprintf("Config body exceeds %d bytes limit.", maxRelayed))
	} else if err != nil {
		r.Fail(dialect.RouteNative, e)
	}
}

// ask sends a request to sie-config and returns its answer, whose bytes w holds. The error holds no
// credential.
func (s *Server) ask(
	w *admit.Work, r *httpd.Request, path string, body []byte,
) (status int, kind string, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(w.Context(), relayTime)
	defer cancel()
	to := s.opt.ConfigURL + (&url.URL{Path: path}).EscapedPath()
	if query := r.URI().QueryString(); len(query) > 0 {
		to += "?" + string(query)
	}
	q, err := http.NewRequestWithContext(ctx, string(r.Method()), to, bytes.NewReader(body))
	if err != nil {
		return 0, "", nil, err
	}
	for _, name := range []string{"Authorization", "Content-Type", "Idempotency-Key"} {
		if v := r.Header(name); v != "" {
			q.Header.Set(name, v)
		}
	}
	q.Header.Set("X-Request-ID", r.ID)
	if s.opt.Keys != nil {
		q.Header.Set(gatewayAuth, rights(r.Identify()))
	}
	resp, err := s.control.Do(q)
	if err != nil {
		return 0, "", nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err = readAnswer(w, resp.Body)
	return resp.StatusCode, resp.Header.Get("Content-Type"), answer, err
}

// readAnswer reads an answer of at most maxRelay bytes. Its buffer is counted in w before it grows.
func readAnswer(w *admit.Work, from io.Reader) ([]byte, error) {
	answer := make([]byte, 0, firstRelay)
	for {
		if had := cap(answer); len(answer) == had {
			if had >= maxRelay {
				return nil, fmt.Errorf("sie-config answers with %d bytes or more", maxRelay)
			}
			if err := w.Reserve(2 * int64(had)); err != nil {
				return nil, err
			}
			grown := make([]byte, len(answer), 2*had)
			copy(grown, answer)
			answer = grown
			if had > firstRelay {
				w.Give(int64(had))
			}
		}
		n, err := from.Read(answer[len(answer):cap(answer)])
		answer = answer[:len(answer)+n]
		if errors.Is(err, io.EOF) {
			return answer, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// rights returns what a caller of a gateway with keys may do at a sie-config without tokens. nil is
// a caller without one of the keys.
func rights(t *tenant.Tenant) string {
	switch {
	case t == nil:
		return "none"
	case t.Has(tenant.Admin):
		return "admin"
	case t.Has(tenant.Inference):
		return "read"
	}
	return "none"
}

// counted returns the answer of a dry run with the number of workers that would load other models,
// and any other answer as it is.
func (s *Server) counted(answer []byte) []byte {
	var dry struct {
		Dry      bool     `json:"dry_run"`
		Affected []string `json:"affected_bundles"`
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(answer, &dry) != nil || !dry.Dry || json.Unmarshal(answer, &all) != nil {
		return answer
	}
	n := 0
	for _, w := range s.opt.Fleet().Workers {
		if w.Live && slices.Contains(dry.Affected, w.Lane.Bundle) {
			n++
		}
	}
	all["workers_to_reload"] = encode(n)
	return encode(all)
}

// detail answers with an error in the form of sie-config.
func detail(r *httpd.Request, status int, code, message string) {
	r.SetContentType(api.ContentTypeJSON)
	r.Answer(status, nil, encode(map[string]any{"detail": map[string]string{
		"error": code, "message": message}}))
}
