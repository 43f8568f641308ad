package arch

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// A label without a number, a number without a label and two labels of one logit are refused by
// their key. None is read as logit 0, as an empty label or as either of two.
func TestLabelsAreWhatTheFileSays(t *testing.T) {
	for _, c := range []struct {
		config string
		labels []string
		says   string
	}{
		{`{"id2label":{"0":"a","1":"b"},"label2id":{"x":null}}`, []string{"a", "b"}, ""},
		{`{"id2label":null,"label2id":{"b":1,"a":0}}`, []string{"a", "b"}, ""},
		{`{"id2label":{},"label2id":{}}`, []string{"LABEL_0", "LABEL_1"}, ""},
		{`{"label2id":{"a":null}}`, nil, `label2id: is null for the label "a"`},
		{`{"label2id":{"a":0,"b":null,"c":1}}`, nil, `label2id: is null for the label "b"`},
		{`{"label2id":{"c":1,"b":0,"a":0}}`, nil, `label2id: gives logit 0 to the labels "a" and "b"`},
		{`{"id2label":{"0":"a","1":null}}`, nil, `id2label: is null for logit 1`},
	} {
		l, err := readLabels(fstest.MapFS{"config.json": {Data: []byte(c.config)}}, "")
		if c.says == "" && (err != nil || !slices.Equal(l.labels, c.labels)) {
			t.Errorf("%s: %q, %v", c.config, l.labels, err)
		}
		if c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: labels %q, error %v, want %s", c.config, l.labels, err, c.says)
		}
	}
}
