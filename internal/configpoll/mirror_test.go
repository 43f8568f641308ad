package configpoll

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// exporting is a sie-config that answers with texts, one after the other, and keeps what it is
// asked.
type exporting struct {
	answers []string
	asked   []string
}

func (e *exporting) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	e.asked = append(e.asked, q.URL.Query().Get("since"))
	text := e.answers[0]
	e.answers = e.answers[1:]
	if text == "" {
		w.WriteHeader(http.StatusInternalServerError)
	}
	_, _ = w.Write([]byte(text))
}

func model(id string, n int) string { return fmt.Sprintf(`{"model_id":%q,"n":%d}`, id, n) }

// digestOf returns the digest of models as sie-config computes it.
func digestOf(models ...string) string {
	h := sha256.New()
	for _, m := range models {
		sum := sha256.Sum256([]byte(m))
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

func all(cursor string, models ...string) string {
	return fmt.Sprintf(`{"snapshot_version":1,"cursor":%q,"digest":%q,"models":[%s]}`, cursor,
		digestOf(models...), strings.Join(models, ","))
}

func changes(since, cursor, digest, removed string, models ...string) string {
	return fmt.Sprintf(`{"snapshot_version":1,"since":%q,"cursor":%q,"digest":%q,"removed":[%s],"models":[%s]}`,
		since, cursor, digest, removed, strings.Join(models, ","))
}

// A Mirror takes changes that lead to what sie-config has, and asks for all models otherwise; what
// is wrong leaves it as it was.
func TestMirror(t *testing.T) {
	a1, a2, b1, c1 := model("a", 1), model("a", 2), model("b", 1), model("c", 1)
	for _, c := range []struct {
		what    string
		answers []string // after all("1", a1, b1)
		asked   string   // with commas between
		want    []string // nil: an error
		next    string   // is asked for after it
	}{
		{"nothing", []string{changes("1", "1", digestOf(a1, b1), "")}, "1", []string{a1, b1}, "1"},
		{"a change, a removal, a new one", []string{changes("1", "4", digestOf(a2, c1), `"b"`, a2, c1)}, "1",
			[]string{a2, c1}, "4"},
		{"all", []string{all("9", c1)}, "1", []string{c1}, "9"},
		{"without cursors", []string{`{"snapshot_version":1,"models":[` + c1 + `]}`}, "1", []string{c1}, ""},
		{"a change that is missing",
			[]string{changes("1", "4", digestOf(a2, b1, c1), "", a2), all("4", a2, b1, c1)}, "1,",
			[]string{a2, b1, c1}, "4"},
		{"since another", []string{changes("0", "4", digestOf(a2, b1), "", a2), all("4", a2, b1)}, "1,",
			[]string{a2, b1}, "4"},
		{"never all", []string{changes("1", "4", "x", ""), changes("1", "4", "x", "")}, "1,", nil, "1"},
		{"a false digest of all", []string{strings.Replace(all("9", c1), digestOf(c1), "x", 1)}, "1",
			[]string{c1}, ""},
		{"an error", []string{""}, "1", nil, "1"}, {"no JSON", []string{"{"}, "1", nil, "1"},
		{"another version", []string{`{"snapshot_version":2,"models":[]}`}, "1", nil, "1"},
		{"no model", []string{`{"snapshot_version":1,"models":[1]}`}, "1", nil, "1"},
	} {
		e := &exporting{answers: append([]string{all("1", a1, b1)}, c.answers...)}
		s := httptest.NewServer(e)
		client, err := NewClient(s.URL, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		m := NewMirror(client, func(text json.RawMessage) string { return string(text) })
		if _, got, err := m.Read(t.Context()); err != nil || !slices.Equal(got, []string{a1, b1}) {
			t.Fatalf("%q %v", got, err)
		}
		_, got, err := m.Read(t.Context())
		if (err == nil) != (c.want != nil) || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q %v, want %q", c.what, got, err, c.want)
		}
		if asked := strings.Join(e.asked[1:], ","); asked != c.asked {
			t.Errorf("%s: asked since %q, want %q", c.what, asked, c.asked)
		}
		if m.cursor != c.next {
			t.Errorf("%s: would ask since %q, want %q", c.what, m.cursor, c.next)
		}
		if kept := m.values(); err != nil && !slices.Equal(kept, []string{a1, b1}) {
			t.Errorf("%s: it keeps %q", c.what, kept)
		}
		s.Close()
	}
}
