package golden

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// magic begins an archive of testdata/packed. tools/golden/packed.py makes and unpacks them; here
// only their list of files is read.
const magic = "sie-packed-1\n"

// archive returns the sum of each file in an archive, by its name in the case.
func archive(path string) (map[string]string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("golden: %w", err)
	}
	rest, ok := bytes.CutPrefix(raw, []byte(magic))
	if !ok || len(rest) < 4 || uint64(binary.LittleEndian.Uint32(rest)) > uint64(len(rest)-4) {
		return nil, fmt.Errorf("golden: %s is no archive of golden files: restore it with git", path)
	}
	var index struct {
		Files map[string]struct {
			SHA256 string `json:"sha256"`
		} `json:"files"`
	}
	packed, err := zlib.NewReader(bytes.NewReader(rest[4 : 4+binary.LittleEndian.Uint32(rest)]))
	if err == nil {
		var words []byte
		if words, err = io.ReadAll(packed); err == nil {
			err = json.Unmarshal(words, &index)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("golden: %s: its index cannot be read: %w: restore it with git", path, err)
	}
	sums := map[string]string{}
	for name, file := range index.Files {
		sums[name] = file.SHA256
	}
	return sums, nil
}

// archives returns the archives that belong to a folder of cases, by case.
func archives(root string) (map[string]string, error) {
	paths, err := filepath.Glob(filepath.Join(filepath.Dir(root), "packed", "*.packed"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("golden: no archives beside %s: restore testdata/packed with git", root)
	}
	byCase := map[string]string{}
	for _, path := range paths {
		byCase[strings.TrimSuffix(filepath.Base(path), ".packed")] = path
	}
	return byCase, nil
}

var checked sync.Map // a folder of cases → func() error

// unpacked says what is in an archive and not in its case. It looks once at a folder of cases, and
// not at what the files hold: [Open] compares them with the manifest.
func unpacked(root string) error {
	once, _ := checked.LoadOrStore(root, sync.OnceValue(func() error {
		byCase, err := archives(root)
		if err != nil {
			return err
		}
		for name, path := range byCase {
			sums, err := archive(path)
			if err != nil {
				return err
			}
			for file := range sums {
				if _, err := os.Stat(filepath.Join(root, name, file)); err != nil {
					return fmt.Errorf("golden: %s/%s is packed in %s and not there: run `make testdata`", name, file,
						filepath.Join("testdata", "packed", filepath.Base(path)))
				}
			}
		}
		return nil
	}))
	return once.(func() error)()
}
