package configd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/sie-engine/sie/configd/ledger"
	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
)

// maker makes the change of a request out of a content. It changes nothing itself.
type maker func(c *Content, body []byte, id string) (*change, *refusal)

// commitTime bounds the writing of a change; that the caller leaves does not end it.
const commitTime = 30 * time.Second

// turnTime bounds a request's wait for the changes before it.
const turnTime = 10 * time.Second

// maxCommits bounds how often a change is made anew because an earlier one has arrived.
const maxCommits = 3

// writing returns the handler of a route that changes the configuration.
func (s *Server) writing(make maker) func(*httpd.Request, string) {
	return func(r *httpd.Request, id string) {
		var w write
		defer func() {
			outcome := w.outcome(r.Response.StatusCode())
			s.metrics.writes.WithLabelValues(string(r.Method()), outcome).Inc()
		}()
		no := s.tokens.relayed(r.Header(gatewayAuth), false)
		if no == nil {
			no = s.tokens.writes(r.Header("Authorization"))
		}
		if no != nil {
			fail(r, no.status, no.detail)
			return
		}
		err := r.Do("", func(work *admit.Work, body []byte) {
			dry, no := dryRun(r)
			if no != nil {
				fail(r, no.status, no.detail)
				return
			}
			w = write{make: make, body: body, id: id, key: r.Header("Idempotency-Key"), dry: dry}
			w.request = ledger.Digest(string(r.Method()), string(r.Path()), string(body))
			status, out := s.apply(work.Context(), &w)
			if status >= 300 {
				fail(r, status, out)
				return
			}
			text, err := encode(out)
			if err != nil {
				r.Fail(dialect.RouteNative, errs.Internal(err))
				return
			}
			s.log.Info("audit", "event", "config."+string(r.Method()), "path", string(r.Path()),
				"status", status, "model", w.model, "epoch", w.epoch, "dry_run", w.dry,
				"caller", ledger.Digest(bearer(r.Header("Authorization")))[:12], "body_bytes", len(body))
			answer(r, status, "application/json", text)
		})
		if e := errs.As(err); err != nil && e.Status == 413 {
			fail(r, 413, object{"error": "payload_too_large",
				"message": fmt.Sprintf("Config body exceeds %d bytes limit.", maxBody)})
		} else if err != nil {
			r.Fail(dialect.RouteNative, e)
		}
	}
}

// dryRun reports whether a request only asks what would change. What says neither yes nor no is
// refused: its caller may not want a change.
func dryRun(r *httpd.Request) (bool, *refusal) {
	if !r.QueryArgs().Has("dry_run") {
		return false, nil
	}
	value := string(r.QueryArgs().Peek("dry_run"))
	dry, err := strconv.ParseBool(value)
	if err != nil {
		return false, &refusal{400, object{"error": "invalid_query",
			"message": fmt.Sprintf("dry_run is %.32q; use true or false. Nothing was changed.", value)}}
	}
	return dry, nil
}

// write is one request that writes.
type write struct {
	make    maker
	body    []byte
	id      string // of the path
	key     string // Idempotency-Key, "" for none
	request string // Digest of what is asked
	dry     bool

	model string // whose change it is
	epoch uint64 // after it

	changed, replayed, mismatch bool // what became of it
}

// apply makes a change and commits it, and returns the status and the body of the answer, or the
// detail of an error. Changes happen one after the other: a second request with the same
// Idempotency-Key finds the first one's answer, or is the first itself if that failed. One whose
// turn does not come within turnTime, or whose caller leaves before, changes nothing.
func (s *Server) apply(ctx context.Context, w *write) (int, any) {
	ctx, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
		defer s.pass()
	case <-ctx.Done():
		return 503, object{"error": "config_store_unavailable",
			"message": "Earlier changes still wait for the store. Nothing was changed: send it again."}
	}
	if s.content.Load() == nil {
		return 503, object{"error": "registry_unavailable", "message": "The models are not read yet."}
	}
	if s.notifier != nil && !s.notifier.Connected() {
		return 503, object{"error": "nats_unavailable",
			"message": "NATS is away: nobody could be told of the change. Nothing was changed."}
	}
	for range maxCommits {
		status, out, err := s.try(w)
		if !errors.Is(err, ledger.ErrAgain) {
			return status, out
		}
		if err := s.catchUp(); err != nil {
			return 503, object{"error": "registry_unavailable", "message": err.Error()}
		}
	}
	return 503, object{"error": "config_store_unavailable", "message": ledger.ErrAgain.Error()}
}

