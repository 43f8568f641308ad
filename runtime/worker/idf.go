package worker

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/tokenizer"
)

// This file is about sparse weights that need no vocabulary-wide forward pass: queries of models that bring a table of
// token weights, and BGE-M3's weight of each token.

// The files in which a SPLADE model publishes the weights of query tokens, in order of preference.
var idfFiles = []string{"query_token_weights.txt", "idf.json"}

// maxIDFBytes bounds such a file; a table over 250,000 tokens has some 6 MB.
const maxIDFBytes = 64 << 20

// readIDF returns the weight of each token id in queries, or nil where the model has no table.
func readIDF(dir string, t *tokenizer.Tokenizer) ([]float32, error) {
	for _, name := range idfFiles {
		data, err := files.Read(filepath.Join(dir, name), maxIDFBytes)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		switch {
		case errors.Is(err, files.ErrTooLarge):
			return nil, &arch.ModelError{File: name, Reason: fmt.Sprintf("is larger than %d MB", maxIDFBytes>>20)}
		case err != nil:
			return nil, &arch.ModelError{File: name, Reason: err.Error()}
		}
		parse := parseIDFJSON
		if strings.HasSuffix(name, ".txt") {
			parse = parseIDFTable
		}
		weights := make([]float32, t.VocabSize())
		err = parse(data, func(token string, w float64) error {
			if math.IsNaN(w) || math.IsInf(w, 0) || math.Abs(w) > math.MaxFloat32 {
				return fmt.Errorf("token %.40q has the weight %v; it must be finite", token, w)
			}
			if id, ok := t.TokenToID(token); ok { // tokens of no id cannot occur in a query
				weights[id] = float32(w)
			}
			return nil
		})
		if err != nil {
			return nil, &arch.ModelError{File: name, Reason: err.Error()}
		}
		return weights, nil
	}
	return nil, nil
}

// queryWeights returns the weight of each token id in queries that the model's own module has, or nil without one. The module
// reads a query without special tokens, so those that frame a text weigh nothing.
func (l *model) queryWeights() ([]float32, error) {
	have := l.weights.QueryWeights
	if have == nil {
		return nil, nil
	}
	if n := l.tokenizer.VocabSize(); n > len(have) {
		return nil, &arch.ModelError{File: "tokenizer.json", Reason: fmt.Sprintf("has ids up to %d; the queries' table has %d weights", n-1, len(have))}
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
	var table map[string]float64
	if err := json.Unmarshal(data, &table); err != nil {
		return fmt.Errorf("is no JSON object of numbers: %w", err)
	}
	for token, w := range table {
		if err := entry(token, w); err != nil {
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

// lookUp answers a request for sparse queries from the table alone: each of a query's tokens once, special ones too.
func (e *encoding) lookUp() error {
	for first := 0; first < e.n; first += chunkTexts {
		end := min(first+chunkTexts, e.n)
		ids, err := e.ids(first, end)
		if err != nil {
			return err
		}
		more := int64(0)
		for i := range ids {
			more += 8 * int64(len(ids[i])) // a column and a weight
		}
		if err := e.hold(more, end); err != nil {
			return err
		}
		for i := range ids {
			var row weighted
			for _, id := range ids[i] {
				if w := e.model.idf[id]; w > 0 {
					row.columns, row.weights = append(row.columns, id), append(row.weights, w)
				}
			}
			row.byColumn()
			e.result.Sparse[first+i] = e.forms.sparseOf(row)
		}
	}
	return nil
}

// lexical is BGE-M3's sparse row: the largest weight of each token id, special tokens left out.
func (l *model) lexical(ids []int32, weights []float32) weighted {
	special := l.tokenizer.Special()
	var row weighted
	for i, id := range ids {
		if id == special.CLS || id == special.SEP || id == special.PAD || id == special.UNK {
			continue
		}
		if w := weights[i]; w > 0 {
			row.columns, row.weights = append(row.columns, id), append(row.weights, w)
		}
	}
	row.byColumn()
	return row
}
