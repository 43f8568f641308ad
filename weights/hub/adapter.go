package hub

import (
	"context"
	"errors"
)

// Adapter names a LoRA adapter.
type Adapter struct {
	ID, Revision string // as of Resolver.Resolve
	Directories  bool   // ID may be the path or name of a directory; if false, it always names a repository
	MaxBytes     int64  // the most that may be downloaded for it
	// Beside names further files that are wanted where the repository has them. An adapter whose
	// download did not ask for them is not found on this machine.
	Beside []string
}

// ResolveAdapter returns the directory of a LoRA adapter, as Resolve does for a model. A repository
// is listed first and refused unless it is an adapter. Only the adapter's configuration and
// tensors, and the files beside them that are wanted, are downloaded. On a disk above its
// threshold, no more models are removed once the adapter fits and they have freed as many bytes as
// it takes.
func (r *Resolver) ResolveAdapter(ctx context.Context, a Adapter) (Resolved, error) {
	found, ref, err := r.adapter(a)
	if err == nil && found.Dir == "" {
		found, err = r.search(ctx, ref)
	}
	return found, a.explain(err)
}

// FindAdapter looks for a LoRA adapter on this machine, as Find does for a model.
func (r *Resolver) FindAdapter(ctx context.Context, a Adapter) (Resolved, bool, error) {
	found, ref, err := r.adapter(a)
	ok := found.Dir != ""
	if err == nil && !ok {
		found, ok, err = r.onDisk(ctx, ref)
	}
	return found, ok, a.explain(err)
}

// adapter returns the directory that a names, or else the repository.
func (r *Resolver) adapter(a Adapter) (found Resolved, ref modelRef, err error) {
	if a.Directories {
		found, ref, err = r.local(a.ID, a.Revision)
	} else {
		ref, err = parseRef(a.ID, a.Revision)
	}
	ref.adapter, ref.beside = a.MaxBytes, a.Beside
	return found, ref, err
}

func (a Adapter) explain(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.Model = short(a.ID)
	}
	return err
}
