// Package chart packs the chart and pushes it to an OCI registry, by Helm's own code.
//
// Entry points: Package, Push.
package chart

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/registry"
)

// Package writes the chart in dir as NAME-VERSION.tgz into the folder to, and returns its path.
func Package(dir, to string) (string, error) {
	c, err := loader.Load(dir)
	if err != nil {
		return "", err
	}
	if err := c.Validate(); err != nil {
		return "", err
	}
	return chartutil.Save(c, to)
}

// Push sends a packed chart to "oci://REGISTRY/PATH", and returns what `helm install` takes. Who
// may push is what `helm registry login`, or `docker login`, left.
func Push(file, to string, plainHTTP bool, log io.Writer) (string, error) {
	at, ok := strings.CutPrefix(strings.TrimSuffix(to, "/"), "oci://")
	if !ok || at == "" {
		return "", fmt.Errorf("%q is no place in a registry: write oci://REGISTRY/PATH", to)
	}
	c, err := loader.LoadFile(file)
	if err != nil {
		return "", err
	}
	bytes, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	options := []registry.ClientOption{registry.ClientOptWriter(log)}
	if plainHTTP {
		options = append(options, registry.ClientOptPlainHTTP())
	}
	client, err := registry.NewClient(options...)
	if err != nil {
		return "", err
	}
	ref := fmt.Sprintf("%s/%s:%s", at, c.Name(), c.Metadata.Version)
	result, err := client.Push(bytes, ref)
	if err != nil {
		return "", err
	}
	if result.Manifest == nil || result.Manifest.Digest == "" {
		return "", errors.New("the registry took the chart and told no digest")
	}
	return fmt.Sprintf("oci://%s/%s --version %s (%s)", at, c.Name(), c.Metadata.Version,
		result.Manifest.Digest), nil
}
