package hub

import (
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/internal/testrig"
)

// Named pipes in the cache block neither a download nor an upload.
func TestPipesInTheCache(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	testrig.WithoutPipe(t, func() {
		if err := createRecord(path); !errors.Is(err, unix.ENXIO) {
			t.Errorf("in place of the record of uses: %v", err)
		}
		if err := new(uploader).uploadBlob(t.Context(), path, "", remoteFile{size: 1}); !errors.Is(err,
			files.ErrNotRegular) {
			t.Errorf("in place of a file to upload: %v", err)
		}
		if exists(path) {
			t.Error("a pipe counts as a file")
		}
	}, path)
	if err := (&blobDownload{
		file: remoteFile{name: "x", size: 1, hash: "00"}, report: &reporter{},
	}).open(t.Context(), path); err == nil {
		t.Error("a partial file that is a pipe is taken up")
	}
}
