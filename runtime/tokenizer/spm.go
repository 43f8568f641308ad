package tokenizer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	maxPieces     = 4 << 20 // the largest published vocabularies have 262,144
	maxPieceBytes = 1 << 10
)

// spmModel is what a SentencePiece model file (ModelProto) says about tokenizing.
type spmModel struct {
	pieces       []spmPiece
	bpe          bool
	byteFallback bool
	unkID        int
	unkPiece     string
	charsmap     []byte // compiled replacements of the normalizer; empty: none
}

// spmPiece is an entry of the vocabulary. Its place in the file is its id.
type spmPiece struct {
	text  string
	score float32
	kind  uint64
}

// The kinds of pieces that matter here.
const (
	spmControl     = 3
	spmUserDefined = 4
	spmLastKind    = 6
)

// readSPM reads a SentencePiece model. The result holds no view of data. Errors name the field.
// Source: sentencepiece_model.proto of the SentencePiece project.
func readSPM(data []byte) (*spmModel, error) {
	m := &spmModel{unkPiece: "<unk>"}
	kind := uint64(1) // Unigram
	err := spmFields(data, func(f spmField) error {
		switch f.number {
		case 1:
			if err := m.addPiece(f); err != nil {
				return fmt.Errorf("pieces[%d]%w", len(m.pieces), err)
			}
		case 2:
			return f.message("trainer_spec", func(f spmField) error { return m.trainer(f, &kind) })
		case 3:
			return f.message("normalizer_spec", m.normalizer)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	switch kind {
	case 1, 2:
		m.bpe = kind == 2
	case 3, 4:
		return nil, fmt.Errorf("trainer_spec.model_type is %s; only unigram and bpe are possible",
			map[uint64]string{3: "word", 4: "char"}[kind])
	default:
		return nil, fmt.Errorf("trainer_spec.model_type is %d; want 1 (unigram) or 2 (bpe)", kind)
	}
	if len(m.pieces) == 0 {
		return nil, errors.New("pieces: there are none: this is not a SentencePiece model")
	}
	if m.unkID < 0 || m.unkID >= len(m.pieces) {
		return nil, fmt.Errorf("trainer_spec.unk_id is %d, and there are %d pieces", m.unkID, len(m.pieces))
	}
	ids := make(map[string]int, len(m.pieces))
	for i, p := range m.pieces {
		if at, ok := ids[p.text]; ok {
			return nil, fmt.Errorf("pieces[%d].piece: %q is also pieces[%d]", i, p.text, at)
		}
		ids[p.text] = i
	}
	return m, nil
}

func (m *spmModel) addPiece(f spmField) error {
	p := spmPiece{kind: 1}
	err := f.message("", func(f spmField) (err error) {
		switch f.number {
		case 1:
			p.text, err = f.text(".piece")
		case 2:
			p.score, err = f.float(".score")
		case 3:
			p.kind, err = f.varint(".type")
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case len(m.pieces) == maxPieces:
		return fmt.Errorf(": more than %d pieces", maxPieces)
	case p.text == "":
		return errors.New(".piece is empty")
	case len(p.text) > maxPieceBytes:
		return fmt.Errorf(".piece has %d bytes; the limit is %d", len(p.text), maxPieceBytes)
	case p.kind < 1 || p.kind > spmLastKind:
		return fmt.Errorf(".type is %d, want 1 to %d", p.kind, spmLastKind)
	}
	m.pieces = append(m.pieces, p)
	return nil
}

func (m *spmModel) trainer(f spmField, kind *uint64) (err error) {
	var v uint64
	switch f.number {
	case 3:
		*kind, err = f.varint("trainer_spec.model_type")
	case 24:
		err = f.want("trainer_spec.treat_whitespace_as_suffix", false,
			"spaces at the end of a word are not implemented")
	case 35:
		v, err = f.varint("trainer_spec.byte_fallback")
		m.byteFallback = v != 0
	case 40:
		v, err = f.varint("trainer_spec.unk_id")
		m.unkID = int(int32(v)) //nolint:gosec // as protobuf reads an int32
	case 45:
		m.unkPiece, err = f.text("trainer_spec.unk_piece")
	}
	return err
}

func (m *spmModel) normalizer(f spmField) (err error) {
	switch f.number {
	case 2:
		var b []byte
		b, err = f.bytes("normalizer_spec.precompiled_charsmap")
		if err == nil {
			err = checkCharsmap(b)
		}
		m.charsmap = slices.Clone(b)
	case 5:
		err = f.want("normalizer_spec.escape_whitespaces", true, "plain spaces are not implemented")
	}
	return err
}

// checkCharsmap refuses a character map that the library cannot read: the size of a trie of 32-bit
// words, the trie, and texts of UTF-8.
func checkCharsmap(b []byte) error {
	const name = "normalizer_spec.precompiled_charsmap"
	if len(b) == 0 {
		return nil
	}
	if len(b) < 4 {
		return fmt.Errorf("%s has %d bytes, want 4 and more", name, len(b))
	}
	size, rest := binary.LittleEndian.Uint32(b), b[4:]
	if size == 0 || size%4 != 0 || uint64(size) > uint64(len(rest)) {
		return fmt.Errorf("%s has a trie of %d bytes; %d bytes follow", name, size, len(rest))
	}
	if !utf8.Valid(rest[size:]) {
		return fmt.Errorf("%s: its texts are not UTF-8", name)
	}
	return nil
}

// spmField is one field of a message, with its value still encoded.
type spmField struct {
	number protowire.Number
	kind   protowire.Type
	value  []byte
}

// spmFields calls do for each field of a message. A length that the data do not have is an error.
func spmFields(data []byte, do func(spmField) error) error {
	whole := len(data)
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return &spmBroken{whole - len(data), n}
		}
		size := protowire.ConsumeFieldValue(number, kind, data[n:])
		if size < 0 {
			return fmt.Errorf("field %d, %w", number, &spmBroken{whole - len(data), size})
		}
		if err := do(spmField{number, kind, data[n : n+size]}); err != nil {
			return err
		}
		data = data[n+size:]
	}
	return nil
}

// spmBroken is the error of bytes that are no message.
type spmBroken struct {
	at, code int // byte of the message, and protowire's error
}

func (e *spmBroken) Error() string {
	return fmt.Sprintf("byte %d: %v: this is not a SentencePiece model, or only a part of one",
		e.at, protowire.ParseError(e.code))
}

func (f spmField) message(name string, do func(spmField) error) error {
	b, err := f.bytes(name)
	if err != nil {
		return err
	}
	err = spmFields(b, do)
	if broken := (*spmBroken)(nil); errors.As(err, &broken) {
		return fmt.Errorf("%s, %w", name, err)
	}
	return err
}

func (f spmField) bytes(name string) ([]byte, error) {
	if f.kind != protowire.BytesType {
		return nil, f.wrong(name, "bytes")
	}
	b, _ := protowire.ConsumeBytes(f.value)
	return b, nil
}

func (f spmField) text(name string) (string, error) {
	b, err := f.bytes(name)
	if err == nil && !utf8.Valid(b) {
		err = fmt.Errorf("%s is not UTF-8", name)
	}
	return string(b), err
}

func (f spmField) varint(name string) (uint64, error) {
	if f.kind != protowire.VarintType {
		return 0, f.wrong(name, "a number")
	}
	v, _ := protowire.ConsumeVarint(f.value)
	return v, nil
}

func (f spmField) float(name string) (float32, error) {
	if f.kind != protowire.Fixed32Type {
		return 0, f.wrong(name, "a float")
	}
	bits, _ := protowire.ConsumeFixed32(f.value)
	v := math.Float32frombits(bits)
	if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
		return 0, fmt.Errorf("%s is %v, want a finite number", name, v)
	}
	return v, nil
}

// want refuses a flag that is not as given.
func (f spmField) want(name string, flag bool, why string) error {
	v, err := f.varint(name)
	if err == nil && (v != 0) != flag {
		err = fmt.Errorf("%s is %v: %s", name, v != 0, why)
	}
	return err
}

func (f spmField) wrong(name, want string) error {
	return fmt.Errorf("%s has wire type %d, want %s: this is not a SentencePiece model", name, f.kind, want)
}
