package catalog

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// good is a complete file; the cases below replace one line of it.
const good = `sie_id: acme/mini
hf_id: acme/mini
inputs: {text: true}
tasks:
  encode:
    dense: {dim: 384}
max_sequence_length: 512
profiles:
  default:
    adapter_path: sie_server.adapters.bert_flash:BertFlashAdapter
    max_batch_tokens: 16384
    adapter_options:
      runtime:
        pooling: mean
  fast:
    extends: default
`

func TestGoodModel(t *testing.T) {
	m, warn, err := ParseModel("x.yaml", []byte(good))
	if err != nil || len(warn) > 0 {
		t.Fatal(err, warn)
	}
	if m.ID != "acme/mini" || m.Tasks.Dense.Dim != 384 || m.MaxSequenceLength != 512 ||
		len(m.Profiles) != 2 || m.File != "x.yaml" {
		t.Errorf("got %+v", m)
	}
}

func TestBadModels(t *testing.T) {
	line := func(from, to string) string {
		if strings.Count(good, from) != 1 {
			panic("ambiguous: " + from)
		}
		return strings.Replace(good, from, to, 1)
	}
	const profile = "    adapter_path: sie_server.adapters.bert_flash:BertFlashAdapter\n"
	const pool = "        pooling: mean\n"
	const id = "sie_id: acme/mini\n"
	for _, c := range []struct{ name, src, want string }{
		// whole file
		{"empty", "", "x.yaml:1: the file holds no YAML document"},
		{"comment only", "# nothing\n", "x.yaml:1: the file holds no YAML document"},
		{"null", "null\n", "x.yaml:1: the file is empty"},
		{"list", "- a\n", "x.yaml:1: expected a map, got a list"},
		{"scalar", "abc\n", "x.yaml:1: expected a map, got a single value"},
		{"two documents", good + "---\n" + good,
			"x.yaml:18: a second YAML document starts here; put one document in a file"},
		{"not UTF-8", "sie_id: \xff\n", "x.yaml:1: the file is not valid UTF-8"},
		{"NUL", "sie_id: a\nhf_id: \x00\n", "x.yaml:2: the file holds a NUL byte"},
		{"too large", strings.Repeat("# padding\n", 7000),
			"x.yaml:1: the file has 70000 bytes; the limit is 65536"},
		{"too many lines", strings.Repeat("\r\n", 2001), "x.yaml:1: the file has more than 2000 lines"},
		{"line too long", good + "# " + strings.Repeat("x", 9000),
			"x.yaml:17: the line has more than 8192 bytes"},
		{"too many values", "- [\n" + strings.Repeat("a,a,a,a,a,a,a,a,a,a,\n", 600) + "]\n",
			"x.yaml:1: the file holds more than 5000 values once its aliases are expanded"},
		{"tag", line("acme/mini\nhf_id", "!!str acme/mini\nhf_id"),
			"x.yaml:1: YAML tags such as !!str are not supported"},
		{"directive", "%YAML 1.2\n---\n" + good,
			"x.yaml:1: YAML directives are not supported; remove the % line"},
		{"flow nesting", strings.Repeat("[", 33),
			"x.yaml:1: maps and lists are nested more than 32 levels deep"},
		{"dash nesting", strings.Repeat("- ", 33) + "x",
			"x.yaml:1: maps and lists are nested more than 32 levels deep"},
		{"syntax", "sie_id: [a\n",
			"x.yaml:2: not valid YAML: did not find expected ',' or ']', while parsing a flow sequence that starts on line 1"},
		{"unclosed quote", "sie_id: \"a\n",
			"x.yaml:2: not valid YAML: found unexpected end of stream, while scanning a quoted scalar that starts on line 1"},
		{"infinity", line("max_sequence_length: 512", "max_sequence_length: .inf"),
			"x.yaml:7: max_sequence_length: infinity and NaN are not allowed"},
		{"huge number", line("max_sequence_length: 512", "max_sequence_length: 18446744073709551615"),
			"x.yaml:7: max_sequence_length: the number 18446744073709551615 is out of range"},
		{"number as key", line(id, id+"7: x\n"),
			"x.yaml:2: map keys must be strings; put quotes around the key"},

		// aliases
		{"unknown alias", line("hf_id: acme/mini", "hf_id: *nope"), "x.yaml:2: hf_id: unknown alias *nope"},
		{"alias of itself", "a: &a [*a]\n", "x.yaml:1: a[0]: unknown alias *a"},
		{"alias bomb", bomb(),
			"x.yaml:4: the file holds more than 5000 values once its aliases are expanded"},
		{"many anchors", anchors(33), "x.yaml:33: the file has more than 32 anchors"},
		{"merge of a scalar", "<<: 1\n", "x.yaml:1: the merge key << takes a map or a list of maps"},

		// keys
		{"unknown key", line("max_sequence_length: 512", "max_sequence_len: 512"),
			`x.yaml:7: max_sequence_len: unknown key; did you mean "max_sequence_length"?`},
		{"unknown profile key", line("    adapter_options:\n", "    adapter_option:\n"),
			`x.yaml:12: profiles.default.adapter_option: unknown key; did you mean "adapter_options"?`},
		{"option in the wrong place", line(profile, profile+"    query_template: x\n"),
			"x.yaml:11: profiles.default.query_template: unknown key; it belongs under adapter_options.runtime"},
		{"load-time option in the wrong place", line(profile, profile+"    muvera_config: {}\n"),
			"x.yaml:11: profiles.default.muvera_config: unknown key; it belongs under adapter_options.loadtime"},
		{"key like no other", line("    dense: {dim: 384}", "    zzz: {dim: 384}"),
			"x.yaml:6: tasks.encode.zzz: unknown key; valid keys: dense, sparse, multivector\nx.yaml:6: tasks.encode: must have at least one of dense, sparse and multivector"},
		{"key that is not a word", line(id, id+"\"a b\": 1\n"),
			`x.yaml:2: ["a b"]: unknown key; valid keys: sie_id, hf_id, hf_revision, hf_tokenizer_dependencies, weights_path, package_backed, remote_backed, routing, pool, inputs, tasks, max_sequence_length, profiles`},
		{"duplicate key", line(id, id+"sie_id: acme/other\n"),
			"x.yaml:2: sie_id: duplicate key; it is already set on line 1"},
		{"duplicate nested key", line(pool, pool+"        pooling: cls\n"),
			"x.yaml:15: profiles.default.adapter_options.runtime.pooling: duplicate key; it is already set on line 14"},

		// types and values
		{"missing id", line(id, ""), "x.yaml:1: sie_id: required key is missing"},
		{"null id", line(id, "sie_id:\n"), "x.yaml:1: sie_id: required key is missing"},
		{"id is a list", line(id, "sie_id: [a]\n"), "x.yaml:1: sie_id: expected a string, got a list"},
		{"id is a bool", line(id, "sie_id: no\n"),
			"x.yaml:1: sie_id: expected a string, got no; put it in quotes"},
		{"id with a colon", line(id, "sie_id: \"acme/mini:x\"\n"),
			`x.yaml:1: sie_id: must not contain ':', which separates a profile; got "acme/mini:x"`},
		{"id with a space", line(id, "sie_id: acme mini\n"),
			`x.yaml:1: sie_id: must not contain ' '; got "acme mini"`},
		{"id climbs", line(id, "sie_id: a/../b\n"),
			`x.yaml:1: sie_id: must not have an empty, '.' or '..' part between slashes; got "a/../b"`},
		{"id too long", line(id, "sie_id: "+strings.Repeat("a", 300)+"\n"),
			"x.yaml:1: sie_id: has 300 bytes; the limit is 256"},
		{"hub id", line("hf_id: acme/mini", "hf_id: a/b/c"),
			`x.yaml:2: hf_id: expected a hub repository such as "org/name", got "a/b/c"`},
		{"revision", line(id, id+"hf_revision: ../../etc\n"),
			`x.yaml:2: hf_revision: expected a branch, tag or commit, got "../../etc"`},
		{"no weights", line("hf_id: acme/mini\n", ""),
			"x.yaml:1: hf_id: required key is missing; give hf_id or weights_path, or set package_backed"},
		{"package with weights", line(id, id+"package_backed: true\n"),
			"x.yaml:3: hf_id: must not be set when package_backed is true"},
		{"tokenizer dependency", line(id, id+"hf_tokenizer_dependencies: {a/b: main}\n"),
			`x.yaml:2: hf_tokenizer_dependencies["a/b"]: expected a commit of 40 hexadecimal digits, got the string "main"`},
		{"length is text", line("max_sequence_length: 512", `max_sequence_length: "512"`),
			`x.yaml:7: max_sequence_length: expected a whole number, got the string "512"`},
		{"length is a float", line("max_sequence_length: 512", "max_sequence_length: 512.5"),
			"x.yaml:7: max_sequence_length: expected a whole number, got the number 512.5"},
		{"length is negative", line("max_sequence_length: 512", "max_sequence_length: -1"),
			"x.yaml:7: max_sequence_length: must be between 1 and 16777216; got -1"},
		{"input type", line("inputs: {text: true}", "inputs: {text: maybe}"),
			`x.yaml:3: inputs.text: expected true or false, got the string "maybe"`},
		{"no input", line("inputs: {text: true}", "inputs: {text: false}"),
			"x.yaml:3: inputs: at least one input must be true"},
		{"no task", line("tasks:\n  encode:\n    dense: {dim: 384}\n", "tasks: {encode: null}\n"),
			"x.yaml:4: tasks: must have at least one of encode, score, extract and generate"},
		{"task missing", line("tasks:\n  encode:\n    dense: {dim: 384}\n", ""),
			"x.yaml:1: tasks: required key is missing"},
		{"score is a bool", line("    dense: {dim: 384}\n", "    dense: {dim: 384}\n  score: true\n"),
			"x.yaml:7: tasks.score: expected a map, got true; write score: {}"},
		{"score has keys", line("    dense: {dim: 384}\n", "    dense: {dim: 384}\n  score: {dim: 1}\n"),
			"x.yaml:7: tasks.score.dim: unknown key; write score: {}"},
		{"dim missing", line("dense: {dim: 384}", "dense: {}"),
			"x.yaml:6: tasks.encode.dense.dim: required key is missing"},
		{"dim is zero", line("dense: {dim: 384}", "dense: {dim: 0}"),
			"x.yaml:6: tasks.encode.dense.dim: must be between 1 and 1048576; got 0"},
		{"routing policy", line(id, id+"routing: {policy: always}\n"),
			`x.yaml:2: routing.policy: must be remote_only, fallback or threshold; got "always"`},
		{"routing profile", line(id, id+"routing: {fallback_profile: fats}\n"),
			`x.yaml:2: routing.fallback_profile: no profile is called "fats"`},

		// profiles
		{"no profiles", line(good[strings.Index(good, "profiles:"):], ""),
			"x.yaml:1: profiles: required key is missing"},
		{"empty profiles", line(good[strings.Index(good, "profiles:"):], "profiles: {}\n"),
			"x.yaml:8: profiles: must have between 1 and 64 profiles; got 0"},
		{"profiles is a list", line(good[strings.Index(good, "profiles:"):], "profiles: [default]\n"),
			"x.yaml:8: profiles: expected a map, got a list"},
		{"profile is null", line("  fast:\n    extends: default\n", "  fast:\n"),
			"x.yaml:15: profiles.fast: expected a map, got null"},
		{"profile name", line("  fast:\n", "  \"a:b\":\n"),
			`x.yaml:15: profiles["a:b"]: a profile name has 1 to 64 letters, digits, '.', '_' and '-'`},
		{"no adapter", line(profile, ""),
			"x.yaml:10: profiles.default.adapter_path: required key is missing"},
		{"no batch size", line("    max_batch_tokens: 16384\n", ""),
			"x.yaml:10: profiles.default.max_batch_tokens: required key is missing"},
		{"adapter form", line(profile, "    adapter_path: bert_flash\n"),
			`x.yaml:10: profiles.default.adapter_path: expected "module.path:Class" or "file.py:Class", got "bert_flash"`},
		{
			"precision", line(profile, profile+"    compute_precision: fp16\n"),
			`x.yaml:11: profiles.default.compute_precision: must be float16, bfloat16 or float32; got "fp16"`,
		},
		{"extends nothing", line("extends: default", "extends: defualt"),
			`x.yaml:16: profiles.fast.extends: no profile is called "defualt"; did you mean "default"?`},
		{"extends itself", line("extends: default", "extends: fast"),
			"x.yaml:16: profiles.fast.extends: a profile cannot extend itself"},
		{"two levels", good + "  faster:\n    extends: fast\n",
			`x.yaml:18: profiles.faster.extends: profile "fast" extends another one itself; inheritance has one level`},
		{
			"adaptive key", line(profile, profile+"    adaptive_batching: {max_wait: 5}\n"),
			`x.yaml:11: profiles.default.adaptive_batching.max_wait: unknown key; did you mean "max_wait_ms"?`,
		},
		{"adaptive range", line(profile, profile+"    adaptive_batching: {gain: 2}\n"),
			"x.yaml:11: profiles.default.adaptive_batching.gain: must be between 1e-09 and 1; got 2"},

		// options
		{"options is a list", line("      runtime:\n"+pool, "      runtime: [pooling]\n"),
			"x.yaml:13: profiles.default.adapter_options.runtime: expected a map, got a list"},
		{"pooling", line("pooling: mean", "pooling: max"),
			`x.yaml:14: profiles.default.adapter_options.runtime.pooling: must be cls, mean, last or last_token; got "max"`},
		{"normalize", line("pooling: mean", "normalize: 1"),
			"x.yaml:14: profiles.default.adapter_options.runtime.normalize: expected true or false, got the number 1"},
		{"template type", line("pooling: mean", "query_template: [a]"),
			"x.yaml:14: profiles.default.adapter_options.runtime.query_template: expected a string, got a list"},
		{"template field", line("pooling: mean", `query_template: "{query}"`),
			"x.yaml:14: profiles.default.adapter_options.runtime.query_template: the template uses {query}; only {text} and {instruction} may be used"},
		{"output type", line("pooling: mean", "output_types: [dnese]"),
			`x.yaml:14: profiles.default.adapter_options.runtime.output_types: must hold only dense, sparse or multivector; got "dnese"`},
		{"output dtype", line("pooling: mean", "output_dtype: int4"),
			`x.yaml:14: profiles.default.adapter_options.runtime.output_dtype: must be float32, float16, int8, uint8, binary or ubinary; got "int4"`},
		{"length option", line("pooling: mean", "max_seq_length: 0"),
			"x.yaml:14: profiles.default.adapter_options.runtime.max_seq_length: must be between 1 and 16777216; got 0"},
		{"threshold", line("pooling: mean", "threshold: high"),
			`x.yaml:14: profiles.default.adapter_options.runtime.threshold: expected a number from 0 to 1, got the string "high"`},
		{"weights", line("pooling: mean", "score_weights: {dense: -1}"),
			"x.yaml:14: profiles.default.adapter_options.runtime.score_weights: weight dense must be a finite number of at least 0, got the number -1"},
		{"misspelt option", line("pooling: mean", "querry_template: x"),
			`x.yaml:14: profiles.default.adapter_options.runtime.querry_template: unknown option; did you mean "query_template"?`},
		{"muvera key",
			line("      runtime:\n"+pool, "      loadtime:\n        muvera_config: {num_repetition: 2}\n"),
			`x.yaml:14: profiles.default.adapter_options.loadtime.muvera_config: unknown key "num_repetition"; did you mean "num_repetitions"?`},
		{"muvera value",
			line("      runtime:\n"+pool, "      loadtime:\n        muvera_config: {seed: -1}\n"),
			"x.yaml:14: profiles.default.adapter_options.loadtime.muvera_config: seed: must be between 0 and 9007199254740992; got -1"},
		{"lora", line("      runtime:\n"+pool, "      loadtime:\n        lora_paths: {a: {revision: x}}\n"),
			`x.yaml:14: profiles.default.adapter_options.loadtime.lora_paths: adapter "a" needs an id`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, _, err := ParseModel("x.yaml", []byte(c.src))
			if err == nil {
				t.Fatalf("accepted as %+v", m)
			}
			if err.Error() != c.want {
				t.Errorf("got\n%s\nwant\n%s", err, c.want)
			}
			if m != nil {
				t.Error("a model came with the error")
			}
		})
	}
}

