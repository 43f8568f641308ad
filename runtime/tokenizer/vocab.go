package tokenizer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"
)

type addedToken struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	Lstrip     bool   `json:"lstrip"`
	Rstrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

func clone(ids map[string]int) map[string]int { return maps.Clone(ids) }

// decimal returns a number as text, and number the number of a text that is known to be one.
func decimal(i int) string { return strconv.Itoa(i) }

func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// read reads the vocabulary file of that name. Errors name the file and the line or entry.
func (v *vocabulary) read(name string) error {
	limit := int64(maxTokenizerBytes)
	if name == "vocab.txt" {
		limit = maxConfigBytes
	}
	data, err := read(v.path, limit)
	if err != nil {
		return err
	}
	switch name {
	case "vocab.txt":
		err = v.readLines(data)
	case "vocab.json":
		err = v.readIDs(data)
	default:
		if v.spm, err = readSPM(data); err != nil && looksLikeTiktoken(data) {
			err = errors.New("this is a tiktoken vocabulary, no SentencePiece model: " +
				"only the tokenizer.json made of it can be read")
		}
	}
	if err != nil {
		return fmt.Errorf("tokenizer: %s: %w", v.path, err)
	}
	v.ids, v.size = clone(v.own), len(v.own)
	if name == "vocab.json" {
		return v.readMerges(filepath.Join(filepath.Dir(v.path), "merges.txt"))
	}
	return nil
}

// looksLikeTiktoken reports whether the first line is a token in base64 and its rank.
func looksLikeTiktoken(data []byte) bool {
	line, _, _ := bytes.Cut(data[:min(len(data), 512)], []byte("\n"))
	fields := strings.Fields(string(line))
	if len(fields) != 2 {
		return false
	}
	_, err := strconv.Atoi(fields[1])
	return err == nil
}

// readLines reads a vocab.txt: one token per line; the line's number, from 0, is the id.
func (v *vocabulary) readLines(data []byte) error {
	if !utf8.Valid(data) {
		return errors.New("is not UTF-8")
	}
	text := strings.TrimSuffix(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
	v.own = make(map[string]int)
	for i, line := range strings.Split(text, "\n") {
		v.own[line] = i
	}
	return nil
}

// readIDs reads a vocab.json: an object of ids by token. No token and no id may stand twice.
func (v *vocabulary) readIDs(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("want an object of ids by token: %w", errors.Join(err, jsonKind(t)))
	}
	v.own = make(map[string]int)
	byID := make(map[int]string)
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		token, _ := key.(string)
		var id int
		if err := d.Decode(&id); err != nil {
			return fmt.Errorf("token %q: want an id: %w", token, err)
		}
		if id < 0 || id >= math.MaxInt32 {
			return fmt.Errorf("token %q has the id %d; ids are 0 to %d", token, id, math.MaxInt32-1)
		}
		if _, ok := v.own[token]; ok {
			return fmt.Errorf("token %q stands twice", token)
		}
		if other, ok := byID[id]; ok {
			return fmt.Errorf("tokens %q and %q have the same id %d", other, token, id)
		}
		v.own[token], byID[id] = id, token
	}
	if _, err := d.Token(); err != nil {
		return err
	}
	if len(v.own) == 0 {
		return errors.New("has no tokens")
	}
	return nil
}

func jsonKind(t json.Token) error { return fmt.Errorf("it begins with %v", t) }

// readMerges reads a merges.txt: two tokens a line, which become one; earlier lines come first.
func (v *vocabulary) readMerges(path string) error {
	data, err := read(path, maxTokenizerBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("tokenizer: %s is missing: %s alone says no merges", path, filepath.Base(v.path))
	}
	if err != nil {
		return err
	}
	v.merges = [][2]string{}
	lines := make(map[[2]string]int)
	scan := bufio.NewScanner(bytes.NewReader(data))
	scan.Buffer(nil, 1<<20)
	at := 0
	fail := func(format string, args ...any) error {
		return fmt.Errorf("tokenizer: %s:%d: %w", path, at, fmt.Errorf(format, args...))
	}
	for scan.Scan() {
		at++
		line := scan.Text()
		if strings.HasPrefix(line, "#version") {
			continue
		}
		parts := strings.Split(line, " ")
		if len(parts) != 2 {
			return fail("%.80q is no merge: want two tokens with one space between", line)
		}
		pair := [2]string{parts[0], parts[1]}
		for _, t := range append(parts, parts[0]+parts[1]) {
			if _, ok := v.own[t]; !ok {
				return fail("the merge names the token %.80q, which %s lacks", t, filepath.Base(v.path))
			}
		}
		if first, ok := lines[pair]; ok {
			return fail("the merge %.80q is also line %d", line, first)
		}
		lines[pair] = at
		v.merges = append(v.merges, pair)
	}
	if err := scan.Err(); err != nil {
		at++
		return fail("%w", err)
	}
	return nil
}

func (v *vocabulary) wantUnigram() error {
	if v.spm.bpe {
		return fmt.Errorf("trainer_spec.model_type is bpe; %s needs unigram", v.family.classes[0])
	}
	return nil
}

func (v *vocabulary) wantBPE() error {
	if !v.spm.bpe {
		return fmt.Errorf("trainer_spec.model_type is unigram; %s needs bpe", v.family.classes[0])
	}
	return nil
}

// spmMerges returns the merges of a SentencePiece BPE vocabulary, which the file does not hold:
// every way to make a piece of two others, in the order of the pieces.
func (v *vocabulary) spmMerges() [][2]string {
	// transformers sorts the ways of one piece by the ids of their halves and then by the length of
	// the left one, which no two of them share.
	merges := [][2]string{}
	for _, p := range v.spm.pieces {
		for at := range p.text {
			_, left := v.own[p.text[:at]]
			_, right := v.own[p.text[at:]]
			if left && right && at > 0 {
				merges = append(merges, [2]string{p.text[:at], p.text[at:]})
			}
		}
	}
	return merges
}
