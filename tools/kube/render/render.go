// Package render makes the manifests of a chart with Helm's own engine, as `helm template` does.
//
// Entry points: Chart, Values, ValuesFiles, Split. It reads files and starts nothing.
package render

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/cli/values"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/getter"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// AllAPIs are the APIs of other projects that the chart uses where they are there.
var AllAPIs = []string{"keda.sh/v1alpha1", "monitoring.coreos.com/v1", "gateway.networking.k8s.io/v1"}

// Options say how a chart is rendered.
type Options struct {
	Values      []string // files, a later one over an earlier one
	Set         []string // a.b=c, over the files
	Release     string   // default: sie-cluster
	Namespace   string   // default: sie
	KubeVersion string   // default: v1.36.0
	APIs        []string // in addition to Kubernetes' own
}

// Document is one manifest.
type Document struct {
	Source     string // the template
	APIVersion string
	Kind       string
	Name       string
	Namespace  string
	Raw        []byte // YAML
	JSON       []byte
}

func (d *Document) String() string { return fmt.Sprintf("%s: %s %s", d.Source, d.Kind, d.Name) }

// ValuesFiles returns the values files beside the chart's own, sorted.
func ValuesFiles(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "values-*.yaml"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no values-*.yaml", dir)
	}
	return files, err
}

// Chart returns the manifests of the chart in dir, those of its tests too, in the order of the
// templates' names. The text of NOTES.txt comes back apart.
func Chart(dir string, o Options) (docs []Document, notes string, err error) {
	c, err := loader.Load(dir)
	if err != nil {
		return nil, "", err
	}
	given := values.Options{ValueFiles: o.Values, Values: o.Set}
	vals, err := given.MergeValues(getter.Providers{})
	if err != nil {
		return nil, "", err
	}
	caps := *chartutil.DefaultCapabilities
	version, err := chartutil.ParseKubeVersion(or(o.KubeVersion, "v1.36.0"))
	if err != nil {
		return nil, "", err
	}
	caps.KubeVersion = *version
	if !chartutil.IsCompatibleRange(c.Metadata.KubeVersion, caps.KubeVersion.Version) {
		return nil, "", fmt.Errorf("the chart needs Kubernetes %s, this is %s", c.Metadata.KubeVersion,
			caps.KubeVersion.Version)
	}
	caps.APIVersions = append(slices.Clone(caps.APIVersions), o.APIs...)
	if err := chartutil.ProcessDependencies(c, vals); err != nil {
		return nil, "", err
	}
	all, err := chartutil.ToRenderValues(c, vals, chartutil.ReleaseOptions{
		Name: or(o.Release, "sie-cluster"), Namespace: or(o.Namespace, "sie"), Revision: 1, IsInstall: true,
	}, &caps)
	if err != nil {
		return nil, "", err
	}
	texts, err := engine.Engine{}.Render(c, all)
	if err != nil {
		return nil, "", err
	}
	for _, path := range slices.Sorted(maps.Keys(texts)) {
		switch filepath.Ext(path) {
		case ".txt":
			notes += texts[path]
		case ".yaml":
			more, err := Split(path, []byte(texts[path]))
			if err != nil {
				return nil, "", err
			}
			docs = append(docs, more...)
		}
	}
	return docs, notes, nil
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// Split returns the documents of a YAML text, empty ones left out.
func Split(source string, text []byte) (docs []Document, err error) {
	r := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		raw, err := r.Read()
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		json, err := yaml.YAMLToJSONStrict(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", source, err, numbered(raw))
		}
		if strings.TrimSpace(string(json)) == "null" {
			continue
		}
		var head struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Metadata   struct{ Name, Namespace string }
		}
		if err := yaml.Unmarshal(json, &head); err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		docs = append(docs, Document{Source: source, APIVersion: head.APIVersion, Kind: head.Kind,
			Name: head.Metadata.Name, Namespace: head.Metadata.Namespace, Raw: raw, JSON: json})
	}
}

func numbered(text []byte) string {
	var b strings.Builder
	for i, l := range strings.Split(string(text), "\n") {
		fmt.Fprintf(&b, "%4d %s\n", i+1, l)
	}
	return b.String()
}
