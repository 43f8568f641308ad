package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"unicode/utf8"

	"github.com/schollz/progressbar/v3"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	sie "github.com/sie-engine/sie/internal/cli"
	"github.com/sie-engine/sie/internal/half"
	"github.com/sie-engine/sie/internal/obs"
	"github.com/sie-engine/sie/runtime/metrics"
	"github.com/sie-engine/sie/runtime/service"
	"github.com/sie-engine/sie/runtime/task"
)

const (
	defaultModel = "sentence-transformers/all-MiniLM-L6-v2"
	// maxLine bounds one line of a file, in bytes.
	maxLine = 16 << 20
	// textsAhead is the number of lines that are read, encoded and written together.
	textsAhead = 4096
)

type encodeCmd struct {
	sourceFlags  `embed:""`
	computeFlags `embed:""`

	Model      string   `help:"Model that runs, whatever else --models, --models-dir and --bundle select: an id, or as with --models a directory or id=directory. Default: ${model}, or where those leave it out the first that they select." short:"M"`
	Text       []string `arg:"" optional:"" help:"Texts to encode; printed as JSON, one a line."`
	File       string   `help:"File with one text a line; - reads standard input." short:"f"`
	Out        string   `help:"NumPy file for the vectors of --file." short:"o"`
	Query      bool     `help:"The texts are queries: the model's query template applies."`
	Dimensions int      `help:"Keep the first components and renormalise." range:"0..1048576"`
	DType      string   `name:"dtype" aliases:"d-type" help:"float32, float16, int8, uint8 or binary." default:"float32" enum:"float32,float16,int8,uint8,binary"`
}

func (c *encodeCmd) Run() error {
	switch {
	case len(c.Text) == 0 && c.File == "":
		return errors.New(`nothing to encode: give texts, or --file lines.txt --out vectors.npy`)
	case len(c.Text) > 0 && c.File != "":
		return errors.New("give either texts or --file, not both")
	case (c.File != "") != (c.Out != ""):
		return errors.New("--file and --out go together")
	}
	ctx, cancel := sie.UntilSignal() // a second signal ends the process even while it reads a terminal
	defer cancel()
	if c.File == "" {
		return c.texts(ctx)
	}
	in := os.Stdin
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	st, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := createNPY(ctx, c.Out, c.DType, st)
	if err != nil {
		return err
	}
	size := int64(-1)
	if st.Mode().IsRegular() {
		size = st.Size()
	}
	n, tokens, err := c.file(ctx, in, size, out)
	if err = errors.Join(err, out.close(err == nil)); err == nil {
		fmt.Fprintf(os.Stderr, "\n%d texts, %d tokens → %s\n", n, tokens, c.Out)
	}
	return err
}

// start loads the model. It returns the model and a request without texts. The caller closes the
// service.
func (c *encodeCmd) start(
	ctx context.Context,
) (w *service.Service, m service.Model, req api.EncodeRequest, err error) {
	switch {
	case len(c.Models) == 0 && c.ModelsDir == "" && c.Bundle == "":
		c.Models = []string{cmp.Or(c.Model, defaultModel)}
	case c.Model != "": // the others may come from the environment, and leave it out
		c.preload, c.preloadFlag = []string{c.Model}, "--model"
	}
	id := refID(cmp.Or(c.Model, defaultModel))
	cat, err := c.catalog()
	if err != nil {
		return nil, m, req, err
	}
	log := obs.NewLogger(io.Discard, false, false)
	bars := &downloadBars{}
	w, err = newWorker(&c.sourceFlags, &c.computeFlags,
		&batchFlags{MaxBatchRequests: 64, MaxBatchWait: 15, MaxQueued: 2048, MemoryPercent: 95, MaxLoRAs: 10},
		cat, log, metrics.New(), admit.Options{}, bars.update)
	if err != nil {
		return nil, m, req, err
	}
	if c.Model == "" && len(cat.List()) > 0 && !has(cat.List(), id) {
		id = cat.List()[0].ID
	}
	if err := w.Preload(ctx, id); err != nil {
		w.Close()
		return nil, m, req, err
	}
	if m, err = w.Find(id); err != nil {
		w.Close()
		return nil, m, req, err
	}
	return w, m, api.EncodeRequest{
		OutputDType: c.DType, IsQuery: &c.Query, ForeignOptions: api.ForeignOptions{Dimensions: c.Dimensions},
	}, nil
}

