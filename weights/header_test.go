package weights_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sie-engine/sie/weights"
	"github.com/sie-engine/sie/weights/weightstest"
)

// TestHostileHeaders tests each rule of the format with a file that breaks only that rule.
func TestHostileHeaders(t *testing.T) {
	data := make([]byte, 24)
	one := func(member string) []byte { return weightstest.File("{"+member+"}", data) }
	length := func(n uint64, rest string) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, n), rest...)
	}
	good := `"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}`
	half := func(name string, begin, end int) string {
		return fmt.Sprintf(`"%s":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}`,
			name, end-begin, begin, end)
	}
	for name, c := range map[string]struct {
		file []byte
		want string // part of the error
	}{
		"empty file":                {nil, "too short"},
		"7 bytes":                   {make([]byte, 7), "too short"},
		"length 0":                  {length(0, ""), "does not begin with '{'"},
		"length all ones":           {length(1<<64-1, "{}"), "above the limit"},
		"length above 100 MB":       {length(100_000_001, "{}"), "above the limit of 100000000"},
		"length past the end":       {length(3, "{}"), "cut short"},
		"length as signed negative": {length(1<<63, "{}"), "above the limit"},
		"git-lfs pointer":           {[]byte("version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"},
		"html page":                 {[]byte("<!DOCTYPE html><html></html>"), "not a safetensors file"},
		"leading space":             {weightstest.File(" {"+good+"}", data), "begin with '{'"},
		"bytes after the object":    {weightstest.File("{"+good+"}x", data), "want the end"},
		"NUL padding":               {weightstest.File("{"+good+"}\x00", data), "want the end"},
		"array at the top":          {weightstest.File("[]", nil), "begin with '{'"},
		"not UTF-8":                 {one("\"\xff\"" + good[3:]), "UTF-8"},
		"cut object":                {weightstest.File("{"+good, data), "want }"},
		"trailing comma":            {one(good + ","), "want a string"},
		"single quotes":             {one(strings.ReplaceAll(good, `"`, `'`)), "want a string"},
		"control character":         {one("\"a\n\"" + good[3:]), "control character"},
		"lone surrogate":            {one(`"\ud800"` + good[3:]), "surrogate"},
		"surrogates swapped":        {one(`"\udc00\ud800"` + good[3:]), "surrogate"},
		"unknown escape":            {one(`"\x41"` + good[3:]), "escape"},
		"short unicode escape":      {one(`"\u12"` + good[3:]), "escape"},
		"duplicate name": {one(half("a", 0, 12) + "," + half("a", 12, 24)),
			`"a": name: occurs twice`},
		"duplicate by escape": {one(half("a", 0, 12) + "," + half(`\u0061`, 12, 24)),
			`"a": name: occurs twice`},
		"tensor is a number":  {one(`"a":1`), "want {"},
		"tensor is null":      {one(`"a":null`), "want {"},
		"dtype missing":       {one(`"a":{"shape":[24],"data_offsets":[0,24]}`), "dtype: missing"},
		"shape missing":       {one(`"a":{"dtype":"U8","data_offsets":[0,24]}`), "shape: missing"},
		"offsets missing":     {one(`"a":{"dtype":"U8","shape":[24]}`), "data_offsets: missing"},
		"empty description":   {one(`"a":{}`), "missing"},
		"unknown key":         {one(good[:len(good)-1] + `,"strides":[1]}`), "unknown key"},
		"key in another case": {one(strings.Replace(good, "dtype", "DType", 1)), "unknown key"},
		"dtype twice":         {one(good[:len(good)-1] + `,"dtype":"F32"}`), "dtype: occurs twice"},
		"unknown dtype":       {one(strings.Replace(good, "F32", "F33", 1)), `unknown type "F33"`},
		"empty dtype":         {one(strings.Replace(good, "F32", "", 1)), "unknown type"},
		"dtype in lower case": {one(strings.Replace(good, "F32", "f32", 1)), "unknown type"},
		"dtype is a number":   {one(strings.Replace(good, `"F32"`, "32", 1)), "want a string"},
		"shape is a number":   {one(strings.Replace(good, "[2,3]", "6", 1)), "want ["},
		"negative dimension":  {one(strings.Replace(good, "[2,3]", "[-2,-3]", 1)), "non-negative"},
		"fraction":            {one(strings.Replace(good, "[2,3]", "[2.0,3]", 1)), "want an integer"},
		"exponent":            {one(strings.Replace(good, "[2,3]", "[6e0]", 1)), "want an integer"},
		"leading zero":        {one(strings.Replace(good, "[2,3]", "[02,3]", 1)), "leading zero"},
		"dimension over 2⁶³": {one(strings.Replace(good, "[2,3]", "[9223372036854775808]", 1)),
			"larger than"},
		"dimension over 2⁶⁴": {one(strings.Replace(good, "[2,3]", "[99999999999999999999999]", 1)),
			"larger than"},
		"dimension is text": {one(strings.Replace(good, "[2,3]", `["2",3]`, 1)), "non-negative integer"},
		"shape cut":         {one(strings.Replace(good, "[2,3]", "[2,", 1)), "non-negative integer"},
		"rank 65": {one(strings.Replace(good, "[2,3]", "[6"+strings.Repeat(",1", 64)+"]", 1)),
			"more than 64"},
		"product wraps to 24": {one(strings.Replace(good, "[2,3]", "[4611686018427387910,4]", 1)),
			"too large"},
		"product wraps to 0": {one(`"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}`),
			"too large"},
		"product overflows, then 0": {
			one(`"a":{"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}`), "too large",
		},
		"bits wrap": {one(`"a":{"dtype":"F64","shape":[288230376151711747],"data_offsets":[0,24]}`),
			"too large"},
		"half a byte":     {one(`"a":{"dtype":"F4","shape":[47],"data_offsets":[0,24]}`), "whole bytes"},
		"span too long":   {one(strings.Replace(good, "[2,3]", "[5]", 1)), "needs 20"},
		"span too short":  {one(strings.Replace(good, "[2,3]", "[7]", 1)), "needs 28"},
		"one offset":      {one(strings.Replace(good, "[0,24]", "[24]", 1)), "found 1 numbers"},
		"no offsets":      {one(strings.Replace(good, "[0,24]", "[]", 1)), "found 0 numbers"},
		"three offsets":   {one(strings.Replace(good, "[0,24]", "[0,12,24]", 1)), "more than 2"},
		"offsets swapped": {one(strings.Replace(good, "[0,24]", "[24,0]", 1)), "after end"},
		"negative offset": {one(strings.Replace(good, "[0,24]", "[-24,0]", 1)), "non-negative"},
		"past the end":    {weightstest.File("{"+good+"}", data[:23]), "holds 23 bytes"},
		"far past the end": {one(strings.Replace(strings.Replace(good, "[2,3]", "[1,1152921504606846975]", 1),
			"[0,24]", "[0,4611686018427387900]", 1)), "too large"},
		"hole at the start": {one(half("a", 1, 24)), "leaves a hole after byte 0"},
		"hole in the middle": {one(half("a", 0, 8) + "," + half("b", 16, 24)),
			"leaves a hole after byte 8"},
		"hole at the end":           {one(half("a", 0, 23)), "1 bytes of data after"},
		"data without tensors":      {weightstest.File("{}", data), "24 bytes of data after"},
		"overlap":                   {one(half("a", 0, 13) + "," + half("b", 12, 24)), "overlaps"},
		"same data twice":           {one(half("a", 0, 24) + "," + half("b", 0, 24)), "overlaps"},
		"empty tensor inside":       {one(half("a", 0, 24) + "," + half("b", 8, 8)), "overlaps"},
		"empty tensor past the end": {one(half("a", 0, 24) + "," + half("b", 25, 25)), "hole"},
		"metadata number":           {one(`"__metadata__":{"format":1},` + good), "__metadata__"},
		"metadata null":             {one(`"__metadata__":null,` + good), "want {"},
		"metadata nested":           {one(`"__metadata__":{"a":{}},` + good), "__metadata__"},
		"metadata key twice":        {one(`"__metadata__":{"a":"1","a":"2"},` + good), "occurs twice"},
		"metadata twice":            {one(`"__metadata__":{},"__metadata__":{},` + good), "occurs twice"},
		"deep nesting":              {one(`"a":` + strings.Repeat("[", 100_000)), "want {"},
	} {
		t.Run(name, func(t *testing.T) {
			path := weightstest.WriteFile(t, t.TempDir(), "model.safetensors", c.file)
			checkpoint, err := weights.OpenFile(path)
			var fe *weights.FormatError
			if !errors.As(err, &fe) {
				t.Fatalf("error is %v, want a *FormatError", err)
			}
			if checkpoint != nil {
				t.Error("a checkpoint came with the error")
			}
			if fe.File != path || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q does not name the file and %q", err, c.want)
			}
		})
	}
}

