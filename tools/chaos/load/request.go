package load

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// The operations of a Request.
const (
	Encode     = "encode"
	Score      = "score"
	Extract    = "extract"
	Embeddings = "embeddings"
)

// Models names the models that requests are for. An empty Score or Extract leaves it out.
type Models struct {
	Encode         []string
	Score, Extract string
}

// Request is one request. Its texts are its own: no other request of this program has one of them,
// so an answer that belongs to another request is seen to be wrong.
type Request struct {
	ID     string   `json:"id"`
	Op     string   `json:"op"`
	Model  string   `json:"model"`
	Texts  []string `json:"texts"`
	Query  string   `json:"query,omitempty"`
	Labels []string `json:"labels,omitempty"`
}

// ItemID returns the id that item i is sent with.
func (r *Request) ItemID(i int) string { return fmt.Sprintf("%s.%d", r.ID, i) }

var words = strings.Fields(`the cat sat on a mat while rain fell over hills and the river rose past old stones
	near the mill where nine lamps burned until morning came and the baker opened his narrow door again`)

// sizes draws a number of items: half of the requests have one, one in fifty has 200.
func sizes(rng *rand.Rand, most int) int {
	n := 1
	switch k := rng.IntN(100); {
	case k < 50:
	case k < 75:
		n = 2 + rng.IntN(7)
	case k < 90:
		n = 9 + rng.IntN(32)
	case k < 98:
		n = 41 + rng.IntN(60)
	default:
		n = 200
	}
	return min(n, most)
}

// One in slowOne of the encode requests begins with a text whose batch takes the null device a
// moment, so that there is always work in the servers when a fault comes.
const (
	slowOne  = 6
	slowText = "!sleep=200ms "
)

// newRequest draws a request from rng: a fifth of them each is for score, extract and embeddings,
// the rest for encode. most bounds its items.
func newRequest(rng *rand.Rand, id string, m Models, most int) *Request {
	r := &Request{ID: id, Op: Encode, Model: m.Encode[rng.IntN(len(m.Encode))]}
	switch k := rng.IntN(20); {
	case k < 4 && m.Score != "":
		r.Op, r.Model, r.Query = Score, m.Score, "query "+id
	case k < 8 && m.Extract != "":
		r.Op, r.Model, r.Labels = Extract, m.Extract, []string{"person", "place", "time"}
		most = min(most, 40)
	case k < 12:
		r.Op = Embeddings
	}
	n := sizes(rng, most)
	if r.Op == Score {
		n = max(n, 2)
	}
	slow := r.Op == Encode && rng.IntN(slowOne) == 0
	var b strings.Builder
	for i := range n {
		b.Reset()
		if slow && i == 0 {
			b.WriteString(slowText)
		}
		fmt.Fprintf(&b, "%s %d", id, i)
		for range 3 + rng.IntN(40) {
			b.WriteByte(' ')
			b.WriteString(words[rng.IntN(len(words))])
		}
		r.Texts = append(r.Texts, b.String())
	}
	return r
}
