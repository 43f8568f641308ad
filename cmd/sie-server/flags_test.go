//go:build native

package main

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	sie "github.com/sie-engine/sie/internal/cli"

	"github.com/sie-engine/sie/internal/golden"
)

// badTexts maps each flag that is a text to a refused value and to what the refusal says. The key
// is the flag's name, or the command and the name.
var badTexts = map[string]struct{ value, says string }{
	"models-dir":       {"/none/there", "models directory"},
	"race extract":     {"/none/there", "no such file"},
	"bundle":           {"nope", "--bundle: bundle 'nope' not found"},
	"models":           {"nope", "--models nope: not in the catalog"},
	"preload":          {"nope", "--preload nope: not in the catalog"},
	"pinned-models":    {"nope", "pinned model nope"},
	"default-model":    {"nope", "--default-model: Model 'nope' not found"},
	"cluster-cache":    {"/tmp/x", "--cluster-cache: "},
	"device":           {"gpu", "--device gpu: unknown device"},
	"api-key":          {"", "API key 1"},
	"api-keys-file":    {"/none/there", "API keys: stat /none/there"},
	"tokens-file":      {"/none/there", "tokens file: stat /none/there"},
	"auth-mode":        {"Static", `SIE_AUTH_MODE is "Static"`},
	"tls-cert":         {"/none/there", "--tls-key"},
	"tls-key":          {"/none/there", "--tls-cert"},
	"tls-client-ca":    {"/none/there", "--tls-client-ca needs --tls-cert"},
	"cors-origin":      {"nope", "is no origin"},
	"encode model":     {"nope", "--models nope: not in the catalog"},
	"encode file":      {"/none/there", "/none/there: no such file"},
	"encode out":       {"/none/there", "/none/there"},
	"openapi output":   {"/none/there", "/none/there"},
	"doctor program":   {"/none/there", "/none/there"},
	"health url":       {":", "--url :"},
	"top url":          {":", "--url :"},
	"race model":       {"nope", "nope"},
	"local-cache":      {"/dev/null/x", ""}, // made by the first download; a missing cache counts as empty
	"host":             {"", ""},            // the system judges it
	"metrics-host":     {"", ""},            // likewise, where there is a --metrics-port
	"gpu-type":         {"", ""},            // any name that clients choose
	"machine-profile":  {"", ""},            // likewise
	"pool":             {"", ""},            // any name, for display
	"ipc-socket":       {"/dev/null/x/ipc.sock", "--ipc-socket: the directory"},
	"models documents": {"/dev/null/x", "mkdir /dev/null"},
	"top api-key":      {"", ""}, // the server judges it
}

// Every flag of every command refuses a value that makes no sense, and the refusal names the flag.
func TestEveryFlagRefusesNonsense(t *testing.T) {
	tiny := "tiny=" + golden.Open(t, "st-mean").Dir
	texts := t.TempDir() + "/texts.json"
	if err := os.WriteFile(texts, []byte(`["a text"]`), 0o644); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, command := range commands(t) {
		// The arguments that the command also needs, so that only the flag is wrong.
		besides := map[string][]string{
			"pull": {"nope"}, "race": {texts}, "encode": {"text"},
			"check-model": {golden.Open(t, "st-mean").Dir},
		}[command.Name]
		for _, group := range command.AllFlags(false) {
			for _, f := range group {
				name := f.Name
				try := func(value, says string) {
					t.Helper()
					args := append([]string{command.Name, "--" + name + "=" + value}, besides...)
					switch {
					case command.Name == "encode" && (name == "file" || name == "out"):
						other := map[string]string{
							"file": "--out=" + t.TempDir() + "/x", "out": "--file=" + texts,
						}[name]
						args = []string{command.Name, "--" + name + "=" + value, other}
					case name == "device" || name == "pinned-models" || name == "default-model":
						args = append(args, "--models="+tiny)
						if command.Name == "doctor" || command.Name == "check-model" {
							args = args[:len(args)-1]
						}
					}
					if err := runLine(args); err == nil || !strings.Contains(err.Error(), says) {
						t.Errorf("%q: %v, want %s", args, err, says)
					}
				}
				switch {
				case name == "help":
				case sie.Numeric(f.Target.Type()):
					b, err := sie.ParseBounds(f.Tag.Get("range"), f.Target.Type())
					if err != nil {
						t.Error(err)
						continue
					}
					for _, x := range []float64{b.Min - 1, b.Max + 1, -1e18} {
						if b.Has(x) || f.Target.Kind() != reflect.Float64 && x > 1e18 {
							continue
						}
						try(written(f.Target.Type(), x), "--"+name+" must be "+b.Text)
					}
					try("nonsense", "--"+name)
				case f.Enum != "":
					try("nonsense", "--"+name+" must be one of")
				case f.Target.Kind() == reflect.Bool:
					try("nonsense", "bool value")
				default:
					key := name
					if _, ok := badTexts[command.Name+" "+name]; ok {
						key = command.Name + " " + name
					}
					bad, ok := badTexts[key]
					used[key] = true
					if !ok {
						t.Errorf("%s --%s: give a value that it refuses in badTexts", command.Name, name)
					}
					if bad.says != "" && reaches(command, name) {
						try(bad.value, bad.says)
					}
				}
			}
		}
	}
	for key := range badTexts {
		if !used[key] {
			t.Errorf("there is no flag %s", key)
		}
	}
}

// reaches reports whether a command uses a flag that it shares with others. doctor, for example,
// needs no models.
func reaches(command *kong.Node, flag string) bool {
	return command.Name != "doctor" ||
		flag != "models-dir" && flag != "bundle" && flag != "models" && flag != "cluster-cache"
}

// runLine runs a command line as main does.
func runLine(args []string) error {
	k, err := newParser(&cli{}).Parse(args)
	if err != nil {
		return err
	}
	return sie.Run(k)
}

// written writes a number in the form of a flag of that type.
func written(t reflect.Type, x float64) string {
	if t == reflect.TypeFor[time.Duration]() {
		return time.Duration(x).String()
	}
	if t.Kind() == reflect.Float64 {
		return fmt.Sprint(x)
	}
	return fmt.Sprint(int64(x))
}
