package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// against runs the generator against a handler and returns its report.
func against(t *testing.T, c config, h http.HandlerFunc) report {
	t.Helper()
	s := httptest.NewServer(h)
	defer s.Close()
	c.url, c.model = s.URL, "m/x"
	if c.texts == nil {
		c.texts = []string{"one", "two"}
	}
	if c.duration == 0 {
		c.duration = 150 * time.Millisecond
	}
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	return c.run()
}

func TestClosedLoopCountsTextsAndPhases(t *testing.T) {
	r := against(t, config{dialect: "openai", clients: 3, perRequest: 2, verify: true},
		func(w http.ResponseWriter, q *http.Request) {
			var body struct {
				Model string   `json:"model"`
				Input []string `json:"input"`
			}
			if err := json.NewDecoder(q.Body).Decode(&body); err != nil || q.URL.Path != "/v1/embeddings" ||
				body.Model != "m/x" || len(body.Input) != 2 {
				t.Errorf("asked %s for %+v: %v", q.URL.Path, body, err)
			}
			w.Header().Set("X-Total-Time", "5.00")
			w.Header().Set("X-Tokenization-Time", "1.50")
			w.Header().Set("X-Inference-Time", "3.00")
			w.Header().Set("X-Preprocess-Time", "0.50")
			fmt.Fprint(w, `{"data":[1,2]}`)
		})
	if r.Mode != "closed" || r.Requests < 3 || r.Texts != 2*r.Requests || r.Failed+r.Refused+r.Wrong != 0 {
		t.Fatalf("%+v", r)
	}
	if r.OutsideP50MS == nil || *r.OutsideP50MS < 0.49 || *r.OutsideP50MS > 0.51 {
		t.Fatalf("outside: %v", r.OutsideP50MS)
	}
	if r.TokenizeShareP50 == nil || *r.TokenizeShareP50 != 0.75 {
		t.Fatalf("tokenising's share: %v", r.TokenizeShareP50)
	}
}

// Answers whose times before the batch are not known, or round to nothing, have no share.
func TestNoShareOfNothing(t *testing.T) {
	for _, known := range []bool{true, false} {
		r := against(t, config{dialect: "tei", clients: 1, perRequest: 1},
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Tokenization-Time", "0.00")
				if known {
					w.Header().Set("X-Preprocess-Time", "0.00")
				}
				fmt.Fprint(w, "[[1]]")
			})
		if r.Requests == 0 || r.TokenizeShareP50 != nil {
			t.Fatalf("%+v", r)
		}
	}
}

func TestAnswersThatChangeAreWrong(t *testing.T) {
	var n atomic.Int64
	r := against(t, config{dialect: "tei", clients: 1, perRequest: 1, verify: true},
		func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "[[%d]]", n.Add(1)/20) // each text gets the same answer at first, then another one
		})
	if r.Wrong == 0 || r.Wrong >= r.Requests || r.OutsideP50MS != nil {
		t.Fatalf("%+v", r)
	}
}

func TestSwappedAnswersAreWrong(t *testing.T) {
	var n atomic.Int64
	r := against(t, config{dialect: "tei", clients: 1, perRequest: 1, verify: true},
		func(w http.ResponseWriter, q *http.Request) {
			b, _ := io.ReadAll(q.Body)
			if n.Add(1) == 7 {
				b = []byte(strings.NewReplacer("one", "two", "two", "one").Replace(string(b)))
			}
			_, _ = w.Write(b)
		})
	if r.Wrong != 1 {
		t.Fatalf("one answer was swapped, %d found", r.Wrong)
	}
}

func TestRefusalsNeedARetryAfter(t *testing.T) {
	for after, missing := range map[string]bool{"1": false, "": true, "soon": true, "0": true} {
		r := against(t, config{dialect: "sie", clients: 2, perRequest: 1},
			func(w http.ResponseWriter, _ *http.Request) {
				if after != "" {
					w.Header().Set("Retry-After", after)
				}
				w.WriteHeader(http.StatusServiceUnavailable)
			})
		if r.Refused == 0 || r.Refused != r.Requests || (r.NoRetry == r.Refused) != missing || r.Texts != 0 {
			t.Fatalf("Retry-After %q: %+v", after, r)
		}
	}
}

func TestOpenLoopKeepsItsRateAndCountsFromDue(t *testing.T) {
	r := against(t,
		config{dialect: "tei", clients: 1000, perRequest: 1, rate: 100, duration: 300 * time.Millisecond},
		func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(100 * time.Millisecond)
			fmt.Fprint(w, "[[1]]")
		})
	if r.Mode != "open" || r.Requests < 29 || r.Requests > 31 || r.P50MS < 100 || r.Late != 0 {
		t.Fatalf("%+v", r)
	}
	// With one request in flight, the requests that wait for it are late, and their waiting is part
	// of their latency.
	r = against(t,
		config{dialect: "tei", clients: 1, perRequest: 1, rate: 100, duration: 300 * time.Millisecond},
		func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(20 * time.Millisecond)
			fmt.Fprint(w, "[[1]]")
		})
	if r.Late == 0 || r.MaxMS < 100 {
		t.Fatalf("%+v", r)
	}
}

func TestAnswersWithoutVectorsFail(t *testing.T) {
	r := against(t, config{dialect: "sie", clients: 1, perRequest: 1, verify: true},
		func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "nothing")
		})
	if r.Failed != r.Requests || r.Texts != 0 {
		t.Fatalf("%+v", r)
	}
}

func TestCheckRefusesWhatCannotRun(t *testing.T) {
	good := config{dialect: "sie", clients: 1, perRequest: 1, duration: time.Second, texts: []string{"a"}}
	for name, spoil := range map[string]func(*config){
		"texts": func(c *config) { c.texts = nil }, "clients": func(c *config) { c.clients = 0 },
		"per-request": func(c *config) {
			c.perRequest = 2
		}, "duration": func(c *config) { c.duration = time.Hour },
		"dialect": func(c *config) { c.dialect = "grpc" },
	} {
		c := good
		if spoil(&c); c.check() == nil {
			t.Errorf("bad %s passed", name)
		}
	}
	if err := good.check(); err != nil {
		t.Error(err)
	}
}
