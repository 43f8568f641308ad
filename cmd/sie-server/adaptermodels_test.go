package main

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/service/servicetest"
	"github.com/sie-engine/sie/weights/hub"
	"github.com/sie-engine/sie/weights/hub/hubtest"
)

// onDisk writes a repository into a directory and returns it.
func onDisk(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		at := filepath.Join(dir, filepath.FromSlash(name))
		err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, content, 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// adapterRepo returns the repository of an adapter over acme/base, and what change makes of its
// configuration.
func adapterRepo(t *testing.T, change ...string) map[string][]byte {
	t.Helper()
	files := published(t, "lora-bert/adapters/rank4")
	config := string(files["adapter_config.json"])
	at := strings.Index(config, `"base_model_name_or_path": `)
	if at < 0 {
		t.Fatalf("no base in %s", config)
	}
	end := at + strings.IndexByte(config[at:], ',')
	config = config[:at] + `"base_model_name_or_path": "acme/base"` + config[end:]
	for i := 0; i < len(change); i += 2 {
		if !strings.Contains(config, change[i]) {
			t.Fatalf("no %s in %s", change[i], config)
		}
		config = strings.ReplaceAll(config, change[i], change[i+1])
	}
	files["adapter_config.json"] = []byte(config)
	return files
}

// vectorOf returns the vector of a text, once the model's adapter is there.
func vectorOf(t *testing.T, w *servicetest.Worker, model string, options map[string]any) []byte {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		res, err := w.Encode(t.Context(),
			&servicetest.Request{Model: model, Texts: []string{"the cat"}, Options: options})
		if err == nil {
			return res.Rows[0]
		}
		if e := errs.As(err); e == nil || e.Code != errs.LoRALoading || time.Now().After(end) {
			t.Fatal(model, err)
		}
	}
}

// A repository that holds an adapter is served as its base with the adapter, by id and as a
// directory: its vectors are those of the base with the adapter named in the request.
func TestAdapterRepositoriesAsModels(t *testing.T) {
	server := hubtest.New(t)
	t.Setenv("HF_HUB_OFFLINE", "0")
	server.Add("acme/base", published(t, "lora-bert"))
	server.Add("acme/tuned", adapterRepo(t))
	pooled := adapterRepo(t)
	pooled["modules.json"] = []byte(`[{"idx":0,"path":"","type":"sentence_transformers.models.Transformer"},
		{"idx":1,"path":"1_Pooling","type":"sentence_transformers.models.Pooling"}]`)
	pooled["1_Pooling/config.json"] = []byte(
		`{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}`)
	server.Add("acme/pooled", pooled)
	prompted := maps.Clone(pooled)
	prompted["config_sentence_transformers.json"] = []byte(`{"prompts": {"document": "the mat "}}`)
	server.Add("acme/prompted", prompted)
	short := maps.Clone(pooled)
	short["sentence_bert_config.json"] = []byte(`{"max_seq_length": 3}`)
	server.Add("acme/short", short)
	spoken := published(t, "lora-bert")
	spoken["config_sentence_transformers.json"] = prompted["config_sentence_transformers.json"]
	server.Add("acme/spoken", spoken)
	silent := maps.Clone(pooled)
	silent["adapter_config.json"] = adapterRepo(t, `"acme/base"`, `"acme/spoken"`)["adapter_config.json"]
	server.Add("acme/silent", silent)
	dir := onDisk(t, adapterRepo(t, `"acme/base"`, `"`+onDisk(t, published(t, "lora-bert"))+`"`))
	w, _ := hubWorker(t, server, "acme/base", "acme/tuned", "acme/pooled", "acme/prompted", "acme/short",
		"acme/silent", dir)
	base := vectorOf(t, w, "acme/base", nil)
	want := vectorOf(t, w, "acme/base", map[string]any{"lora_id": "acme/tuned"})
	if slices.Equal(base, want) {
		t.Fatal("the adapter changes nothing")
	}
	for _, id := range []string{"acme/tuned", refID(dir)} {
		if got := vectorOf(t, w, id, nil); !slices.Equal(got, want) {
			t.Errorf("%s is not the base with its adapter", id)
		}
	}
	// what the adapter's own chain says: its pooling, no normalisation, for there is no Normalize,
	// its prompts, or none in place of the base's, and its length
	for id, more := range map[string]map[string]any{
		"acme/pooled":   nil,
		"acme/silent":   nil,
		"acme/prompted": {"doc_template": "the mat {text}"},
		"acme/short":    {"max_seq_length": 3},
	} {
		options := map[string]any{"lora_id": "acme/tuned", "pooling": "cls", "normalize": false}
		maps.Copy(options, more)
		if got := vectorOf(t, w, id, nil); !slices.Equal(got, vectorOf(t, w, "acme/base", options)) {
			t.Errorf("%s: the chain beside the adapter does not count", id)
		}
	}
}

