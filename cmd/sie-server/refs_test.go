package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/golden"
)

// catalogDir makes a models directory with the models acme/a and acme/b.
func catalogDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, id := range []string{"a", "b"} {
		text := fmt.Sprintf(
			"sie_id: acme/%s\nhf_id: acme/%s\ntasks: {encode: {dense: {dim: 8}}}\nprofiles:\n"+
				"  default: {adapter_path: \"sie_server.adapters.bert_flash:BertFlashAdapter\", max_batch_tokens: 1024}\n  fast: {extends: default, max_batch_tokens: 512}\n",
			id, id)
		if err := os.WriteFile(filepath.Join(dir, id+".yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// served returns the base ids of a selection.
func served(s modelSelection) string {
	var out []string
	for _, m := range s.catalog.Models() {
		out = append(out, m.ID)
	}
	return strings.Join(out, " ")
}

// --preload takes the same references as -m, and the models that it names are served.
func TestReferences(t *testing.T) {
	dir := golden.Open(t, "st-mean").Dir
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("HF_HUB_OFFLINE", "1")
	t.Setenv("HF_HOME", home)
	if err := os.Symlink(dir, home+"/tiny"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		models, preload []string
		bundle          string
		served          string // "-": everything
		loaded          string
		err             string
	}{
		"nothing":          {nil, nil, "", "acme/a acme/b", "", ""},
		"an id":            {[]string{"acme/a"}, nil, "", "acme/a", "", ""},
		"an id to preload": {nil, []string{"acme/a"}, "", "acme/a acme/b", "acme/a", ""},
		"an id that is not served so": {[]string{"acme/b"}, []string{"acme/a"}, "", "acme/a acme/b",
			"acme/a", ""},
		"a profile": {[]string{"acme/b"}, []string{"acme/a:fast"}, "", "acme/a acme/b",
			"acme/a:fast", ""},
		"a directory":              {nil, []string{dir}, "", "acme/a acme/b st-mean", "st-mean", ""},
		"a directory at home":      {nil, []string{"~/tiny"}, "", "acme/a acme/b tiny", "tiny", ""},
		"a directory beside -m":    {[]string{"acme/b"}, []string{dir}, "", "acme/b st-mean", "st-mean", ""},
		"the same directory twice": {[]string{dir}, []string{dir + "/"}, "", "st-mean", "st-mean", ""},
		"a directory by the id it got": {[]string{"tiny=" + dir}, []string{"tiny"}, "", "tiny",
			"tiny", ""},
		"a directory with an id": {nil, []string{"x/y=" + dir, " ", ""}, "", "acme/a acme/b x/y", "x/y", ""},
		"weights for an id":      {nil, []string{"acme/a=" + dir}, "", "acme/a acme/b", "acme/a", ""},
		"a hub repository":       {nil, []string{"org/else"}, "", "acme/a acme/b org/else", "org/else", ""},
		"a hub repository twice": {[]string{"org/else"}, []string{"org/else"}, "", "org/else",
			"org/else", ""},
		"beside a bundle":          {nil, []string{dir}, "default", "acme/a acme/b st-mean", "st-mean", ""},
		"what a bundle leaves out": {nil, []string{"acme/a"}, "candle", "acme/a", "acme/a", ""},
		"no such id":               {nil, []string{"acma"}, "", "", "", "--preload acma: not in the catalog"},
		"no such id with -m":       {[]string{"acma"}, nil, "", "", "", "--models acma: not in the catalog"},
		"no such profile": {nil, []string{"acme/a:slow"}, "", "", "",
			"--preload acme/a:slow: not in the catalog"},
		"no such profile of a directory": {[]string{"tiny=" + dir}, []string{"tiny:slow"}, "", "", "",
			`--preload tiny:slow: tiny has no profile "slow"`},
		"no model there": {nil, []string{home + "/none"}, "", "", "", "not a model directory"},
		"no model there, with an id": {nil, []string{"x=" + home}, "", "", "",
			"--preload x=" + home + ": not a model directory"},
		"two directories of one name": {[]string{"st-mean=" + home + "/tiny"}, []string{dir}, "", "", "",
			"the id st-mean is that of"},
	} {
		t.Run(name, func(t *testing.T) {
			f := sourceFlags{
				ModelsDir:  catalogDir(t),
				Models:     c.models,
				Bundle:     c.bundle,
				preload:    c.preload,
				HFFallback: false,
			}
			all, err := f.files()
			if err != nil {
				t.Fatal(err)
			}
			s, err := f.narrow(t.Context(), all)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("%v, want %s", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := served(s); got != c.served || strings.Join(s.preload, " ") != c.loaded {
				t.Errorf("serves %q and loads %q, want %q and %q", got, s.preload, c.served, c.loaded)
			}
			for _, id := range s.preload {
				if _, err := s.catalog.Resolve(id); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// The hash of a bundle covers only its own models, whatever else is served.
func TestPreloadLeavesTheBundlesHash(t *testing.T) {
	f := sourceFlags{ModelsDir: catalogDir(t), Bundle: "default"}
	all, err := f.files()
	if err != nil {
		t.Fatal(err)
	}
	plain, err := f.narrow(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	f.preload = []string{golden.Open(t, "st-mean").Dir}
	more, err := f.narrow(t.Context(), all)
	if err != nil || more.hash != plain.hash || plain.hash == "" || more.bundle == nil {
		t.Errorf("%q, %q, %v", plain.hash, more.hash, err)
	}
}

// The file of a preloaded model may go later, as any other may. One that never existed is an error.
func TestPreloadedFileGoes(t *testing.T) {
	dir := catalogDir(t)
	f := sourceFlags{ModelsDir: dir, preload: []string{"acme/a"}, known: []string{"acme/a"}}
	before, err := f.files()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir + "/a.yaml"); err != nil {
		t.Fatal(err)
	}
	if got := f.readAgain(t.Context(), before); got.err != nil || served(got.use) != "acme/b" {
		t.Errorf("%v, %v", got.use, got.err)
	}
}

// A hub repository is asked about once, within the caller's time.
func TestHubIsAskedOnce(t *testing.T) {
	all, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	r := refs{all: all, onHub: func(id string) (*catalog.Model, error) {
		asked = append(asked, id)
		if id == "org/bad" {
			return nil, errors.New("no such repository")
		}
		return catalog.AdHoc(id, catalog.AdHocInfo{HFID: id})
	}}
	for _, flag := range []string{"--models", "--preload"} {
		if id, err := r.add(flag, "org/x"); err != nil || id != "org/x" {
			t.Errorf("%s, %v", id, err)
		}
	}
	if _, err := r.add("--preload", "org/bad"); err == nil ||
		err.Error() != "--preload org/bad: no such repository" {
		t.Error(err)
	}
	if !slices.Equal(asked, []string{"org/x", "org/bad"}) || len(r.extra) != 1 {
		t.Errorf("asked about %v; %d models", asked, len(r.extra))
	}
}
