package payload

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/testrig"
)

// writes names, in the environment, the directory into which this binary stores until it is killed.
const writes = "SIE_TEST_PAYLOAD_DIR"

const writtenBytes = 64 << 20

func TestMain(m *testing.M) {
	if path := os.Getenv(writes); path != "" {
		s, err := Open(path)
		data := bytes.Repeat([]byte("x"), writtenBytes)
		for err == nil {
			if err = s.Put(context.Background(), "key", data); err == nil {
				err = s.Delete(context.Background(), "key")
			}
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// A process that is killed in the middle of a Put leaves nothing, or the whole payload: never a
// part, and no file that has to be found later.
func TestAKilledProcessLeavesNothing(t *testing.T) {
	path := t.TempDir()
	if done, err := dir(path).putUnnamed("probe", nil); !done || err != nil {
		t.Skipf("%s has no files without names: %v", path, err)
	}
	if err := os.Remove(filepath.Join(path, "probe")); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		p := exec.Command(os.Args[0])
		testrig.DieWithParent(p)
		p.Env = append(os.Environ(), writes+"="+path)
		p.Stderr = os.Stderr
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		fds := fmt.Sprintf("/proc/%d/fd", p.Process.Pid)
		testrig.Until(t, "a file is being written", func() bool {
			list, _ := os.ReadDir(fds) // it may not have begun
			for _, fd := range list {
				to, _ := os.Readlink(filepath.Join(fds, fd.Name()))
				if strings.HasPrefix(to, path) {
					return true
				}
			}
			return false
		})
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = p.Wait() // it was killed
		left, err := os.ReadDir(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range left {
			if info, err := e.Info(); err != nil || e.Name() != "key" || info.Size() != writtenBytes {
				t.Errorf("%s is left, %v", e.Name(), err)
			}
			if err := os.Remove(filepath.Join(path, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
}
