package cli

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// An empty path is an error that says where it came from, and never the working directory. Other
// empty variables are what their flags make of them.
func TestEmptyPaths(t *testing.T) {
	type serve struct {
		Models string   `short:"m" type:"path" env:"SIE_T_OTHER,SIE_T_MODELS"`
		Socket string   `type:"path" env:"SIE_T_SOCKET" default:"/tmp/s"`
		Name   string   `env:"SIE_T_NAME"`
		Words  []string `arg:"" optional:""`
	}
	for _, c := range []struct {
		env  map[string]string
		args []string
		want string // of the error
		path string // of --models, "" for what want says
	}{
		{},
		{env: map[string]string{"SIE_T_NAME": "", "SIE_T_MODELS": "m"}},
		{args: []string{"--models=m", "--name="}},
		{env: map[string]string{"SIE_T_MODELS": ""}, args: []string{"--models", "m"}},
		{env: map[string]string{"SIE_T_MODELS": ""}, want: "SIE_T_MODELS is set but empty"},
		{env: map[string]string{"SIE_T_OTHER": "", "SIE_T_MODELS": "m"},
			want: "SIE_T_OTHER is set but empty"},
		{args: []string{"--models", ""}, want: "--models is empty"},
		{args: []string{"--models="}, want: "--models is empty"},
		{args: []string{"-m", ""}, want: "--models is empty"},
		{args: []string{"--models", "/a", "--models", ""}, want: "--models is empty"},
		{args: []string{"--models", "", "--models", "/a"}, path: "/a"},
		{args: []string{"--models=/a", "--", "--models", ""}, path: "/a"},
		{args: []string{"--models=/a", "--", "--models="}, path: "/a"},
		{args: []string{"--models", "--", ""}, want: "expected"},
		{args: []string{"-m", "-"}, path: "-"},
		{args: []string{"--socket="}, want: "--socket is empty"},
		{env: map[string]string{"SIE_T_SOCKET": ""}, want: "SIE_T_SOCKET is set but empty"},
	} {
		t.Run(c.want, func(t *testing.T) {
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			var program struct {
				Serve serve `cmd:""`
			}
			k, err := kong.Must(&program, Paths()).Parse(append([]string{"serve"}, c.args...))
			if err == nil {
				err = CheckPaths(k)
			}
			if c.path != "" && program.Serve.Models != c.path {
				t.Errorf("%v %q: the path is %q", c.env, c.args, program.Serve.Models)
			}
			switch {
			case c.want == "" && err != nil:
				t.Errorf("%v %q: %v", c.env, c.args, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v %q: %v, want %s", c.env, c.args, err, c.want)
			}
		})
	}
}
