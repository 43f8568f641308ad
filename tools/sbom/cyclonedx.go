package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"strings"
)

// The parts of CycloneDX 1.6 that are used.
type bom struct {
	Format       string      `json:"bomFormat"`
	Spec         string      `json:"specVersion"`
	Serial       string      `json:"serialNumber"`
	Version      int         `json:"version"`
	Metadata     metadata    `json:"metadata"`
	Components   []component `json:"components"`
	Dependencies []needs     `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string       `json:"type"`
	Ref        string       `json:"bom-ref"`
	Name       string       `json:"name"`
	Version    string       `json:"version"`
	Hashes     []hash       `json:"hashes,omitempty"`
	Licences   []expression `json:"licenses"`
	PURL       string       `json:"purl"`
	Properties []property   `json:"properties,omitempty"`
}

type expression struct {
	Expression string `json:"expression"`
}

type hash struct {
	Alg     string `json:"alg"`
	Content string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type needs struct {
	Ref string   `json:"ref"`
	On  []string `json:"dependsOn"`
}

// document returns the bill of a program. Its serial number comes from what it says, so that the
// same program gives the same bytes.
func document(name, commit string, info *buildinfo.BuildInfo, parts []part) []byte {
	main := component{
		Type: "application", Ref: "program", Name: name, Version: commit,
		PURL:     "pkg:golang/" + info.Main.Path + "#" + strings.TrimPrefix(info.Path, info.Main.Path+"/"),
		Licences: []expression{{"Apache-2.0"}},
	}
	for _, key := range []string{"GOOS", "GOARCH", "CGO_ENABLED", "-tags"} {
		if v := setting(info, key); v != "" {
			main.Properties = append(main.Properties, property{"go:build:" + key, v})
		}
	}
	b := bom{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{main}}
	all := needs{Ref: main.Ref, On: []string{}}
	for _, p := range parts {
		c := component{Type: "library", Ref: p.purl, Name: p.name, Version: p.version, PURL: p.purl,
			Licences: []expression{{p.licence}}}
		switch {
		case strings.HasPrefix(p.sum, "h1:"):
			c.Properties = []property{{"go:sum", p.sum}}
		case p.sum != "":
			c.Hashes = []hash{{"SHA-256", p.sum}}
		}
		b.Components = append(b.Components, c)
		all.On = append(all.On, c.Ref)
	}
	b.Dependencies = []needs{all}
	u := sha256.Sum256(encode(b))
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80 // a UUID of one's own making, RFC 9562
	b.Serial = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:16])
	return encode(b)
}

func encode(b bom) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(b); err != nil {
		panic("sbom: internal error: " + err.Error())
	}
	return out.Bytes()
}
