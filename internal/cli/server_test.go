package cli

import (
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// flags is a command with the flags of a server.
type flags struct {
	Security `embed:""`
	Log      `embed:""`
	Limits   `embed:""`
}

func parse(t *testing.T, args ...string) (*flags, *kong.Context) {
	t.Helper()
	f := &flags{}
	k, err := kong.Must(f).Parse(args)
	if err != nil {
		t.Fatal(err)
	}
	return f, k
}

// Every limit of the server has a flag that sets its field.
func TestLimitsReachTheServer(t *testing.T) {
	f, k := parse(t, "--max-conns=7", "--head-timeout=3s", "--max-request-body-bytes=99", "--access-log",
		"--max-items=5")
	if err := CheckRanges(k); err != nil {
		t.Fatal(err)
	}
	o := f.Server(Secured{Origins: []string{"*"}}, &f.Log, slog.Default())
	if o.MaxConns != 7 || o.HeadTimeout.String() != "3s" || o.MaxBodyBytes != 99 || !o.AccessLog ||
		o.CORSOrigins[0] != "*" || f.Requests().MaxItems != 5 || f.Requests().MaxBodyBytes != 99 {
		t.Errorf("%+v, %+v", o, f.Requests())
	}
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	v := reflect.ValueOf(o)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if _, isFlag := reflect.TypeFor[Limits]().FieldByName(name); isFlag && v.Field(i).IsZero() {
			t.Errorf("%s does not reach the server", name)
		}
	}
}

// All ranges are reported at once.
func TestRangesAreReportedTogether(t *testing.T) {
	t.Setenv("SIE_KEEP_ALIVE", "0s")
	_, k := parse(t, "--max-conns=0", "--max-head-bytes=5")
	err := CheckRanges(k)
	for _, want := range []string{"--max-conns must be between 1 and 1048576; got 0", "--max-head-bytes",
		"--keep-alive must be between 1ms and 24h; got 0s from SIE_KEEP_ALIVE"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

func TestLogFormats(t *testing.T) {
	for format, want := range map[string]string{"text": "msg=hello", "json": `"message":"hello"`} {
		f, _ := parse(t, "--log-format="+format)
		var b strings.Builder
		f.Logger(&b).Info("hello")
		f.Logger(&b).Debug("quiet")
		if !strings.Contains(b.String(), want) || strings.Contains(b.String(), "quiet") {
			t.Errorf("%s: %s", format, &b)
		}
	}
	if tel, err := new(Log).Telemetry(t.Context(), "s", "v", nil, slog.Default()); tel != nil || err != nil {
		t.Errorf("%v, %v", tel, err)
	}
}
