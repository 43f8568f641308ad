package hub

import (
	"context"
	"errors"
)

// Adapter names a LoRA adapter.
type Adapter struct {
	ID, Revision string // as of Resolver.Resolve
	Directories  bool   // ID may be the path or name of a directory; else it names a repository whatever lies on this machine
	MaxBytes     int64  // that may be downloaded for it
}

// ResolveAdapter is Resolve for a LoRA adapter. A repository is listed first and refused unless it
// is one; of it the adapter's configuration and tensors are fetched and nothing else. On a disk
// that is fuller than wanted no more is removed for it than it takes.
func (r *Resolver) ResolveAdapter(ctx context.Context, a Adapter) (Resolved, error) {
	found, ref, err := r.adapter(a)
	if err == nil && found.Dir == "" {
		found, err = r.search(ctx, ref)
	}
	return found, a.explain(err)
}

// FindAdapter is Find for a LoRA adapter.
func (r *Resolver) FindAdapter(ctx context.Context, a Adapter) (Resolved, bool, error) {
	found, ref, err := r.adapter(a)
	ok := found.Dir != ""
	if err == nil && !ok {
		found, ok, err = r.onDisk(ctx, ref)
	}
	return found, ok, a.explain(err)
}

// adapter is the directory that a names, or else the repository.
func (r *Resolver) adapter(a Adapter) (found Resolved, ref modelRef, err error) {
	if a.Directories {
		found, ref, err = r.local(a.ID, a.Revision)
	} else {
		ref, err = parseRef(a.ID, a.Revision)
	}
	ref.adapter = a.MaxBytes
	return found, ref, err
}

func (a Adapter) explain(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.Model = short(a.ID)
	}
	return err
}
