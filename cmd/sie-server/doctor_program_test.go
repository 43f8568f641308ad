package main

import (
	"bytes"
	"fmt"
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