// bomb returns a few lines of YAML whose aliases expand to more than 10^6 values.
func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 6; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n",
			i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	return b.String()
}

func anchors(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "k%d: &a%d x\n", i, i)
	}
	return b.String()
}

func TestAllProblemsAtOnce(t *testing.T) {
	src := strings.NewReplacer("acme/mini\nhf", "[a]\nhf", "dim: 384", "dim: x", "16384", "0",
		"extends: default", "extends: none").Replace(good)
	_, _, err := ParseModel("x.yaml", []byte(src))
	want := `x.yaml:1: sie_id: expected a string, got a list
x.yaml:6: tasks.encode.dense.dim: expected a whole number, got the string "x"
x.yaml:11: profiles.default.max_batch_tokens: must be between 1 and 16777216; got 0
x.yaml:16: profiles.fast.extends: no profile is called "none"; the model has no other profile by that name`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestProblemsAreBounded(t *testing.T) {
	var b strings.Builder
	for i := range 500 {
		fmt.Fprintf(&b, "wrong%d: 1\n", i)
	}
	_, _, err := ParseModel("x.yaml", []byte(b.String()))
	var p *Problems
	if !errors.As(err, &p) || len(p.List) != maxProblemsPerFile || p.More != 500+4-maxProblemsPerFile {
		t.Fatalf("got %d problems and %d more", len(p.List), p.More)
	}
	if !strings.HasSuffix(err.Error(), fmt.Sprintf("\nand %d more", p.More)) {
		t.Errorf("text does not say how many are left out")
	}
}

func TestAnchorsAndMerge(t *testing.T) {
	src := `sie_id: acme/mini
hf_id: acme/mini
tasks: {encode: {dense: {dim: 8}}}
profiles:
  default: &base
    adapter_path: sie_server.adapters.bert_flash:A
    max_batch_tokens: 100
    adapter_options: {runtime: &run {pooling: cls, normalize: off}}
  other:
    <<: *base
    max_batch_tokens: 200
    adapter_options: {runtime: {<<: *run, pooling: mean}}
`
	m, _, err := ParseModel("x.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	o := m.Profile("other")
	if o.Adapter.Class != "A" || o.MaxBatchTokens != 200 || o.Runtime["pooling"] != "mean" ||
		o.Runtime["normalize"] != false {
		t.Errorf("got %+v", o)
	}
}

func TestUnknownOptionIsAWarning(t *testing.T) {
	src := strings.Replace(good, "pooling: mean", "flux_capacity: 3", 1)
	m, warn, err := ParseModel("x.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	if len(warn) != 1 || warn[0].Error() !=
		"x.yaml:14: profiles.default.adapter_options.runtime.flux_capacity: the option is not known to this build and has no effect" {
		t.Errorf("got %v", warn)
	}
	if m.Profiles[0].Runtime["flux_capacity"] != int64(3) {
		t.Error("the option was dropped")
	}
}

// Input that would make a YAML library slow or deeply recursive must stay fast here.
func TestHostileInputIsFast(t *testing.T) {
	const n = maxFileBytes - 64
	repeat := func(prefix, s string) string { return prefix + strings.Repeat(s, n/len(s)) }
	inputs := map[string]string{
		"blank lines in a block scalar": repeat("a: |\n  ", "\n"), "CR lines": repeat("a: |\n  ", "\r"),
		"CRLF lines": repeat("a: |\n ", "\r\n"), "open lists": repeat("", "["),
		"open maps": repeat("", "{a: "), "dashes": repeat("", "- "), "questions": repeat("", "? "),
		"many keys": repeat("", "a: b\n"), "anchors": repeat("", "&a "), "tags": repeat("", "!a "),
		"colons": repeat("", "a: "), "flow keys": repeat("{", "a: b,"), "long plain": repeat("a: ", "x"),
		"angle brackets": repeat("a: ", strings.Repeat("<", maxLineBytes-1)+"\n"),
		"long quoted":    repeat("a: \"", "\\x41"), "documents": repeat("", "---\n"),
		"comments": repeat("", "#\n"), "quotes": repeat("", "'"), "merge": repeat("", "<<: *a\n"),
		"list lines": repeat("a:\n", "- a\n"),
	}
	var deep strings.Builder
	for i := 0; deep.Len() < n; i++ {
		deep.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	inputs["deep block"] = deep.String()
	for name, src := range inputs {
		start := time.Now()
		if _, _, err := ParseModel("x.yaml", []byte(src)); err == nil {
			t.Errorf("%s: accepted", name)
		}
		// far above the time on any machine; quadratic work takes longer
		if d := time.Since(start); d > time.Minute {
			t.Errorf("%s: took %v", name, d)
		} else if d > 100*time.Millisecond {
			t.Logf("%s: %v", name, d)
		}
	}
}
