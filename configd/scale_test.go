package configd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/configd"
	"github.com/sie-engine/sie/configd/ledger"
	"github.com/sie-engine/sie/internal/configpoll"
	"github.com/sie-engine/sie/weights/bucket"
)

// whole returns every answer about a server's configuration, by path.
func whole(t *testing.T, ask asking) map[string]string {
	t.Helper()
	out := map[string]string{}
	paths := []string{"/v1/configs/epoch", modelsPath, "/v1/configs/bundles", "/v1/configs/export"}
	_, list := ask("GET", modelsPath, "", "")
	for _, x := range list["models"].([]any) {
		paths = append(paths, modelsPath+"/"+x.(map[string]any)["model_id"].(string))
	}
	for _, path := range paths {
		a, v := ask("GET", path, "", "")
		text := string(a.body)
		if v != nil {
			delete(v, "generated_at")
			b, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			text = string(b)
		}
		out[path] = fmt.Sprint(a.status, " ", text)
	}
	return out
}

// edits returns random changes: each is a method, a path and a body, and some are refused.
func edits(n int) (out [][3]string) {
	random := rand.New(rand.NewPCG(7, 7))
	ids := []string{"new/a", "new/b", "new/a-b", "org/plain", "org/pooled", "new/c"}
	for i := range n {
		id := ids[random.IntN(len(ids))]
		body := document(id, 1+random.IntN(3))
		if random.IntN(3) == 0 {
			body += fmt.Sprintf("  p%d: {extends: default, max_batch_tokens: %d}\n", random.IntN(3), i+1)
		}
		if random.IntN(3) == 0 {
			body = fmt.Sprintf("pool: Team-%d\n", random.IntN(2)) + body
		}
		switch random.IntN(4) {
		case 0:
			out = append(out, [3]string{"DELETE", modelsPath + "/" + id, ""})
		case 1:
			out = append(out, [3]string{"POST", modelsPath, body})
		default:
			out = append(out, [3]string{"PUT", modelsPath + "/" + id, body})
		}
	}
	return out
}

// After any changes, every answer is that of a server that reads all of them anew; and who follows
// the changes has what the export has.
func TestChangesLeadToTheWhole(t *testing.T) {
	path := t.TempDir()
	place := directory(t, path)
	s, ask := start(t, place, nil)
	_ = s
	follow := follower(t, ask)
	done := 0
	for i, e := range edits(150) {
		a, v := ask(e[0], e[1], "", e[2])
		if a.status < 300 && v["unchanged"] != true {
			done++
		}
		if i%10 != 9 {
			continue
		}
		follow()
		fresh := reread(t, path, place)
		got, want := whole(t, ask), whole(t, fresh)
		for _, path := range slices.Sorted(maps.Keys(want)) {
			if got[path] != want[path] {
				t.Fatalf("after %d changes: %s\n is %s\nwant %s", i+1, path, got[path], want[path])
			}
		}
		if len(got) != len(want) {
			t.Fatalf("after %d changes: %d answers, want %d", i+1, len(got), len(want))
		}
	}
	if done < 50 {
		t.Errorf("only %d changes were made", done)
	}
}

// reread starts a server on a copy of what a directory holds.
func reread(t *testing.T, path string, place ledger.Place) asking {
	t.Helper()
	memory := ledger.Memory()
	names, err := place.List(t.Context(), "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".json") {
			continue
		}
		data, _, err := place.Get(t.Context(), name, 1<<26)
		if err == nil {
			_, err = memory.Put(t.Context(), name, data, bucket.Condition{})
		}
		if err != nil {
			t.Fatal(path, err)
		}
	}
	_, ask := start(t, memory, nil)
	return ask
}

// follower returns a function that follows the changes and compares what it has with the export.
func follower(t *testing.T, ask asking) func() {
	asked := &relay{t: t, ask: ask}
	client, err := configpoll.NewClient("http://sie-config", "", asked.client())
	if err != nil {
		t.Fatal(err)
	}
	mirror := configpoll.NewMirror(client, func(text json.RawMessage) string { return string(text) })
	rounds := 0
	return func() {
		t.Helper()
		_, all, err := mirror.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		a, _ := ask("GET", "/v1/configs/export", "", "")
		var want struct {
			Models []json.RawMessage `json:"models"`
		}
		if err := json.Unmarshal(a.body, &want); err != nil {
			t.Fatal(err)
		}
		if len(all) != len(want.Models) {
			t.Fatalf("%d models, want %d", len(all), len(want.Models))
		}
		for i := range all {
			if all[i] != string(want.Models[i]) {
				t.Fatalf("model %d is %s\nwant %s", i, all[i], want.Models[i])
			}
		}
		if rounds++; asked.since != (rounds > 1) {
			t.Fatalf("round %d: answered with changes: %v", rounds, asked.since)
		}
	}
}

