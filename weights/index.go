package weights

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sie-engine/sie/internal/files"
)

// The bounds of an index. Each shard uses one file descriptor while the checkpoint is open.
const (
	maxIndexBytes = 100_000_000
	maxShards     = 4096
)

// shardIndex is a checked model.safetensors.index.json or pytorch_model.bin.index.json.
type shardIndex struct {
	shards  []string       // file names, in order of first mention
	shardOf map[string]int // tensor name → position in shards
}

// readIndex reads and checks the index at path.
func readIndex(path string) (*shardIndex, error) {
	f, _, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := files.ReadAll(f, maxIndexBytes)
	switch {
	case errors.Is(err, files.ErrTooLarge):
		return nil, &FormatError{File: path, Field: "file", Reason: err.Error() + ", the limit for an index"}
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	extension := ".safetensors"
	if filepath.Base(path) == TorchIndexFile {
		extension = ".bin"
	}
	ix, err := parseIndex(raw, extension)
	if err != nil {
		var fe *FormatError
		if !errors.As(err, &fe) {
			fe = &FormatError{Field: "index", Reason: err.Error()}
		}
		fe.File = path
		return nil, fe
	}
	return ix, nil
}

// parseIndex parses an index whose shards end in extension. It reads weight_map strictly and skips
// the free-form metadata. It ignores total_size, because published indexes get it wrong and nothing
// depends on it. On error the index is nil.
func parseIndex(raw []byte, extension string) (*shardIndex, error) {
	if !utf8.Valid(raw) {
		return nil, errors.New("is not valid UTF-8")
	}
	var ix *shardIndex
	s := &scanner{data: raw}
	err := s.object(func(key string) error {
		if key != "weight_map" {
			return s.skip(1)
		}
		if ix != nil {
			return &FormatError{Field: key, Reason: "occurs twice"}
		}
		ix = &shardIndex{shardOf: make(map[string]int)}
		position := make(map[string]int)
		return s.object(func(tensor string) error {
			fail := func(format string, args ...any) error {
				return &FormatError{Tensor: tensor, Field: key, Reason: fmt.Sprintf(format, args...)}
			}
			if _, dup := ix.shardOf[tensor]; dup {
				return fail("the name occurs twice")
			}
			s.space()
			shard, err := s.str()
			if err != nil {
				return fail("%v", err)
			}
			at, known := position[shard]
			if !known {
				if !plainShardName(shard, extension) {
					return fail("%s is not the plain name of a %s file in the same directory",
						quoted(shard), extension)
				}
				if len(ix.shards) == maxShards {
					return fail("more than %d shards", maxShards)
				}
				at = len(ix.shards)
				position[shard] = at
				ix.shards = append(ix.shards, shard)
			}
			ix.shardOf[tensor] = at
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	if err := s.end(); err != nil {
		return nil, err
	}
	if ix == nil {
		return nil, &FormatError{Field: "weight_map", Reason: "missing"}
	}
	if err := checkNumbers(ix.shards); err != nil {
		return nil, err
	}
	return ix, nil
}

// numbered matches the names that savers give to shards: model-00001-of-00004.safetensors.
var numbered = regexp.MustCompile(`^(.*)-([0-9]{1,9})-of-([0-9]{1,9})\.[a-z]+$`)

// checkNumbers refuses shards that cannot be of one checkpoint by their numbers: one that stands
// twice, one beyond the last, and sets of different size.
func checkNumbers(shards []string) error {
	fail := func(format string, args ...any) error {
		return &FormatError{Field: "weight_map", Reason: fmt.Sprintf(format, args...)}
	}
	byNumber, set := map[int]string{}, ""
	for _, shard := range shards {
		parts := numbered.FindStringSubmatch(shard)
		if parts == nil {
			continue
		}
		number, _ := strconv.Atoi(parts[2])
		last, _ := strconv.Atoi(parts[3])
		if other, again := byNumber[number]; again {
			return fail("names shard %d twice, as %s and %s", number, other, shard)
		}
		if number < 1 || number > last {
			return fail("names the shard %s; there are %d", shard, last)
		}
		byNumber[number] = shard
		if set == "" {
			set = parts[3]
		}
		if was, _ := strconv.Atoi(set); was != last {
			return fail("names %s beside a shard of %d: these are two checkpoints", shard, was)
		}
	}
	return nil
}

// plainShardName reports whether an index may name this file: a visible file in the directory of
// the index. Any other name (a path, "..", a NUL) could make a hostile index read a file that the
// model does not own.
func plainShardName(name, extension string) bool {
	return len(name) <= 255 && strings.HasSuffix(name, extension) && name[0] != '.' &&
		filepath.IsLocal(name) && !strings.ContainsAny(name, "/\\\x00")
}

// openRegular opens a regular file for reading. Any other kind of file is a *FormatError.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	f, info, err := files.OpenRegular(path)
	if errors.Is(err, files.ErrNotRegular) {
		err = &FormatError{File: path, Field: "file", Reason: "is not a regular file"}
	}
	return f, info, err
}
