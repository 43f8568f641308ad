// Package crds finds the definitions of other projects' kinds (KEDA, Gateway API, Prometheus
// operator; Argo CD, Flux) in their Go modules, and validates objects by them as an API server
// does.
//
// Entry points: Files, GitOps, Load, Definitions.Check. Files and GitOps run `go mod download`,
// which needs the module proxy once.
package crds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"sigs.k8s.io/yaml"
)

// source is a module, and in it the files of the kinds that are used.
type source struct {
	module string
	files  []string
}

// sources are those of the chart's kinds.
var sources = []source{
	{"github.com/kedacore/keda/v2@v2.21.0", []string{
		"config/crd/bases/keda.sh_scaledobjects.yaml", "config/crd/bases/keda.sh_triggerauthentications.yaml",
	}},
	{"sigs.k8s.io/gateway-api@v1.6.3", []string{
		"config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
	}},
	{"github.com/prometheus-operator/prometheus-operator@v0.85.0", []string{
		"example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
		"example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
	}},
}

// Files returns the paths of the definitions of the chart's kinds, in the module cache.
func Files(ctx context.Context) ([]string, error) { return download(ctx, sources) }

// download returns the paths of the files of modules, in the module cache.
func download(ctx context.Context, sources []source) (paths []string, err error) {
	args := []string{"mod", "download", "-json"}
	for _, s := range sources {
		args = append(args, s.module)
	}
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir = os.TempDir() // of no module
	c.Env = append(os.Environ(), "GOFLAGS=-mod=mod")
	out, failed := c.Output()
	dirs := map[string]string{}
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var m struct{ Path, Version, Dir, Error string }
		if err := d.Decode(&m); err != nil {
			return nil, errors.Join(fmt.Errorf("go mod download: %w", err), failed)
		}
		if m.Error != "" {
			return nil, fmt.Errorf("go mod download %s: %s", m.Path, m.Error)
		}
		dirs[m.Path+"@"+m.Version] = m.Dir
	}
	if failed != nil {
		return nil, fmt.Errorf("go mod download: %w", failed)
	}
	for _, s := range sources {
		for _, f := range s.files {
			path := filepath.Join(dirs[s.module], f)
			if _, err := os.Stat(path); err != nil {
				return nil, fmt.Errorf("%s: %w", s.module, err)
			}
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// definition is one version of a kind.
type definition struct {
	schema    *structural.Structural
	validator validation.SchemaValidator
}

// Definitions holds kinds by "apiVersion kind".
type Definitions map[string]definition

// Load reads definitions.
func Load(paths []string) (Definitions, error) {
	all := Definitions{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var crd v1.CustomResourceDefinition
		if err := yaml.Unmarshal(text, &crd); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		var internal apiextensions.CustomResourceDefinition
		if err := v1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&crd,
			&internal, nil); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, v := range crd.Spec.Versions {
			s, err := apiextensions.GetSchemaForVersion(&internal, v.Name)
			if err != nil || s == nil {
				return nil, fmt.Errorf("%s: no schema of %s: %w", path, v.Name, err)
			}
			d := definition{}
			if d.schema, err = structural.NewStructural(s.OpenAPIV3Schema); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			if d.validator, _, err = validation.NewSchemaValidator(s.OpenAPIV3Schema); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			all[crd.Spec.Group+"/"+v.Name+" "+crd.Spec.Names.Kind] = d
		}
	}
	return all, nil
}

// Check returns what is wrong with an object, given as JSON: fields that its kind does not have,
// and values that it does not take. known is false for a kind that is not among the definitions.
func (all Definitions) Check(apiVersion, kind string, text []byte) (known bool, err error) {
	d, known := all[apiVersion+" "+kind]
	if !known {
		return false, nil
	}
	var o map[string]any
	if err := json.Unmarshal(text, &o); err != nil {
		return true, err
	}
	problems := []error{validation.ValidateCustomResource(nil, o, d.validator).ToAggregate()}
	if problems[0] == nil {
		problems = nil
	}
	unknown := pruning.PruneWithOptions(o, d.schema, true,
		structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	for _, path := range unknown {
		problems = append(problems, fmt.Errorf("unknown field %q", path))
	}
	return true, errors.Join(problems...)
}