func TestBadAdapterRepositories(t *testing.T) {
	server := hubtest.New(t)
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Setenv("HF_HUB_OFFLINE", "0")
	chain := adapterRepo(t)
	chain["modules.json"] = []byte(`[{"path":"","type":"sentence_transformers.models.Transformer"},
		{"path":"1_Pooling","type":"sentence_transformers.models.Pooling"},
		{"path":"2_Dense","type":"sentence_transformers.models.Dense"}]`)
	code := adapterRepo(t)
	code["modules.json"] = []byte(`[{"path":"","type":"custom_st.Transformer"},
		{"path":"1_Pooling","type":"sentence_transformers.models.Pooling"}]`)
	code["1_Pooling/config.json"] = []byte(`{"pooling_mode_mean_tokens": true}`)
	for id, c := range map[string]struct {
		files map[string][]byte
		says  string
	}{
		"acme/none": {adapterRepo(t),
			`the base of the adapter acme/none: model "acme/base": does not exist on`},
		"acme/nameless": {adapterRepo(t, `"acme/base"`, `null`),
			"adapter_config.json: base_model_name_or_path: is missing"},
		"acme/path": {adapterRepo(t, `"acme/base"`, `"/home/me/base"`),
			`base_model_name_or_path: "/home/me/base" is no repository of the hub`},
		"acme/code":  {code, "modules.json: type: the model runs code of its own (custom_st.py: Transformer)"},
		"acme/dense": {chain, `modules.json: type: "sentence_transformers.models.Dense" beside an adapter`},
	} {
		server.Add(id, c.files)
		src := &sourceFlags{Models: []string{id}, LocalCache: t.TempDir(), HFFallback: true}
		if _, err := src.catalog(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %q", id, err, c.says)
		}
	}
}

// An adapter whose base is an adapter is refused, by id and as a directory, also where the two name
// each other or an adapter names itself.
func TestAdaptersOfAdapters(t *testing.T) {
	server := hubtest.New(t)
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Setenv("HF_HUB_OFFLINE", "0")
	server.Add("acme/a", adapterRepo(t, `"acme/base"`, `"acme/b"`))
	server.Add("acme/b", adapterRepo(t, `"acme/base"`, `"acme/a"`))
	server.Add("acme/self", adapterRepo(t, `"acme/base"`, `"acme/self"`))
	first := onDisk(t, adapterRepo(t))
	second := onDisk(t, adapterRepo(t, `"acme/base"`, `"`+first+`"`))
	for _, id := range []string{"acme/a", "acme/b", "acme/self", second} {
		src := &sourceFlags{Models: []string{id}, LocalCache: t.TempDir(), HFFallback: true}
		_, err := src.catalog()
		if err == nil || !strings.Contains(err.Error(), "the base of the adapter "+id) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// Of an adapter's repository that a request's lora_id brought, nobody knows without the hub what it
// is for: an error that names the files, and the command that fetches them. It is no model of dense
// vectors.
func TestAdapterRepositoriesKnownInPart(t *testing.T) {
	server := hubtest.New(t)
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Setenv("HF_HUB_OFFLINE", "0")
	tuned := adapterRepo(t)
	tuned["modules.json"] = []byte("[]")
	server.Add("acme/tuned", tuned)
	cache := t.TempDir()
	online, err := hub.New(hub.Options{CacheDir: cache, Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer online.Close()
	found, err := online.ResolveAdapter(t.Context(), hub.Adapter{ID: "acme/tuned", MaxBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	found.Release()
	src := &sourceFlags{Models: []string{"acme/tuned"}, LocalCache: cache}
	_, err = src.catalog()
	if err == nil || !strings.Contains(err.Error(), "modules.json") ||
		!strings.Contains(err.Error(), "`sie-server pull acme/tuned`") {
		t.Errorf("the repository was taken for something: %v", err)
	}
}

// An adapter's repository that was served once is served without the hub, as it was: by its own
// chain. Base and adapter are one download, and the adapter is held in the cache with its base.
func TestAdapterRepositoriesWithoutTheHub(t *testing.T) {
	server := hubtest.New(t)
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Setenv("HF_HUB_OFFLINE", "0")
	server.Add("acme/base", published(t, "lora-bert"))
	tuned := adapterRepo(t)
	tuned["modules.json"] = []byte(`[{"idx":0,"path":"","type":"sentence_transformers.models.Transformer"},
		{"idx":1,"path":"1_Pooling","type":"sentence_transformers.models.Pooling"}]`)
	tuned["1_Pooling/config.json"] = []byte(
		`{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}`)
	tuned["config_sentence_transformers.json"] = []byte(`{"prompts": {"document": "the mat "}}`)
	server.Add("acme/tuned", tuned)
	cache := t.TempDir()
	var vectors [2][]byte
	for round := range 2 {
		src := &sourceFlags{Models: []string{"acme/tuned"}, LocalCache: cache, HFFallback: round == 0}
		cat, err := src.catalog()
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var seen []hub.Progress
		service := openReporting(t, src, cat, func(p hub.Progress) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, p)
		})
		vectors[round] = vectorOf(t, servicetest.Of(service), "acme/tuned", nil)
		service.Close()
		for _, p := range seen {
			if p.Model != "acme/tuned" {
				t.Errorf("a download of its own: %+v", p)
			}
		}
		if asked := server.Requests(); round == 1 && (len(asked) > 0 || len(seen) > 0) {
			t.Errorf("the second server asked for %v", asked)
		} else if round == 0 && (len(seen) == 0 || seen[len(seen)-1].Stage != hub.StageDone) {
			t.Errorf("the first server reported %v", seen)
		}
	}
	if !slices.Equal(vectors[0], vectors[1]) {
		t.Error("without the hub another vector")
	}
	parts, _ := filepath.Glob(filepath.Join(cache, "models--acme--base", ".sie", "parts", "*"))
	if len(parts) != 1 || filepath.Base(parts[0]) != "models--acme--tuned" {
		t.Errorf("the base's parts are %v", parts)
	}
}