// texts prints the vectors of the texts on the command line.
func (c *encodeCmd) texts(ctx context.Context) error {
	for i, text := range c.Text {
		if !utf8.ValidString(text) {
			return fmt.Errorf("text %d is not UTF-8", i+1)
		}
	}
	w, m, req, err := c.start(ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	req.Items = task.Texts(c.Text)
	res, err := m.Encode(admit.Unbounded(ctx), &req)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(os.Stdout)
	for i := range res.Items {
		row := res.Items[i].Dense
		v := map[string]any{
			"text": c.Text[i], "dims": row.Dims, "dtype": c.DType,
			"values": numbers(row.Values.Data, c.DType),
		}
		if err := enc.Encode(v); err != nil {
			return err
		}
	}
	return nil
}

// file encodes the lines of in and writes the vectors to a NumPy file, with a progress bar on a
// terminal. size is in bytes, or -1 if unknown. It returns the number of texts and tokens.
func (c *encodeCmd) file(
	ctx context.Context, in io.Reader, size int64, out *npyFile,
) (n, tokens int, err error) {
	w, m, req, err := c.start(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer w.Close()
	bar := progressbar.DefaultBytes(size, "encoding")
	lines := newTextLines(in)
	var texts []string
	for {
		read := 0
		if texts, read, err = lines.next(texts[:0], textsAhead); err != nil {
			return n, tokens, fmt.Errorf("%s, %w", c.File, err)
		}
		if len(texts) == 0 {
			break
		}
		req.Items = task.Texts(texts)
		res, err := m.Encode(admit.Unbounded(ctx), &req)
		if err != nil {
			return n, tokens, fmt.Errorf("lines %d to %d: %w", n+1, n+len(texts), err)
		}
		for i := range res.Items {
			if err := out.write(res.Items[i].Dense.Values.Data); err != nil {
				return n, tokens, err
			}
		}
		n, tokens = n+len(texts), tokens+res.Usage.InputTokens
		_ = bar.Add(read)
	}
	_ = bar.Finish()
	return n, tokens, nil
}

// textLines reads one text per line.
type textLines struct {
	scan *bufio.Scanner
	line int // lines read so far
}

func newTextLines(r io.Reader) *textLines {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), maxLine)
	return &textLines{scan: s}
}

// next appends up to n texts to dst, none at the end of the file. read is the bytes they took.
func (l *textLines) next(dst []string, n int) (texts []string, read int, err error) {
	for len(dst) < n && l.scan.Scan() {
		l.line++
		if !utf8.Valid(l.scan.Bytes()) {
			return nil, 0, fmt.Errorf("line %d: the text is not UTF-8", l.line)
		}
		dst = append(dst, l.scan.Text())
		read += len(l.scan.Bytes()) + 1
	}
	if err := l.scan.Err(); err != nil {
		return nil, 0, fmt.Errorf("line %d: %w (a line may have %d bytes)", l.line+1, err, maxLine)
	}
	return dst, read, nil
}

// numbers returns the components of a row as JSON shows them.
func numbers(row []byte, dtype string) any {
	switch dtype {
	case "float32":
		out := make([]float32, len(row)/4)
		for i := range out {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(row[4*i:]))
		}
		return out
	case "float16":
		out := make([]float32, len(row)/2)
		for i := range out {
			out[i] = half.ToFloat32(binary.LittleEndian.Uint16(row[2*i:]))
		}
		return out
	case "int8":
		out := make([]int, len(row))
		for i, b := range row {
			out[i] = int(int8(b))
		}
		return out
	}
	out := make([]int, len(row))
	for i, b := range row {
		out[i] = int(b)
	}
	return out
}
