package weights_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/weights"
	"github.com/sie-engine/sie/weights/weightstest"
)

// torchFiles were written by PyTorch with testdata/make_torch.py, each with the same tensors in
// safetensors beside it.
const torchFiles = "testdata/torch"

func TestTorchFilesHoldWhatPyTorchWrote(t *testing.T) {
	for name, tensors := range map[string]int{
		"dtypes": 13, "views": 12, "module": 6, "protocol4": 6, "nested": 7,
	} {
		t.Run(name, func(t *testing.T) {
			got, err := weights.OpenFile(filepath.Join(torchFiles, name+".bin"))
			if err != nil {
				t.Fatal(err)
			}
			defer got.Close()
			if len(got.Names()) != tensors || got.Name() != name+".bin" {
				t.Errorf("%s has %d tensors, want %d", got.Name(), len(got.Names()), tensors)
			}
			sameTensors(t, got, name)
		})
	}
}

func sameTensors(t *testing.T, got *weights.Checkpoint, name string) {
	t.Helper()
	want, err := weights.OpenFile(filepath.Join(torchFiles, name+".safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	if !slices.Equal(got.Names(), want.Names()) || got.Bytes() != want.Bytes() {
		t.Errorf("names %q, %d bytes; want %q, %d", got.Names(), got.Bytes(), want.Names(), want.Bytes())
	}
	for _, tensor := range want.Names() {
		g, _ := got.Tensor(tensor)
		w, _ := want.Tensor(tensor)
		if g.DType != w.DType || !slices.Equal(g.Shape, w.Shape) ||
			!bytes.Equal(weightstest.Bytes(g), weightstest.Bytes(w)) {
			t.Errorf("%s is %s %v %x, want %s %v %x",
				tensor, g.DType, g.Shape, weightstest.Bytes(g), w.DType, w.Shape, weightstest.Bytes(w))
		}
	}
}

// Open uses torch files when there are no others, single or sharded.
func TestOpenFallsBackToTorch(t *testing.T) {
	c, err := weights.Open(filepath.Join(torchFiles, "sharded"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sameTensors(t, c, "sharded")

	dir := t.TempDir()
	file, err := os.ReadFile(filepath.Join(torchFiles, "views.bin"))
	if err != nil {
		t.Fatal(err)
	}
	weightstest.WriteFile(t, dir, weights.TorchFile, file)
	single, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer single.Close()
	sameTensors(t, single, "views")

	weightstest.WriteFile(t, dir, weights.SingleFile,
		weightstest.Encode(nil, weightstest.Float32("a", []int64{1}, 1)))
	both, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer both.Close()
	if both.Name() != weights.SingleFile {
		t.Errorf("with both files there, %s was opened", both.Name())
	}
}

func TestTorchFilesThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string { return weightstest.WriteFile(t, dir, name, []byte(content)) }
	whole, err := os.ReadFile(filepath.Join(torchFiles, "module.bin"))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(torchFiles, "evil.bin"):   `names "system" of "posix"`,
		filepath.Join(torchFiles, "legacy.bin"): "PyTorch before 1.6",
		filepath.Join(torchFiles, "script.bin"): "TorchScript",

		write("empty.bin", ""): "not an archive",
		write("lfs.bin", "version https://git-lfs.github.com/spec/v1\n"): "git-lfs pointer",
		write("cut.pt", string(whole[:len(whole)-1])):                    "cut short",
		write("head.pt", string(whole[:40])):                             "cut short",
		write("big-endian.pt",
			strings.ReplaceAll(string(whole), "little", "bigbig")): "little-endian",
		write("renamed.pt",
			strings.ReplaceAll(string(whole), "/data/0", "/dada/0")): "not in the archive",
		write("short.pt",
			strings.ReplaceAll(string(whole), "K\x0ft", "K\x10t")): "do not fit",
		write("no-pickle.pt",
			strings.ReplaceAll(string(whole), "/data.pkl", "/date.pkl")): "no data.pkl",
		write("no-header.pt",
			strings.ReplaceAll(string(whole), "PK\x03\x04", "PK\x03\x05")[4:]): "not an archive",
	} {
		_, err := weights.OpenFile(path)
		var fe *weights.FormatError
		if !errors.As(err, &fe) || !strings.Contains(err.Error(), want) || fe.File != path {
			t.Errorf("%s: error is %v, want a *FormatError with %q", path, err, want)
		}
	}
}
