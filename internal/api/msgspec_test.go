package api

import (
	"bufio"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
)

// decodeAs decodes body as the named request and returns the message of the error, "" for none.
func decodeAs(request, format string, body []byte) string {
	ct := "application/" + format
	var err error
	switch request {
	case "encode":
		_, err = DecodeEncode(ct, body, Limits{})
	case "score":
		_, err = DecodeScore(ct, body, Limits{})
	case "extract":
		_, err = DecodeExtract(ct, body, Limits{})
	default:
		panic("no request " + request)
	}
	if err == nil {
		return ""
	}
	e, ok := errors.AsType[*errs.Error](err)
	if !ok {
		return "not an *errs.Error: " + err.Error()
	}
	if e.Code != errs.InvalidInput || e.Status != 400 {
		return "not a 400 INVALID_INPUT: " + err.Error()
	}
	return e.Message
}

// TestAgreesWithMsgspec checks that the same bytes get the same verdict as from the reference's
// decoder, word for word. The cases come from testdata/make_decode_goldens.py.
func TestAgreesWithMsgspec(t *testing.T) {
	f, err := os.Open("testdata/msgspec.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, bad := 0, 0
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(z)
	for ; lines.Scan(); n++ {
		var c [4]string
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		body, err := hex.DecodeString(c[2])
		if err != nil {
			t.Fatal(err)
		}
		if got := decodeAs(c[0], c[1], body); got != c[3] {
			if bad++; bad <= 20 {
				t.Errorf("%s %s %q\n got %q\nwant %q", c[0], c[1], body, got, c[3])
			}
		}
	}
	if lines.Err() != nil || n < 3000 {
		t.Fatalf("read %d cases: %v", n, lines.Err())
	}
	if bad > 0 {
		t.Errorf("%d of %d cases differ", bad, n)
	}
}
