package ipc

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/confighash"
	"github.com/sie-engine/sie/internal/errs"
	wire "github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/work"
)

// document returns a model file.
func document(id, profiles string) string {
	return "sie_id: " + id + "\nhf_id: org/weights\ntasks: {encode: {dense: {dim: 64}}}\nprofiles:\n" + profiles
}

const (
	plain = "  default: {adapter_path: 'sie_server.adapters.bert_flash:BertFlashAdapter', max_batch_tokens: 4096}\n"
	fast  = "  fast: {extends: default, max_batch_tokens: 1024}\n"
)

// A configuration that a sidecar sends is served at once, and stays when the files are read again.
func TestApplyModelConfig(t *testing.T) {
	r := start(t, nil)
	c := r.dial()
	before := r.configs.Hash()
	apply := func(id, yaml string) (a wire.ConfigResponse, err error) {
		err = c.call(wire.MethodApplyModelConfig, &wire.ApplyRequest{
			BundleID: "default", ModelID: id, Epoch: 7, ModelConfig: yaml,
		}, &a)
		return a, err
	}
	a, err := apply("org/new", document("org/new", plain))
	if err != nil || !a.Applied || a.ConfigVersion != 7 || !slices.Equal(a.AppliedModels,
		[]string{"org/new"}) ||
		a.BundleConfigHash == before || a.BundleConfigHash != r.configs.Hash() ||
		len(a.UnsupportedModels) > 0 {
		t.Fatalf("%+v, %v", a, err)
	}
	encode := func(id, model string) ended {
		return c.one(sliceOf(id, work.Encode, func(w *work.Item) { w.ModelID = model }, "a"))
	}
	if x := encode("1", "org/new"); !x.result.Success {
		t.Errorf("%+v", x)
	}
	old := r.configs.ModelHash("org/new")
	if a, err = apply("org/new", document("org/new", plain+fast)); err != nil ||
		old == r.configs.ModelHash("org/new") {
		t.Errorf("more profiles: %+v, %v", a, err)
	}
	changed := strings.Replace(plain, "4096", "2048", 1)
	if _, err = apply("org/new", document("org/new", changed)); err != nil {
		t.Errorf("the newest configuration wins: %v", err)
	}
	if all, err := catalog.Builtin(); err != nil {
		t.Fatal(err)
	} else if _, err := r.configs.SetBase(all); err != nil {
		t.Error(err)
	}
	if x := encode("2", "org/new"); !x.result.Success {
		t.Errorf("after the files were read again: %+v", x)
	}
	for yaml, says := range map[string]string{
		"{": "model_config", document("org/other", plain): "another model than 'org/new'",
		"sie_id: org/new\nnonsense: 1\n": "model_config", strings.Repeat("[", 100_000): "model_config",
	} {
		_, err := apply("org/new", yaml)
		if e := errs.As(err); e == nil || e.Code != errs.InvalidInput || !strings.Contains(e.Message, says) {
			t.Errorf("%.40q: %v", yaml, err)
		}
	}
	a, err = apply("org/llm", strings.ReplaceAll(document("org/llm",
		plain), "bert_flash:BertFlashAdapter", "none:None"))
	if err != nil || !slices.Equal(a.UnsupportedModels, []string{"org/llm"}) {
		t.Errorf("%+v, %v", a, err)
	}
	if x := encode("3", everything); !x.result.Success {
		t.Errorf("a model of the files: %+v", x)
	}
}

// A replacement is the whole catalog; a broken document leaves its model as it was, and the others
// are taken.
func TestReplaceModelConfigs(t *testing.T) {
	r := start(t, nil)
	c := r.dial()
	var a wire.ConfigResponse
	broken := &wire.ReplaceRequest{Models: []wire.ModelConfig{
		{ModelID: "org/a", ModelConfig: document("org/a", plain)}, {ModelID: "org/b", ModelConfig: "{"},
		{ModelID: "org/c", ModelConfig: document("org/a", plain)}, {ModelID: everything, ModelConfig: "["},
	}}
	if err := c.call(wire.MethodReplaceModelConfigs, broken, &a); err != nil || !a.Applied ||
		!slices.Equal(a.AppliedModels, []string{"org/a"}) ||
		!slices.Equal(a.UnsupportedModels, []string{"org/b", "org/c", everything}) {
		t.Fatalf("%+v, %v", a, err)
	}
	if x := c.one(sliceOf("0", work.Encode, nil, "a")); !x.result.Success {
		t.Errorf("a model whose new document is broken: %+v", x)
	}
	twice := &wire.ReplaceRequest{Models: []wire.ModelConfig{broken.Models[0], broken.Models[0]}}
	count := r.service.Catalog().Len()
	if err := c.call(wire.MethodReplaceModelConfigs, twice, &a); err == nil ||
		r.service.Catalog().Len() != count {
		t.Errorf("a model twice: %v", err)
	}
	a = wire.ConfigResponse{}
	good := &wire.ReplaceRequest{Epoch: 9, BundleID: "mine", Models: broken.Models[:1],
		BundleAdapters: map[string][]string{"default": {"sie_server.adapters.bert_flash"}}}
	if err := c.call(wire.MethodReplaceModelConfigs, good, &a); err != nil || !a.Applied ||
		a.ConfigVersion != 9 ||
		!slices.Equal(a.AppliedModels, []string{"org/a"}) {
		t.Fatalf("%+v, %v", a, err)
	}
	if ids := r.service.Catalog().List(); len(ids) != 1 || ids[0].ID != "org/a" {
		t.Errorf("%d ids", len(ids))
	}
	if x := c.one(sliceOf("1", work.Encode, nil, "a")); x.Disposition != wire.NakRetry {
		t.Errorf("a model that is gone: %+v", x)
	}
	// The files are read again: what sie-config has stays all there is.
	all, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	if did, err := r.configs.SetBase(all); err != nil || !did.None() {
		t.Errorf("%+v, %v", did, err)
	}
	// Without a change nothing is loaded again, and a lower epoch is one too.
	before := r.service.Catalog().Models()[0]
	good.Epoch = 2
	if err := c.call(wire.MethodReplaceModelConfigs, good, &a); err != nil || a.ConfigVersion != 2 ||
		r.service.Catalog().Models()[0] != before {
		t.Errorf("%+v, %v", a, err)
	}
	// A model that this server cannot run is in the hash, as it is for everybody.
	llm := strings.ReplaceAll(document("org/llm", plain), "bert_flash:BertFlashAdapter",
		"bert_flash:BertFlashAdapter', compute_precision: 'bfloat16")
	good.Models = append(good.Models, wire.ModelConfig{ModelID: "org/llm", ModelConfig: llm})
	hash := a.BundleConfigHash
	if err := c.call(wire.MethodReplaceModelConfigs, good, &a); err != nil || a.BundleConfigHash == hash {
		t.Errorf("%+v, %v", a, err)
	}
}

