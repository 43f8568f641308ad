package ipc

import (
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/catalog"
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

// A replacement is the whole catalog; a broken one changes nothing.
func TestReplaceModelConfigs(t *testing.T) {
	r := start(t, nil)
	c := r.dial()
	var a wire.ConfigResponse
	broken := &wire.ReplaceRequest{Models: []wire.ModelConfig{
		{ModelID: "org/a", ModelConfig: document("org/a", plain)}, {ModelID: "org/b", ModelConfig: "{"},
	}}
	count := r.service.Catalog().Len()
	if err := c.call(wire.MethodReplaceModelConfigs, broken, &a); err == nil ||
		!strings.Contains(err.Error(), "models[1].model_config") || r.service.Catalog().Len() != count {
		t.Errorf("%v", err)
	}
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
}
