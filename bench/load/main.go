// Command load sends texts to an embeddings server and measures it from outside. In a closed loop,
// each of N clients sends its next request when the last is answered. In an open loop, requests
// leave at a fixed rate, up to a bound on requests in flight, so that a slow server cannot slow
// down its own measurement. Load speaks the SIE, OpenAI and TEI dialects. With -verify it compares
// every answer with the first answer to the same texts. It reports its own CPU time, which must be
// subtracted on a shared machine.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"
)

// report is the result, printed as one JSON line.
type report struct {
	Mode       string         `json:"mode"`
	Seconds    float64        `json:"seconds"`
	Requests   int            `json:"requests"`
	Texts      int            `json:"texts"` // in successful answers
	Refused    int            `json:"refused"`
	Failed     int            `json:"failed"`
	Statuses   map[int]int    `json:"statuses"`
	Errors     map[string]int `json:"errors,omitempty"`
	P50MS      float64        `json:"p50_ms"`
	P99MS      float64        `json:"p99_ms"`
	MaxMS      float64        `json:"max_ms"`
	CPUSeconds float64        `json:"generator_cpu_seconds"`
	// open loop: requests delayed by the bound on requests in flight
	Late int `json:"held_back"`
	// OutsideP50MS is the median of total time minus tokenising and inference, from the server's
	// own timing headers.
	OutsideP50MS *float64 `json:"outside_p50_ms,omitempty"`
	// TokenizeShareP50 is the median share of tokenising in what a request needs before its batch:
	// preprocess_ms, which ends where tokenising begins, and tokenising itself. Requests of which
	// neither took 5 µs, half of the headers' last digit, do not count.
	TokenizeShareP50 *float64 `json:"tokenize_share_p50,omitempty"`
	// answers that differ from the first answer to the same texts
	Wrong   int `json:"wrong"`
	NoRetry int `json:"no_retry_after"` // refusals without a usable Retry-After
}

func main() {
	var c config
	flag.StringVar(&c.url, "url", "http://127.0.0.1:8080", "server")
	flag.StringVar(&c.dialect, "dialect", "sie", "sie, openai or tei")
	flag.StringVar(&c.model, "model", "sentence-transformers/all-MiniLM-L6-v2", "model id")
	flag.IntVar(&c.clients, "clients", 64,
		"connections (closed loop), or the bound on requests in flight (open loop)")
	flag.Float64Var(&c.rate, "rate", 0, "requests a second; 0: closed loop")
	flag.IntVar(&c.perRequest, "per-request", 1, "texts in a request")
	flag.DurationVar(&c.duration, "duration", 10*time.Second, "how long")
	flag.BoolVar(&c.verify, "verify", false, "compare every answer with the first to the same text")
	texts := flag.String("texts", "", "JSON file with a list of texts (required)")
	flag.Parse()
	b, err := os.ReadFile(*texts)
	if err == nil {
		err = json.Unmarshal(b, &c.texts)
	}
	if err == nil {
		err = c.check()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(2)
	}
	out := json.NewEncoder(os.Stdout)
	r := c.run()
	if err := out.Encode(r); err != nil {
		os.Exit(1)
	}
}