// catchUp makes the content that of the ledger. The caller has the turn.
func (s *Server) catchUp() error {
	c, err := s.install(nil, nil)
	if err == nil {
		s.complain(c)
	}
	return err
}

// try makes a change on top of what there is. The error is ledger.ErrAgain, or of no matter.
func (s *Server) try(w *write) (int, any, error) {
	content, state := s.content.Load(), s.ledger.State()
	key := ledger.Digest(w.key)
	if w.key != "" {
		if known := state.Find(key); known != nil {
			if w.mismatch = known.Request != w.request; w.mismatch {
				return 422, object{"error": "idempotency_mismatch",
					"message": "Idempotency-Key reused with different payload."}, nil
			}
			w.replayed = true
			return known.Status, known.Body, nil
		}
	}
	ch, no := w.make(content, w.body, w.id)
	if no != nil {
		return no.status, no.detail, nil
	}
	next := ch.state
	if next == nil {
		next = state
	}
	w.model, w.epoch = ch.id, next.Epoch
	out := s.answerOf(ch, next)
	if w.dry {
		out["dry_run"], out["epoch"] = true, state.Epoch
		out["affected_bundles"], out["changed"] = listed(ch.affected), ch.state != nil
		return 200, out, nil
	}
	if w.key != "" {
		text, err := json.Marshal(out)
		if err != nil {
			return 500, object{"error": "internal", "message": err.Error()}, nil
		}
		next = next.Answered(ledger.Answer{Key: key, Request: w.request, Status: ch.status, Body: text})
	}
	if next == state {
		return ch.status, out, nil
	}
	if status, detail, err := s.commit(next); err != nil {
		return status, detail, err
	}
	if ch.state == nil {
		_, err := s.install(content.answered(s.ledger.State()), content)
		return ch.status, out, err
	}
	w.changed = true
	ch.content.added = s.ledger.State() // which the next change is made of
	served, err := s.install(ch.content, content)
	if err != nil { // beside what is built in by now, it is more than gateways read
		s.log.Error("a stored change cannot be served", "model", ch.id, "error", err)
		return 413, object{"error": "payload_too_large", "message": err.Error()}, nil
	}
	if s.notifier != nil {
		told := deltas(ch, served)
		warnings := s.notifier.Notify(told)
		s.metrics.told(len(told), warnings)
		if len(warnings) > 0 {
			out["warnings"] = warnings
		}
	}
	return ch.status, out, nil
}

// answerOf returns the answer of a change that leads to a state.
func (s *Server) answerOf(ch *change, next *ledger.State) object {
	out := maps.Clone(ch.answer)
	out["epoch"] = next.Epoch
	if _, removal := out["deleted"]; !removal {
		out["warnings"], out["router_id"] = []string{}, s.producer()
	}
	return out
}

// producer names this process to those that hear of its changes.
func (s *Server) producer() string {
	if s.notifier == nil {
		return "standalone"
	}
	return s.notifier.Producer()
}

// commit stores a state. With an error it returns the status and the detail of the answer.
func (s *Server) commit(next *ledger.State) (int, any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commitTime)
	defer cancel()
	err := s.ledger.Commit(ctx, next)
	result := "success"
	if err != nil {
		result = "failure"
	}
	s.metrics.stored.WithLabelValues(storeOp, result).Inc()
	var taken *ledger.TakenError
	switch {
	case err == nil || errors.Is(err, ledger.ErrAgain):
		return 0, nil, err
	case errors.Is(err, ledger.ErrFull):
		return 413, object{"error": "payload_too_large", "message": err.Error()}, err
	case errors.As(err, &taken):
		select {
		case s.lost <- err:
		default:
		}
		return 503, object{"error": "config_store_taken", "message": err.Error()}, err
	}
	s.log.Error("a change was not stored", "error", err)
	return 503, object{"error": "config_store_unavailable", "message": err.Error()}, err
}

// Lost returns a channel with the error that ends this process's writing: another writes to its
// store.
func (s *Server) Lost() <-chan error { return s.lost }

// Refresh looks whether a change whose outcome was unknown has arrived, and serves it then. While a
// request writes there is no need to: its commit finds the same.
func (s *Server) Refresh(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		defer s.pass()
	default:
		return nil
	}
	changed, err := s.ledger.Refresh(ctx)
	if err != nil || !changed || s.content.Load() == nil {
		return err
	}
	return s.catchUp()
}

// Tidy removes what the store holds and needs no more, until ctx ends. It waits for no request.
func (s *Server) Tidy(ctx context.Context) { s.ledger.Tidy(ctx) }
