package tokenizer

import (
	"context"
	"errors"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sie-engine/sie/internal/testrig"
)

// memory returns the resident bytes of the process: now, and the most since the last reset.
func memory(t *testing.T) (now, peak int64) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	must(err)
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		var kib int64
		for _, digit := range fields[1] {
			kib = kib*10 + int64(digit-'0')
		}
		switch fields[0] {
		case "VmRSS:":
			now = kib << 10
		case "VmHWM:":
			peak = kib << 10
		}
	}
	return now, peak
}

// TestMemoryOfHostileTexts checks that two megabytes of text need bounded memory, whatever they
// normalise to and with or without a limit, and that the memory is freed. With a number in
// SIE_TEST_TURN each tokenizer reads every fourth of them; four turns in a row have all.
func TestMemoryOfHostileTexts(t *testing.T) {
	if testing.Short() {
		t.Skip("texts of megabytes, one after another; without -short")
	}
	repeat := func(s string) string { return strings.Repeat(s, 2_000_000/len(s)) }
	mine := testrig.Part(t, 4)
	for k, kind := range []string{"xlmr", "roberta", "sentencepiece", "minilm"} {
		tok := load(t, kind)
		for i, c := range []struct{ name, text string }{
			{"grows 18 times", repeat("ﷺ")}, {"one letter", repeat("a")},
			{"Chinese", repeat("北京市是中华人民共和国的首都")}, {"Russian", repeat("Привет мир, ")},
			{"marks", repeat("\u0301")}, {"spaces", repeat(" ")}, {"nothing to cut", repeat("。-")},
		} {
			if !mine(k + i) {
				continue
			}
			name, text := c.name, c.text
			for _, limit := range []int{512, 0} {
				var b Batch
				debug.FreeOSMemory()
				if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
					t.Skipf("the peak of the resident memory cannot be reset here: %v", err)
				}
				before, _ := memory(t)
				if limit == 0 {
					text = text[:len(text)/6] // all of it is tokenized, which takes long
				}
				err := tok.Encode(&b, []string{text}, Options{MaxTokens: limit})
				if err != nil && !errors.Is(err, ErrTooLong) {
					t.Errorf("%s, %s, limit %d: %v", kind, name, limit, err)
				}
				ids := int64(8 * cap(b.IDs)) // here and in the library
				_, peak := memory(t)
				b = Batch{}
				debug.FreeOSMemory()
				after, _ := memory(t)
				t.Logf("%-14s %-16s %4d: peak %4d MiB, kept %3d, ids %d: %v",
					kind, name, limit, (peak-before)>>20, (after-before)>>20, ids/8, err)
				if most := int64(96<<20) + 3*ids; peak-before > most {
					t.Errorf("%s, %s, limit %d: %d MiB, more than %d",
						kind, name, limit, (peak-before)>>20, most>>20)
				}
				if after-before > 48<<20 {
					t.Errorf("%s, %s, limit %d: %d MiB are kept", kind, name, limit, (after-before)>>20)
				}
			}
		}
	}
}

// The tokenizing of a text stops when its context ends.
func TestStopsInsideAText(t *testing.T) {
	for _, kind := range []string{"xlmr", "roberta"} {
		tok := load(t, kind)
		text := strings.Repeat("Привет мир, ", 20_000)
		ctx, cancel := context.WithCancel(t.Context())
		stop, release := stopFlag(ctx, len(text))
		cancel()
		release()
		for atomic.LoadUint32(stop) == 0 { // the function that AfterFunc started still runs
			stop, release = stopFlag(ctx, len(text))
			release()
		}
		var b Batch
		err := tok.encode(&b, input{texts: []string{text}}, 0, 1, Options{}, stop)
		if err != errStopped || len(b.IDs) != 0 {
			t.Errorf("%s: %v, %d ids", kind, err, len(b.IDs))
		}
		if _, _, err := tok.encodeSpans(text, Options{}, stop); err != errStopped {
			t.Errorf("%s with places: %v", kind, err)
		}
	}
}
