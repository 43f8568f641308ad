package crds

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// gitops are the modules of Argo CD and of Flux's controllers, 60 MB together. They are of the
// same releases as the types that go.mod names, where it names them.
var gitops = []source{
	{"github.com/argoproj/argo-cd/v3@v3.5.7", []string{"manifests/crds/application-crd.yaml"}},
	{"github.com/fluxcd/source-controller@v1.9.6", []string{
		"config/crd/bases/source.toolkit.fluxcd.io_gitrepositories.yaml",
		"config/crd/bases/source.toolkit.fluxcd.io_ocirepositories.yaml",
	}},
	{"github.com/fluxcd/kustomize-controller@v1.9.6", []string{
		"config/crd/bases/kustomize.toolkit.fluxcd.io_kustomizations.yaml",
	}},
}

// helmTypes is the package of Flux's HelmRelease. The module proxy has no module with its
// definition, so it is made of the types by the generator that the other files name.
const (
	helmTypes = "github.com/fluxcd/helm-controller/api/v2"
	generator = "sigs.k8s.io/controller-tools/cmd/controller-gen@v0.21.0"
)

// GitOps returns the paths of the definitions of Argo CD's and Flux's kinds; what has to be made is
// in the folder to. It must be called within this module.
func GitOps(ctx context.Context, to string) ([]string, error) {
	paths, err := download(ctx, gitops)
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, "go", "run", generator, "crd", "paths="+helmTypes, "output:crd:dir="+to)
	c.Env = append(os.Environ(), "GOFLAGS=-mod=mod")
	if out, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", generator, err, out)
	}
	made, err := filepath.Glob(filepath.Join(to, "*_helmreleases.yaml"))
	if err == nil && len(made) != 1 {
		err = fmt.Errorf("%s made %v of %s", generator, made, helmTypes)
	}
	return append(paths, made...), err
}