// The config hash leaves out most of a document. The hash that the sidecar says of the whole tells
// one from another: what is of another document is given back, and all say which there are.
func TestDocumentHashes(t *testing.T) {
	r := start(t, nil)
	c := r.dial()
	run := func(id, document string) string {
		t.Helper()
		return c.one(sliceOf(id, work.Encode, func(w *work.Item) {
			w.ModelID, w.ModelDocumentHash = "org/a", document
		}, "a")).Disposition
	}
	give := func(models ...wire.ModelConfig) (said string) {
		t.Helper()
		var a wire.ConfigResponse
		var p wire.PingResponse
		err := errors.Join(
			c.call(wire.MethodReplaceModelConfigs,
				&wire.ReplaceRequest{BundleID: "default", Models: models}, &a),
			c.call(wire.MethodPing, &wire.PingRequest{}, &p))
		if err != nil || !a.Applied || a.BundleDocumentsHash != p.BundleDocumentsHash ||
			a.BundleDocumentsHash != r.configs.DocumentsHash() {
			t.Fatalf("%+v %+v %v", a, p, err)
		}
		return a.BundleDocumentsHash
	}
	if r.configs.DocumentsHash() != "" {
		t.Error("the documents of files have a hash")
	}
	of := func(length, said string) wire.ModelConfig {
		return wire.ModelConfig{ModelID: "org/a", ModelDocumentHash: said,
			ModelConfig: "max_sequence_length: " + length + "\n" + document("org/a", plain)}
	}
	one := give(of("64", "d1"))
	config := r.configs.Hash()
	for i, c := range []struct{ document, want string }{
		{"d1", wire.PublishAndAck}, {"d2", wire.NakRetry}, {"", wire.PublishAndAck},
	} {
		if got := run("1"+strconv.Itoa(i), c.document); got != c.want {
			t.Errorf("work of the document %q: %s", c.document, got)
		}
	}
	two := give(of("32", "d2"))
	if one == "" || two == one || two == "" || r.configs.Hash() != config ||
		two != confighash.Documents(map[string]string{"org/a": "d2"}) {
		t.Errorf("documents %q and %q, configuration %q and %q", one, two, config, r.configs.Hash())
	}
	if old, now := run("20", "d1"), run("21", "d2"); old != wire.NakRetry || now != wire.PublishAndAck {
		t.Errorf("after a change: old %s, new %s", old, now)
	}
	// A document that cannot be read leaves its model as it was, and is not taken for the new one.
	broken := of("32", "d3")
	broken.ModelConfig = "{"
	if got := give(broken); got == two || got == "" || got == confighash.Documents(
		map[string]string{"org/a": "d3"}) || run("30", "d3") != wire.PublishAndAck {
		t.Errorf("a document that cannot be read: %q", got)
	}
	// A sidecar of the release before says no hashes.
	if got := give(of("32", "")); got != "" || run("40", "d4") != wire.PublishAndAck {
		t.Errorf("documents without hashes: %q", got)
	}
	give(of("32", "d2"))
	var a wire.ConfigResponse
	apply := &wire.ApplyRequest{BundleID: "default", ModelID: "org/a",
		ModelConfig: document("org/a", plain+fast)}
	if err := c.call(wire.MethodApplyModelConfig, apply, &a); err != nil || r.configs.DocumentsHash() != "" {
		t.Errorf("%v: after another way to change a model: %q", err, r.configs.DocumentsHash())
	}
}
