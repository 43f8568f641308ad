package check

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/sie-engine/sie/tools/kube/options"
)

const composeDir = "../../../deploy/compose/"

// composed reads the Compose files by Compose's own reader, which refuses keys that it does not
// know.
func composed(t *testing.T, files ...string) *types.Project {
	t.Helper()
	var paths []string
	for _, f := range files {
		paths = append(paths, composeDir+f)
	}
	o, err := cli.NewProjectOptions(paths)
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.LoadProject(contextTODO)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// composeStarts returns how the services start programs.
func composeStarts(t *testing.T, known *options.Known, p *types.Project) (all []options.Start) {
	t.Helper()
	for name, s := range p.Services {
		c := corev1.Container{Name: name, Image: s.Image, Args: s.Command}
		if len(c.Args) == 0 && name != "worker-sidecar" {
			c.Args = []string{"serve"} // the image's
		}
		for k, v := range s.Environment {
			c.Env = append(c.Env, corev1.EnvVar{Name: k, Value: *v})
		}
		start, err := known.Check(&c, "")
		if err != nil || start.Program == "" {
			t.Errorf("%s: %v", name, err)
		}
		all = append(all, start)
	}
	return all
}

// The services of Compose start what the chart's pods start: flags and variables that the programs
// know, as a user, read-only and without capabilities, with the times to end that they need.
func TestCompose(t *testing.T) {
	known, err := options.Load(optionsDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, files := range [][]string{{"compose.yaml"}, {"compose.yaml", "compose.cpu.yaml"}} {
		p := composed(t, files...)
		composeStarts(t, known, p)
		names := slices.Sorted(maps.Keys(p.Services))
		if want := []string{"config", "gateway", "nats", "worker", "worker-sidecar"}; !slices.Equal(names,
			want) {
			t.Errorf("%v: services %v", files, names)
		}
		for name, s := range p.Services {
			if !s.ReadOnly || s.User != "1000:1000" || !slices.Contains(s.CapDrop, "ALL") ||
				!slices.Contains(s.SecurityOpt, "no-new-privileges:true") || s.Privileged {
				t.Errorf("%v: %s: %+v", files, name, s.SecurityOpt)
			}
			if drain := s.Environment["SIE_DRAIN_TIMEOUT"]; drain != nil {
				var d types.Duration
				if err := d.DecodeMapstructure(*drain); err != nil || s.StopGracePeriod == nil ||
					*s.StopGracePeriod <= d {
					t.Errorf("%v: %s may take %v to end and drains for %s", files, name,
						s.StopGracePeriod, *drain)
				}
			}
			_, cluster := s.Networks["cluster"]
			_, out := s.Networks["default"]
			if wantOut := name == "gateway" || name == "worker"; cluster == (name == "worker") ||
				out != wantOut ||
				!bool(p.Networks["cluster"].Internal) || len(s.Ports) > 0 != (name == "gateway") {
				t.Errorf("%v: %s is on the networks %v, ports %v", files, name, s.Networks, s.Ports)
			}
			for _, v := range s.Volumes {
				if v.Type == "bind" && !v.ReadOnly {
					t.Errorf("%v: %s may write to %s", files, name, v.Source)
				}
				if v.Type == "volume" && p.Volumes[v.Source].DriverOpts["type"] != "tmpfs" {
					imageHas(t, s.Image, v.Target)
				}
			}
		}
		worker, sidecar := p.Services["worker"], p.Services["worker-sidecar"]
		for _, v := range []string{"SIE_POOL", "SIE_MACHINE_PROFILE", "SIE_BUNDLE", "SIE_IPC_SOCKET_PATH"} {
			if *worker.Environment[v] != *sidecar.Environment[v] {
				t.Errorf("%v: %s of the server and of its sidecar differ", files, v)
			}
		}
		gpus := worker.Deploy.Resources.Reservations.Devices
		if cpu := len(files) == 2; (len(gpus) == 0) != cpu || strings.HasSuffix(worker.Image, "-cpu") != cpu {
			t.Errorf("%v: %s with %v", files, worker.Image, gpus)
		}
		if _, after := sidecar.DependsOn["worker"]; !after {
			t.Errorf("%v: the server may end before its sidecar", files)
		}
		if p.Volumes["ipc"].DriverOpts["type"] != "tmpfs" {
			t.Errorf("%v: the socket is not in memory", files)
		}
	}
}

// dockerfiles are those of the images, by name.
var dockerfiles = map[string][]string{
	"sie-server": {"Dockerfile", "Dockerfile.cuda"}, "sie-config": {"Dockerfile.config"},
	"sie-gateway": {"Dockerfile.gateway"}, "sie-server-sidecar": {"Dockerfile.sidecar"},
}

// imageHas wants a folder of a service's image to be one of its volumes: tools/docker then checks
// that it belongs to the image's user. A new volume at another place belongs to root, and the
// service cannot write to it.
func imageHas(t *testing.T, image, folder string) {
	t.Helper()
	name, _, _ := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":")
	if len(dockerfiles[name]) == 0 {
		t.Errorf("%s is of no Dockerfile", image)
	}
	for _, file := range dockerfiles[name] {
		text, err := os.ReadFile("../../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(strings.Split(string(text), "\n"), "VOLUME "+folder) {
			t.Errorf("a volume is mounted at %s, which is no VOLUME of %s: it would belong to root", folder, file)
		}
	}
}