// A change waits for its store alone: what is built in is replaced meanwhile, and the change is
// made on top of that.
func TestReadingAgainWaitsForNoStore(t *testing.T) {
	place := &slow{Place: ledger.Memory(), entered: make(chan struct{}), leave: make(chan struct{})}
	s, ask := start(t, place, nil)
	if a, _ := ask("POST", modelsPath, "", document("new/first", 8)); a.status != 201 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	place.hold.Store(true)
	posted := make(chan *answered, 1)
	go func() {
		a, _ := ask("POST", modelsPath, "", document("new/a", 8))
		posted <- a
	}()
	<-place.entered
	m, _, err := catalog.ParseModel("built.yaml", []byte(document("built/in", 8)))
	if err != nil {
		t.Fatal(err)
	}
	base, err := catalog.Of(m)
	if err != nil {
		t.Fatal(err)
	}
	bundles, err := catalog.LoadBundlesDir("testdata/bundles")
	if err == nil {
		err = s.Set(base, bundles) // with the store held
	}
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]int{"built/in": 200, "new/first": 200, "new/a": 404, "org/plain": 404}
	for id, status := range there {
		if a, _ := ask("GET", modelsPath+"/"+id, "", ""); a.status != status {
			t.Errorf("while the store is held, %s: %d", id, a.status)
		}
	}
	place.hold.Store(false)
	close(place.leave)
	if a := <-posted; a.status != 201 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	there["new/a"] = 200
	for id, status := range there {
		if a, _ := ask("GET", modelsPath+"/"+id, "", ""); a.status != status {
			t.Errorf("after it, %s: %d", id, a.status)
		}
	}
	if a, v := ask("POST", modelsPath, "", document("new/b", 8)); a.status != 201 || v["epoch"] != 3.0 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Two ids that differ in case alone are one name to callers and to some file systems: the second is
// refused, with the first.
func TestIDsThatDifferInCase(t *testing.T) {
	_, ask := start(t, directory(t, t.TempDir()), nil)
	if a, _ := ask("POST", modelsPath, "", document("new/Model", 8)); a.status != 201 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for _, c := range []struct{ method, path, id, other string }{
		{"POST", "", "new/model", "new/Model"}, {"PUT", "/NEW/Model", "NEW/Model", "new/Model"},
		{"POST", "", "ORG/plain", "org/plain"}, {"POST", "?dry_run=true", "new/MODEL", "new/Model"},
	} {
		a, v := ask(c.method, modelsPath+c.path, "", document(c.id, 8))
		detail, _ := v["detail"].(map[string]any)
		message, _ := detail["message"].(string)
		if a.status != 409 || detail["error"] != "model_id_conflict" ||
			detail["existing_model_id"] != c.other || !strings.Contains(message, c.other) {
			t.Errorf("%s %s: %d %s", c.method, c.id, a.status, a.body)
		}
	}
	if a, _ := ask("PUT", modelsPath+"/new/Model", "", document("new/Model", 9)); a.status != 200 {
		t.Errorf("the model itself: %d %s", a.status, a.body)
	}
	if a, _ := ask("DELETE", modelsPath+"/new/Model", "", ""); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a, _ := ask("POST", modelsPath, "", document("new/model", 8)); a.status != 201 {
		t.Errorf("once it is gone: %d %s", a.status, a.body)
	}
}

// Two ids of earlier that differ in case alone stay, and either may be changed.
func TestEarlierIDsThatDifferInCaseStay(t *testing.T) {
	place := ledger.Memory()
	quiet := slog.New(slog.DiscardHandler)
	l, err := ledger.Open(context.Background(), place, ledger.NewWriter("before"), quiet)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"new/a", "new/A"} {
		state := l.State().Set(id, ledger.Entry{Document: document(id, 8)})
		if err := l.Commit(t.Context(), state); err != nil {
			t.Fatal(err)
		}
	}
	s, err := configd.New(configd.Options{Ledger: l})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Shutdown(context.Background()) }()
	load(t, s)
	_, ask := start(t, place, nil)
	if a, _ := ask("PUT", modelsPath+"/new/A", "", document("new/A", 9)); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}
