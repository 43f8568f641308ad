package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"strconv"
	"time"
)

// Packages that put layers of their own around an encoder keep the encoder's configuration inside
// theirs, and its tensors behind a prefix. An architecture reads such an encoder as it reads any:
// its config.json is the inner configuration, and packer.nested has its prefix.

// nested says where an encoder is inside a model of another package. The zero value: it is the
// model.
type nested struct {
	config []byte // what the encoder's config.json would be; nil: the directory's own
	prefix string // of all its tensors
	// file and key say where the configuration stands if not in the model's config.json, for
	// messages
	file, key string
	// resized: the table of words has as many rows as the checkpoint says
	resized bool
	// segments names the table [3, C] of the segments of a text, which is added to the words before
	// the encoder's first norm; "": there is none
	segments string
}

// view returns the directory as the encoder sees it.
func (n nested) view(dir fs.FS) fs.FS {
	if n.config == nil {
		return dir
	}
	return nestedFS{dir, n.config}
}

// renamed turns an error about config.json into one about the file that holds the configuration.
func (n nested) renamed(err error) error {
	var e *ModelError
	if n.file == "" || !errors.As(err, &e) || path.Base(e.File) != configFile {
		return err
	}
	field := n.key
	if e.Field != "" {
		field += "." + e.Field
	}
	return &ModelError{File: n.file, Field: field, Reason: e.Reason}
}

// readVocab sets vocab_size to the rows of the checkpoint's table, where that decides.
func (n *nested) readVocab(from Checkpoint) error {
	if !n.resized {
		return nil
	}
	for _, name := range []string{wordTable, modernbertWords, t5Words, t5Embedded} {
		t, ok := from.Tensor(n.prefix + name)
		if !ok || len(t.Shape) != 2 {
			continue
		}
		var all map[string]json.RawMessage
		if err := json.Unmarshal(n.config, &all); err != nil {
			return err
		}
		all["vocab_size"] = json.RawMessage(strconv.FormatInt(t.Shape[0], 10))
		config, err := json.Marshal(all)
		n.config = config
		return err
	}
	return nil // the encoder says what is missing
}

// nestedFS is a directory with another config.json.
type nestedFS struct {
	fs.FS
	config []byte
}

// Open implements fs.FS.
func (n nestedFS) Open(name string) (fs.File, error) {
	if name == configFile {
		return &nestedFile{bytes.NewReader(n.config)}, nil
	}
	return n.FS.Open(name)
}

// nestedFile is the config.json of a nestedFS, and its own fs.FileInfo.
type nestedFile struct{ *bytes.Reader }

func (f *nestedFile) Stat() (fs.FileInfo, error) { return f, nil }
func (f *nestedFile) Close() error               { return nil }
func (f *nestedFile) Name() string               { return configFile }
func (f *nestedFile) Mode() fs.FileMode          { return 0o444 }
func (f *nestedFile) ModTime() time.Time         { return time.Time{} }
func (f *nestedFile) IsDir() bool                { return false }
func (f *nestedFile) Sys() any                   { return nil }

// isNested reports whether dir is a view of an encoder inside another package's model. A
// configuration inside another may leave out what is transformers' default, where a model's own
// config.json never leaves out a size.
func isNested(dir fs.FS) bool {
	_, nested := dir.(nestedFS)
	return nested
}

// innerConfig makes a config.json of the configuration that file has under key, with changes.
func innerConfig(file, key string, raw json.RawMessage, changes map[string]any) ([]byte, error) {
	inner := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&inner); err != nil {
		return nil, refuse(file, key, "is %.60s; the encoder's configuration is wanted", raw)
	}
	for k, v := range changes {
		inner[k] = v
	}
	name, _ := inner["model_type"].(string)
	if _, ok := architectures[name]; !ok {
		return nil, refuse(file, key+".model_type", "%.60q is not supported", name)
	}
	return json.Marshal(inner)
}
