package task

import "context"

// Hold admits that many more bytes of a request's results into memory. With them, the results of so
// many of its items are counted in whole. An error refuses the request. It is called before the
// bytes are made, by one goroutine at a time: once for what is certain when the model is known,
// then as texts turn out to need more.
type Hold func(bytes int64, items int) error

type holdKey struct{}

// WithHold returns a context whose requests ask h for the room of their results. Without one they
// take what they need.
func WithHold(ctx context.Context, h Hold) context.Context {
	return context.WithValue(ctx, holdKey{}, h)
}

// holdOf returns the Hold of a context, never nil.
func holdOf(ctx context.Context) Hold {
	if h, ok := ctx.Value(holdKey{}).(Hold); ok {
		return h
	}
	return func(int64, int) error { return nil }
}

// What a result takes besides its data, in bytes: the request's and the answer's entries for it,
// slices, ids.
const (
	vectorBytes = 320 // an item of an encode request
	scoreBytes  = 160 // a candidate
	listBytes   = 256 // an item whose result is a list
	entryBytes  = 96  // an entry of such a list: a class, an entity, a token
)
