// Package strict decodes manifests as an API server with strict validation does: a field that a
// kind does not have, a field that is there twice and a value of another type are errors.
//
// Entry points: New, Decoder.Decode.
package strict

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/sie-engine/sie/tools/kube/crds"
	"github.com/sie-engine/sie/tools/kube/render"
)

// Decoder knows Kubernetes' own kinds and those of package crds.
type Decoder struct {
	own    runtime.Decoder
	others crds.Definitions
}

// New returns a decoder.
func New(ctx context.Context) (*Decoder, error) {
	files, err := crds.Files(ctx)
	if err != nil {
		return nil, err
	}
	others, err := crds.Load(files)
	if err != nil {
		return nil, err
	}
	own := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	return &Decoder{own, others}, nil
}

// Decode returns the object of a document, or nil for one of another project's kind.
func (d *Decoder) Decode(doc *render.Document) (runtime.Object, error) {
	if known, err := d.others.Check(doc.APIVersion, doc.Kind, doc.JSON); known {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", doc, err)
		}
		return nil, nil
	}
	o, _, err := d.own.Decode(doc.Raw, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doc, err)
	}
	return o, nil
}
