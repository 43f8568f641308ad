package model

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/tokenizer"
)

// idfFiles are the files in which a SPLADE model stores the weights of query tokens, in order of
// preference.
var idfFiles = []string{"query_token_weights.txt", "idf.json"}

// maxIDFBytes bounds such a file; a table of 250,000 tokens has about 6 MB.
const maxIDFBytes = 64 << 20

// readIDF returns the weight of each token id in queries, or nil if the model has no such file. The
// log is told how many tokens of the file the tokenizer does not have: a few may be left over, and
// many say that the file belongs to another tokenizer.
func readIDF(dir string, t *tokenizer.Tokenizer, log *slog.Logger) ([]float32, error) {
	for _, name := range idfFiles {
		data, err := files.Read(filepath.Join(dir, name), maxIDFBytes)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		switch {
		case errors.Is(err, files.ErrTooLarge):
			return nil, &arch.ModelError{
				File: name, Reason: fmt.Sprintf("is larger than %d MB", maxIDFBytes>>20),
			}
		case err != nil:
			return nil, &arch.ModelError{File: name, Reason: err.Error()}
		}
		parse := parseIDFJSON
		if strings.HasSuffix(name, ".txt") {
			parse = parseIDFTable
		}
		weights, known := make([]float32, t.VocabSize()), 0
		unknown, one := 0, "" // one of them, always the same
		err = parse(data, func(token string, w float64) error {
			if math.IsNaN(w) || math.IsInf(w, 0) || math.Abs(w) > math.MaxFloat32 {
				return fmt.Errorf("token %.40q has the weight %v; it must be finite", token, w)
			}
			id, ok := t.TokenToID(token)
			if !ok { // it cannot occur in a query
				if unknown == 0 || token < one {
					one = token
				}
				unknown++
				return nil
			}
			weights[id] = float32(w)
			known++
			return nil
		})
		if err == nil && known == 0 {
			err = errors.New("has a weight for no token of the tokenizer")
		}
		if err != nil {
			return nil, &arch.ModelError{File: name, Reason: err.Error()}
		}
		if unknown > 0 {
			log.Warn("weights of query tokens that the tokenizer does not have are of no use: is the file of another tokenizer?",
				"directory", dir, "file", name, "unknown", unknown, "known", known,
				"one_of_them", fmt.Sprintf("%.40q", one))
		}
		return weights, nil
	}
	return nil, nil
}

// queryWeights returns the weight of each token id in queries from the model's own module, or nil
// without one. The module reads a query without special tokens, so CLS and SEP have weight 0.
func (l *Model) queryWeights() ([]float32, error) {
	have := l.weights.QueryWeights
	if have == nil {
		return nil, nil
	}
	if n := l.tokenizer.VocabSize(); n > len(have) {
		return nil, &arch.ModelError{
			File:   "tokenizer.json",
			Reason: fmt.Sprintf("has ids up to %d; the queries' table has %d weights", n-1, len(have)),
		}
	}
	table := slices.Clone(have)
	for _, id := range []int32{l.tokenizer.Special().CLS, l.tokenizer.Special().SEP} {
		if id >= 0 {
			table[id] = 0
		}
	}
	return table, nil
}

func parseIDFJSON(data []byte, entry func(string, float64) error) error {
	var table map[string]*float64
	if err := json.Unmarshal(data, &table); err != nil {
		return fmt.Errorf("is no JSON object of numbers: %w", err)
	}
	for token, w := range table {
		if w == nil {
			return fmt.Errorf("token %.40q has the weight null; it must be a number", token)
		}
		if err := entry(token, *w); err != nil {
			return err
		}
	}
	return nil
}

// parseIDFTable reads lines of token, tab, weight.
func parseIDFTable(data []byte, entry func(string, float64) error) error {
	lines := bufio.NewScanner(strings.NewReader(string(data)))
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if strings.TrimSpace(line) == "" {
			continue
		}
		token, number, ok := strings.Cut(line, "\t")
		w, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if !ok || err != nil {
			return fmt.Errorf("line %d is not a token, a tab and a number", n)
		}
		if err := entry(token, w); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return lines.Err()
}
