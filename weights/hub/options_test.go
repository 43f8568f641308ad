package hub

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOptionsFromEnv(t *testing.T) {
	dir := t.TempDir()
	for path, text := range map[string]string{
		"hf/token": "hf_file\n", "home/.cache/huggingface/token": " hf_home ", "mine": "hf_mine",
		"big": strings.Repeat("x", maxTokenBytes+1),
	} {
		full := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	home, hf := filepath.Join(dir, "home"), filepath.Join(dir, "hf")
	for name, c := range map[string]struct {
		env  string
		want Options
		err  string
	}{
		"defaults": {"HOME=" + home,
			Options{CacheDir: home + "/.cache/huggingface/hub", Token: "hf_home"}, ""},
		"xdg": {"HOME=" + home + " XDG_CACHE_HOME=/xdg",
			Options{CacheDir: "/xdg/huggingface/hub"}, ""},
		"HF_HOME": {"HOME=" + home + " HF_HOME=" + hf,
			Options{CacheDir: hf + "/hub", Token: "hf_file"}, ""},
		"HF_HOME with ~": {"HOME=" + home + " HF_HOME=~/h", Options{CacheDir: home + "/h/hub"}, ""},
		"HF_HUB_CACHE": {"HF_HOME=" + hf + " HF_HUB_CACHE=/c",
			Options{CacheDir: "/c", Token: "hf_file"}, ""},
		"old name": {"HF_HOME=" + hf + " HUGGINGFACE_HUB_CACHE=/c",
			Options{CacheDir: "/c", Token: "hf_file"}, ""},
		"SIE_LOCAL_CACHE": {"HF_HOME=" + hf + " HF_HUB_CACHE=/c SIE_LOCAL_CACHE=/s",
			Options{CacheDir: "/s", Token: "hf_file"}, ""},
		"empty is unset": {"HF_HOME=" + hf + " SIE_LOCAL_CACHE= HF_TOKEN=",
			Options{CacheDir: hf + "/hub", Token: "hf_file"}, ""},
		"token": {"HF_HOME=" + hf + " HF_TOKEN=hf_env", Options{CacheDir: hf + "/hub", Token: "hf_env"}, ""},
		"token, old name": {"HF_HOME=" + hf + " HUGGING_FACE_HUB_TOKEN=hf_env",
			Options{CacheDir: hf + "/hub", Token: "hf_env"}, ""},
		"token path": {"HF_HOME=" + hf + " HF_TOKEN_PATH=" + dir + "/mine",
			Options{CacheDir: hf + "/hub", Token: "hf_mine"}, ""},
		"no implicit token": {"HF_HOME=" + hf + " HF_HUB_DISABLE_IMPLICIT_TOKEN=1",
			Options{CacheDir: hf + "/hub"}, ""},
		"no token file": {"HF_HOME=/absent", Options{CacheDir: "/absent/hub"}, ""},
		"token file too long": {"HF_HOME=" + hf + " HF_TOKEN_PATH=" + dir + "/big",
			Options{CacheDir: hf + "/hub"}, "token file"},
		"endpoint": {"HF_HOME=" + hf + " HF_ENDPOINT=http://mirror",
			Options{CacheDir: hf + "/hub", Token: "hf_file", Endpoint: "http://mirror"}, ""},
		"offline": {"HF_HOME=" + hf + " HF_HUB_OFFLINE=1",
			Options{CacheDir: hf + "/hub", Token: "hf_file", Offline: true}, ""},
		"offline, other name": {"HF_HOME=" + hf + " TRANSFORMERS_OFFLINE=yes",
			Options{CacheDir: hf + "/hub", Token: "hf_file", Offline: true}, ""},
		"no fallback": {"HF_HOME=" + hf + " SIE_HF_FALLBACK=false",
			Options{CacheDir: hf + "/hub", Token: "hf_file", Offline: true}, ""},
		"online": {"HF_HOME=" + hf + " SIE_HF_FALLBACK=TRUE HF_HUB_OFFLINE=0",
			Options{CacheDir: hf + "/hub", Token: "hf_file"}, ""},
		"bad switch": {"HF_HOME=" + hf + " HF_HUB_OFFLINE=maybe",
			Options{CacheDir: hf + "/hub", Token: "hf_file"}, `HF_HUB_OFFLINE="maybe": want 1 or 0`},
		"nowhere": {"", Options{}, "set SIE_LOCAL_CACHE or HOME"},
	} {
		t.Run(name, func(t *testing.T) {
			env := map[string]string{}
			for pair := range strings.FieldsSeq(c.env) {
				key, value, _ := strings.Cut(pair, "=")
				env[key] = value
			}
			got, err := OptionsFromEnv(
				func(key string) (string, bool) { value, ok := env[key]; return value, ok })
			if got.CacheDir != c.want.CacheDir || got.Token != c.want.Token ||
				got.Endpoint != c.want.Endpoint || got.Offline != c.want.Offline {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
		})
	}
}

func TestNewReportsEveryProblem(t *testing.T) {
	_, err := New(Options{
		Endpoint: "ftp://user:hf_secret@hub", Token: "hf_a b", Parallel: -1, MaxFileBytes: -1,
	})
	wantClass(t, err, ClassConfig, "CacheDir", "HF_ENDPOINT", "HF_TOKEN", "Parallel", "MaxFileBytes")
	for _, endpoint := range []string{"hub", "://", "http://", "http://h?x=1", "http://h#x"} {
		if _, err := New(Options{CacheDir: "/c", Endpoint: endpoint}); ClassOf(err) != ClassConfig {
			t.Errorf("endpoint %q: %v", endpoint, err)
		}
	}
	for _, token := range []string{"a\nb", "a\x00", "ä", strings.Repeat("x", 5000)} {
		if _, err := New(Options{CacheDir: "/c", Token: token}); ClassOf(err) != ClassConfig ||
			strings.Contains(err.Error(), token) {
			t.Errorf("token %.20q: %v", token, err)
		}
	}
}

// TestClasses checks the strings that clients see, and which classes are permanent.
func TestClasses(t *testing.T) {
	permanent := map[Class]bool{
		"GATED": true, "NOT_FOUND": true, "DEPENDENCY": true, "CONFIG": true, "OOM": false, "NETWORK": false,
		"TIMEOUT": false, "PLACEMENT": false, "STORAGE": false, "ENGINE": false, "UNKNOWN": false,
	}
	all := []Class{ClassGated, ClassNotFound, ClassDependency, ClassConfig, ClassOOM, ClassNetwork,
		ClassTimeout, ClassPlacement, ClassStorage, ClassEngine, ClassUnknown}
	if len(all) != len(permanent) {
		t.Errorf("%d classes, want %d", len(all), len(permanent))
	}
	for _, class := range all {
		if want, known := permanent[class]; !known || class.Permanent() != want {
			t.Errorf("%s: known %v, permanent %v", class, known, class.Permanent())
		}
	}
	if ClassOf(os.ErrNotExist) != ClassUnknown {
		t.Error("a foreign error has a class")
	}
}
