package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The last line gives the memory for the threads asked for: the size of an arena lane times the
// threads, plus one region.
func TestDoctorProgram(t *testing.T) {
	dir := "../../testdata/golden/bert-deep-h32"
	for _, threads := range []int{1, 64} {
		c := &doctorCmd{Program: dir, ProgramThreads: threads}
		c.Device, c.Precision, c.ISA = "cpu", "fp32", "best"
		var out bytes.Buffer
		if err := c.program(&out); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		var lane, region, all int64
		last := text[strings.LastIndex(strings.TrimRight(text, "\n"), "\n")+1:]
		if _, err := fmt.Sscanf(last,
			fmt.Sprintf("in fp32 on %d threads: lanes of %%d bytes, a region of %%d bytes, %%d bytes",
				threads), &lane, &region, &all); err != nil {
			t.Fatalf("%v in %q", err, last)
		}
		if lane <= 0 || all != lane*int64(threads)+region {
			t.Errorf("%d threads: %d bytes of lanes of %d and a region of %d", threads, all, lane, region)
		}
		if !strings.Contains(text, "attention") {
			t.Errorf("no listing:\n%s", text)
		}
	}
}

// A model of longer texts has two programs, and both are printed with their memory.
func TestDoctorPrintsTheProgramOfLongTexts(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../testdata/golden/qwen3-gqa-d64")); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config.json")
	data, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	positions := regexp.MustCompile(`"max_position_embeddings": \d+`)
	data = positions.ReplaceAll(data, []byte(`"max_position_embeddings": 20000`))
	if err := os.WriteFile(config, data, 0o600); err != nil {
		t.Fatal(err)
	}
	c := &doctorCmd{Program: dir, ProgramThreads: 64}
	c.Device, c.Precision, c.ISA = "cpu", "fp32", "best"
	var out bytes.Buffer
	if err := c.program(&out); err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{"texts of 8193 to 20000 tokens:",
		"20000 a sequence, at least 8193", "region of 20032 tokens"} {
		if !strings.Contains(out.String(), says) {
			t.Errorf("%q is missing in\n%s", says, out.String())
		}
	}
	if n := strings.Count(out.String(), "in fp32 on 64 threads: lanes of"); n != 2 {
		t.Errorf("the memory of %d programs", n)
	}
}

func TestDoctorProgramRefuses(t *testing.T) {
	c := &doctorCmd{Program: t.TempDir()}
	c.Device, c.Precision, c.ISA = "cpu", "auto", "best"
	if err := c.program(&bytes.Buffer{}); err == nil {
		t.Error("an empty directory is a model")
	}
	c.Precision = "fp8"
	c.Program = "../../testdata/golden/bert-deep-h32"
	if err := c.program(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "fp8") {
		t.Errorf("fp8 on a CPU: %v", err)
	}
}

// A model whose texts share what they begin with has a program for it, and a state of keys and
// values: 2 blocks of 2·2·32 columns for each of 1,024 tokens, 4 bytes each.
func TestDoctorPrintsTheProgramOfPrefixes(t *testing.T) {
	c := &doctorCmd{Program: "../../testdata/golden/judge-chat"}
	c.Device, c.Precision, c.ISA = "cpu", "fp32", "best"
	var out bytes.Buffer
	if err := c.program(&out); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Count(text, ") in all\n") != 2 ||
		!strings.HasSuffix(text, "its keys and values: 1048576 bytes (1 MiB) for each batch in flight\n") {
		t.Error(text)
	}
}
