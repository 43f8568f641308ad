package payload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sie-engine/sie/internal/files"
)

// dir keeps payloads as files of a directory, which all components must share.
type dir string

func openDir(path string) (Store, error) {
	if path == "" {
		return nil, errors.New("payload store: want a directory, s3://bucket/prefix or gs://bucket/prefix")
	}
	full, err := filepath.Abs(path)
	if err == nil {
		err = os.MkdirAll(full, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("payload store: %w", err)
	}
	return dir(full), nil
}

func (d dir) String() string { return string(d) + string(filepath.Separator) }

// putPrefix begins the names of files that are being written. No key begins with a dot.
const putPrefix = ".put-"

func (d dir) path(key string) string { return filepath.Join(string(d), key) }

func (d dir) Put(ctx context.Context, key string, data []byte) error {
	if err := check(key, data); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("store payload %s: %w", key, err)
	}
	done, err := d.putUnnamed(key, data)
	if err == nil && !done {
		err = d.putNamed(key, data)
	}
	if err != nil {
		return fmt.Errorf("store payload: %w", err)
	}
	return nil
}

// putNamed writes a file of another name, which a process that is killed meanwhile leaves, and
// gives it its name when it is whole.
func (d dir) putNamed(key string, data []byte) error {
	f, err := os.CreateTemp(string(d), putPrefix+"*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), d.path(key))
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

func (d dir) Get(ctx context.Context, key string, limit int64) ([]byte, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("fetch payload %s: %w", key, err)
	}
	data, err := read(d.path(key), limit)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	if err != nil {
		return nil, fmt.Errorf("fetch payload: %w", err)
	}
	return data, nil
}

// read returns the content of a file of at most limit bytes, in memory of its size.
func read(path string, limit int64) ([]byte, error) {
	f, info, err := files.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info.Size() > limit {
		return nil, fmt.Errorf("%s has %d bytes; at most %d are read", path, info.Size(), limit)
	}
	data := make([]byte, info.Size()) // a payload appears whole and does not grow
	_, err = io.ReadFull(f, data)
	return data, err
}

func (d dir) Delete(ctx context.Context, key string) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("delete payload %s: %w", key, err)
	}
	if err := os.Remove(d.path(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete payload: %w", err)
	}
	return nil
}

// abandoned is the age of a file that a Put began and will not end.
const abandoned = time.Hour

func (d dir) Expire(ctx context.Context, before time.Time) (int, error) {
	f, err := os.Open(string(d))
	if err != nil {
		return 0, fmt.Errorf("list the payloads: %w", err)
	}
	defer f.Close()
	n := 0
	for n < MaxExpired {
		list, err := f.ReadDir(1000)
		for _, e := range list {
			if ctx.Err() != nil {
				return n, fmt.Errorf("list the payloads: %w", ctx.Err())
			}
			half := strings.HasPrefix(e.Name(), putPrefix)
			if !half && !isKey(e.Name()) {
				continue
			}
			info, err := e.Info()
			old := err == nil && info.Mode().IsRegular() &&
				(info.ModTime().Before(before) || half && time.Since(info.ModTime()) > abandoned)
			if old && os.Remove(d.path(e.Name())) == nil {
				n++
			}
		}
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, fmt.Errorf("list the payloads: %w", err)
		}
	}
	return n, nil
}
