package payload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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

func (d dir) path(key string) string { return filepath.Join(string(d), key) }

func (d dir) Put(ctx context.Context, key string, data []byte) error {
	if err := check(key, data); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("store payload %s: %w", key, err)
	}
	// begins with a dot, so no key names it
	f, err := os.CreateTemp(string(d), ".put-*")
	if err != nil {
		return fmt.Errorf("store payload: %w", err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), d.path(key))
	}
	if err != nil {
		return fmt.Errorf("store payload: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

func (d dir) Get(ctx context.Context, key string, limit int64) ([]byte, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("fetch payload %s: %w", key, err)
	}
	data, err := files.Read(d.path(key), limit)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	if err != nil {
		return nil, fmt.Errorf("fetch payload: %w", err)
	}
	return data, nil
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
