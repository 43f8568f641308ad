package histories

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// outcome says what a client knows of its call.
type outcome int

const (
	told    outcome = iota // it has an answer
	unknown                // it may have happened, may happen later, or never
	never                  // it did not happen, and will not
)

// client asks gateways. It belongs to one goroutine.
type client struct {
	*run
	id   int
	r    *rand.Rand
	http http.Client
}

// askTime is a client's patience with one request.
const askTime = time.Second

func (r *run) client(id int) *client {
	return &client{run: r, id: id, r: rand.New(rand.NewPCG(r.seed, uint64(id))), http: http.Client{
		Timeout: askTime, Transport: &http.Transport{DisableKeepAlives: true}}}
}

// ask sends a request to a gateway and returns the status and the body of its answer, 0 for none.
func (c *client) ask(gateway int, method, path, key, body string) (int, []byte, outcome) {
	at := c.world.url(gateway)
	if at == "" {
		return 0, nil, never
	}
	q, err := http.NewRequest(method, at+path, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	q.Header.Set("Content-Type", "application/json")
	if key != "" {
		q.Header.Set("Idempotency-Key", key)
	}
	resp, err := c.http.Do(q)
	if err != nil {
		var away *net.OpError
		if errors.As(err, &away) && away.Op == "dial" {
			return 0, nil, never
		}
		return 0, nil, unknown
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return 0, nil, unknown
	case resp.StatusCode == 503 && strings.Contains(string(answer), "nats_unavailable"):
		return 0, nil, never // it says that nothing was changed
	case resp.StatusCode >= 500:
		return 0, nil, unknown
	}
	return resp.StatusCode, answer, told
}

// history is what clients saw. It is safe for concurrent use.
type history struct {
	began time.Time
	mu    sync.Mutex
	all   []porcupine.Operation
}

func (h *history) now() int64 { return int64(time.Since(h.began)) }

// forever is when an operation returns that may still happen.
const forever = int64(1000 * time.Hour)

// add notes an operation that began at from and has ended now, or never does.
func (h *history) add(client int, from int64, input, output any, o outcome) {
	if o == never {
		return
	}
	until := h.now()
	if o == unknown {
		until = forever
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, porcupine.Operation{ClientId: client, Input: input, Output: output, Call: from,
		Return: until})
}

// count returns how many operations have an answer, and how many have none.
func (h *history) count() (answered, open int) {
	for _, o := range h.all {
		if o.Return == forever {
			open++
		} else {
			answered++
		}
	}
	return answered, open
}
