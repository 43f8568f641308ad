package arch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/sie-engine/sie/internal/files"
)

// maxJSONBytes bounds a configuration file. Real ones are below 100 KB, but id2label may list a
// label per class.
const maxJSONBytes = 16 << 20

// ModelError says why a model directory cannot be served. A file contradicts itself or asks for
// something that is not supported. The error is permanent as long as the files do not change.
type ModelError struct {
	File   string // relative to the model directory
	Field  string // key or tensor, may be empty
	Reason string // the rule, what was found, what to do
}

func (e *ModelError) Error() string {
	if e.Field == "" {
		return e.File + ": " + e.Reason
	}
	return e.File + ": " + e.Field + ": " + e.Reason
}

func refuse(file, field, format string, args ...any) error {
	return &ModelError{File: file, Field: field, Reason: fmt.Sprintf(format, args...)}
}

// readJSON decodes the file with that name into v. A missing file is fs.ErrNotExist. Keys that v
// lacks are ignored, because published configurations have many of them.
func readJSON(dir fs.FS, name string, v any) error {
	data, err := readFile(dir, name)
	if err != nil {
		return err
	}
	err = json.Unmarshal(data, v)
	var mistyped *json.UnmarshalTypeError
	switch {
	case errors.As(err, &mistyped):
		return refuse(name, mistyped.Field, "is a JSON %s; %s is wanted", mistyped.Value, mistyped.Type)
	case err != nil:
		return refuse(name, "", "is not valid JSON: %v", err)
	}
	return nil
}

// needJSON reads a file as readJSON does and refuses a model without it.
func needJSON(dir fs.FS, name string, v any) error {
	err := readJSON(dir, name, v)
	if errors.Is(err, fs.ErrNotExist) {
		return refuse(name, "", "is missing; download the model again")
	}
	return err
}

func readFile(dir fs.FS, name string) ([]byte, error) {
	f, err := dir.Open(name)
	if errors.Is(err, files.ErrNotRegular) {
		return nil, &ModelError{File: name, Reason: strings.TrimPrefix(err.Error(), name+" ")}
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := files.ReadAll(f, maxJSONBytes)
	if errors.Is(err, files.ErrTooLarge) {
		return nil, refuse(name, "", "is larger than %d MB", maxJSONBytes>>20)
	}
	return data, err
}

// optional turns the error of a missing file into false and no error.
func optional(err error) (found bool, _ error) {
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