// TestUnusualHeaders opens files that look odd but follow the rules.
func TestUnusualHeaders(t *testing.T) {
	for name, c := range map[string]struct {
		file    []byte
		tensors int
	}{
		"no tensors":    {weightstest.File("{}", nil), 0},
		"only metadata": {weightstest.File(`{"__metadata__":{}}`, nil), 0},
		"white space": {weightstest.File(
			"{ \n\"a\" :\t{ \"dtype\" : \"U8\" ,\r\"shape\" : [ 1 ] , \"data_offsets\" : [ 0 , 1 ] } } ",
			[]byte{7}), 1},
		"unaligned data": {append([]byte{2, 0, 0, 0, 0, 0, 0, 0}, "{}"...), 0},
		"scalar": {weightstest.File(`{"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}`, make([]byte, 4)),
			1},
		"several empty": {weightstest.File(
			`{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"b":{"dtype":"U8","shape":[9,0],"data_offsets":[0,0]}}`,
			nil), 2},
		"data in any order": {weightstest.File(
			`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`,
			make([]byte, 2)), 2},
		"name of one NUL": {
			weightstest.File(`{"\u0000":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, make([]byte, 1)),
			1,
		},
		"empty name": {
			weightstest.File(`{"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, make([]byte, 1)), 1,
		},
		"sub-byte elements": {
			weightstest.File(`{"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}}`, make([]byte, 3)),
			1,
		},
		"rank 64": {weightstest.File(`{"a":{"dtype":"U8","shape":[1`+strings.Repeat(",1", 63)+
			`],"data_offsets":[0,1]}}`, make([]byte, 1)), 1},
		"escaped astral": {weightstest.File(
			`{"\ud83d\ude00":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, make([]byte, 1)), 1},
		"empty at a boundary": {weightstest.File(
			`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}}`,
			make([]byte, 1)), 2},
	} {
		t.Run(name, func(t *testing.T) {
			checkpoint, err := weights.OpenFile(
				weightstest.WriteFile(t, t.TempDir(), "x.safetensors", c.file))
			if err != nil {
				t.Fatal(err)
			}
			defer checkpoint.Close()
			if got := len(checkpoint.Names()); got != c.tensors {
				t.Errorf("%d tensors, want %d", got, c.tensors)
			}
		})
	}
}

// TestTruncationAtEveryByte cuts the golden file at every byte, and also makes it one byte too
// long.
func TestTruncationAtEveryByte(t *testing.T) {
	whole, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for n := range len(whole) {
		path := weightstest.WriteFile(t, dir, "cut.safetensors", whole[:n])
		var fe *weights.FormatError
		if _, err := weights.OpenFile(path); !errors.As(err, &fe) {
			t.Fatalf("%d of %d bytes: error is %v, want a *FormatError", n, len(whole), err)
		}
	}
	var fe *weights.FormatError
	if _, err := weights.OpenFile(
		weightstest.WriteFile(t, dir, "long.safetensors", append(whole, 0))); !errors.As(err, &fe) {
		t.Fatalf("one byte too long: error is %v", err)
	}
}

func TestNotAFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, weights.SingleFile), 0o755); err != nil {
		t.Fatal(err)
	}
	var fe *weights.FormatError
	if _, err := weights.Open(dir); !errors.As(err, &fe) ||
		!strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("directory in place of the file: %v", err)
	}
	fifo := filepath.Join(dir, "fifo.safetensors")
	if err := makeFIFO(fifo); err != nil {
		t.Fatal(err)
	}
	if _, err := weights.OpenFile(fifo); !errors.As(err, &fe) {
		t.Errorf("FIFO in place of the file: %v", err)
	}
}

// TestErrorsStayPrintable checks that a hostile name reaches the message escaped and cut.
func TestErrorsStayPrintable(t *testing.T) {
	name := "\\u001b[31m" + strings.Repeat("x", 10_000)
	file := weightstest.File(`{"`+name+`":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}`, make([]byte, 4))
	_, err := weights.OpenFile(weightstest.WriteFile(t, t.TempDir(), "x.safetensors", file))
	if err == nil || len(err.Error()) > 1000 || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("message of %d bytes: %.200v", len(err.Error()), err)
	}
}
