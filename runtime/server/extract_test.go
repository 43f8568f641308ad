package server

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/service"
)

// besides adds models of the golden data to the rig's model. Each has an id, folder, adapter and
// tasks.
func besides(t *testing.T, models ...[4]string) func(*Options, *service.Options) {
	t.Helper()
	return func(_ *Options, o *service.Options) {
		for _, x := range models {
			m, _, err := catalog.ParseModel(x[0]+".yaml", fmt.Appendf(nil, `sie_id: %s
weights_path: %s
tasks: %s
max_sequence_length: 40
profiles: {default: {adapter_path: "sie_server.adapters.%s:X", max_batch_tokens: 4096}}
`, x[0], filepath.Join(golden.Root(t), x[1]), x[3], x[2]))
			if err != nil {
				t.Fatal(err)
			}
			if o.Catalog, err = o.Catalog.With(m); err != nil {
				t.Fatal(err)
			}
		}
	}
}

type extracted struct {
	Model string
	Items []struct {
		ID              string
		Entities        []map[string]any
		Classifications []map[string]any
		Error           *struct{ Code, Message string }
	}
	Usage struct {
		Tokens int `json:"input_tokens"`
	}
}

// An item that cannot be answered carries its error, under its id. For a client that does not read
// such errors, the first one fails the request.
func TestExtractItemErrors(t *testing.T) {
	r := start(t,
		besides(t, [4]string{"acme/tags", "pipeline-tags", "token_classification", "{extract: {}}"}))
	long := strings.Repeat("the cat ", 40)
	body := `{"items":[{"id":"first","text":"in Berlin \u00e9\ud83d\ude42"},{"text":"` + long +
		`"},{"id":"last","text":""}],"params":{"options":{"overflow_policy":"error"}}}`
	for _, version := range []string{"", "0.6.30", "0.10.1", "unknown"} {
		var got extracted
		r.do("POST", "/v1/extract/acme/tags", body, "Accept", "application/json", "X-SIE-SDK-Version",
			version).into(t, &got)
		if len(got.Items) != 3 || got.Items[0].ID != "first" || got.Items[1].ID != "item-1" ||
			got.Items[2].ID != "last" {
			t.Fatalf("%s: %+v", version, got)
		}
		for i, it := range got.Items {
			if it.Entities == nil || it.Classifications == nil || (it.Error != nil) != (i == 1) {
				t.Errorf("%s, item %d: %+v", version, i, it)
			}
		}
		if e := got.Items[1].Error; e.Code != "INPUT_TOO_LONG" ||
			!strings.Contains(e.Message, "Field 'items[1]' has more than 40 tokens") ||
			len(got.Items[0].Entities) == 0 || got.Usage.Tokens == 0 {
			t.Errorf("%s: %+v", version, got)
		}
	}
	a := r.do("POST", "/v1/extract/acme/tags", body, "Accept", "application/json",
		"X-SIE-SDK-Version", "0.3.4")
	if a.status != 400 || !strings.Contains(string(a.body), "INPUT_TOO_LONG") ||
		!strings.Contains(string(a.body), "items[1]") {
		t.Errorf("0.3.4: %d %s", a.status, a.body)
	}
	a = r.do("POST", "/v1/extract/acme/tags", strings.Replace(body, `"error"`, `"default"`, 1),
		"X-SIE-SDK-Version", "0.3.4", "Accept", "application/json")
	if a.status != 200 || strings.Contains(string(a.body), `"error"`) {
		t.Errorf("0.3.4 without errors: %d %s", a.status, a.body)
	}
}
